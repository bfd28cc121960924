//! Units of time in schedules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Warmup;

/// Unit of a schedule's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// Every step has its own learning rate.
    #[default]
    Step,
    /// The learning rate changes between epochs.
    Epoch,
}

/// The range of the length T of a decay, and the start of its t.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TMax {
    /// From the end of the warm-up to the end of training.
    #[default]
    AfterWarmup,
    /// The whole training: the warm-up replaces the beginning of the decay.
    All,
    /// As `all`, plus one, so that the last step or epoch is not at the minimum yet (as the authors of DB do).
    AllPlusOne,
}

/// The length of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Updates per pass through the training set, at least 1.
    steps_per_epoch: usize,
    /// Updates in all.
    steps: usize,
}

impl Length {
    /// A training of `epochs` with `steps_per_epoch` each (at least one), which ends after `max_steps` if it is longer.
    pub fn new(steps_per_epoch: usize, epochs: usize, max_steps: Option<usize>) -> Self {
        let steps_per_epoch = steps_per_epoch.max(1);
        let steps = epochs.saturating_mul(steps_per_epoch);
        Self { steps_per_epoch, steps: max_steps.map_or(steps, |most| steps.min(most)) }
    }

    /// Updates per pass through the training set.
    pub fn steps_per_epoch(self) -> usize {
        self.steps_per_epoch
    }

    /// Updates in all.
    pub fn steps(self) -> usize {
        self.steps
    }
}

impl From<(usize, usize)> for Length {
    /// A number of steps per epoch, and of whole epochs.
    fn from((steps_per_epoch, epochs): (usize, usize)) -> Self {
        Self::new(steps_per_epoch, epochs, None)
    }
}

/// A moment of a training.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    /// Updates before this one.
    pub(super) step: usize,
    pub(super) length: Length,
}

impl Clock {
    /// Whole epochs before this step.
    pub(super) fn epoch(self) -> usize {
        self.step / self.steps_per_epoch()
    }

    /// Updates per epoch, at least 1.
    pub(super) fn steps_per_epoch(self) -> usize {
        self.length.steps_per_epoch
    }

    /// Steps of the training.
    pub(super) fn total(self) -> usize {
        self.length.steps
    }

    /// t/T of a decay, in [0, 1], where T is shorter by `less`; a decay without length is at its end.
    pub(super) fn decay(self, per: Per, t_max: TMax, warmup: Option<&Warmup>, less: f64) -> f64 {
        let per_epoch = self.steps_per_epoch() as f64;
        let warm_steps = warmup.map_or(0, |warmup| warmup.over.steps(self.steps_per_epoch())) as f64;
        let (t, total, warm) = match per {
            Per::Step => (self.step as f64, self.total() as f64, warm_steps),
            Per::Epoch => (self.epoch() as f64, self.total() as f64 / per_epoch, warm_steps / per_epoch),
        };
        let (t, length) = match t_max {
            TMax::AfterWarmup => (t - warm, total - warm),
            TMax::All => (t, total),
            TMax::AllPlusOne => (t, total + 1.0),
        };
        part(t, length - less)
    }
}

/// [`Clock::decay`] in Python, after a warm-up of `warmup` steps.
pub(super) fn emit_decay(per: Per, t_max: TMax, warmup: Option<&Warmup>, less: usize) -> String {
    let (t, total) = match per {
        Per::Step => ("step", "steps"),
        Per::Epoch => ("step // per_epoch", "steps / per_epoch"),
    };
    let warm = match per {
        Per::Step => " - warmup",
        Per::Epoch => " - warmup / per_epoch",
    };
    let warm = if warmup.is_some() { warm } else { "" };
    let less = if less > 0 { format!(" - {less}") } else { String::new() };
    match t_max {
        TMax::AfterWarmup => format!("share({t}{warm}, {total}{warm}{less})"),
        TMax::All => format!("share({t}, {total}{less})"),
        TMax::AllPlusOne => format!("share({t}, {total} + 1{less})"),
    }
}

/// [`part`] in Python.
pub(crate) const SHARE: &str = r#"
def share(time: float, length: float) -> float:
    """The share of a length that has passed."""
    return min(max(time / length, 0.0), 1.0) if length > 0 else 1.0
"#;

/// t/T in [0, 1]; 1 if there is no T.
pub(super) fn part(t: f64, length: f64) -> f64 {
    if length <= 0.0 { 1.0 } else { (t / length).clamp(0.0, 1.0) }
}

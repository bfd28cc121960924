//! The progress of a decay, here and in Python.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Warmup;
use super::time::{Clock, Per};

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

impl Clock {
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

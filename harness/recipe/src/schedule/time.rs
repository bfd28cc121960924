//! Units of time in schedules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
}

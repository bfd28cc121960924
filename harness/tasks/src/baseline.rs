//! The accuracy of a linear classifier on the same samples.

use std::sync::Arc;

use zoo_datasets::{DataError, Dataset, OnError, Size};

/// A linear classifier that has not been trained yet.
pub struct LinearBaseline {
    pub(crate) train: Arc<dyn Dataset>,
    pub(crate) val: Arc<dyn Dataset>,
    /// Size to which images are resized.
    pub(crate) size: Size,
    pub(crate) on_error: OnError,
}

impl LinearBaseline {
    /// Number of samples to train and to evaluate on.
    pub fn samples(&self) -> usize {
        self.train.len() + self.val.len()
    }

    /// Number of samples that are used to train and to evaluate: fewer where classes and pixels would take too long.
    pub fn used(&self) -> usize {
        zoo_datasets::linear_baseline_samples(self.train.as_ref(), self.val.as_ref(), self.size).iter().sum()
    }

    /// Memory that the measurement takes, in bytes.
    pub fn bytes(&self) -> u64 {
        zoo_datasets::linear_baseline_bytes(self.train.as_ref(), self.val.as_ref(), self.size)
    }

    /// Trains the classifier and returns its top-1 accuracy. `progress` is called with the number of images processed
    /// and the total over all epochs.
    ///
    /// # Errors
    /// Samples that cannot be read.
    pub fn measure(&self, progress: &mut dyn FnMut(usize, usize)) -> Result<f64, DataError> {
        zoo_datasets::linear_baseline(self.train.as_ref(), self.val.as_ref(), self.size, self.on_error, progress)
    }
}

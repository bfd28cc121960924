//! A slot of a batch, and the replacement if its sample cannot be read.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::LoaderConfig;
use crate::{DataError, OnError, Rng};

/// How places are filled.
pub(super) struct Slot<'a> {
    pub config: &'a LoaderConfig,
    /// Number of samples to choose another one from.
    pub samples: usize,
    /// Counts unreadable samples.
    pub skipped: &'a AtomicUsize,
}

/// Whose place it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub seed: u64,
    pub epoch: u64,
    pub index: usize,
}

impl Slot<'_> {
    /// Fills one place by `sample(index)`; `None` if it stays empty.
    pub fn fill<T>(
        &self,
        stop: &AtomicBool,
        place: Place,
        mut sample: impl FnMut(usize) -> Result<T, DataError>,
    ) -> Result<Option<T>, DataError> {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let failed = match (sample(place.index), self.config.on_error) {
            (Ok(sample), _) => return Ok(Some(sample)),
            (Err(error), OnError::Fail) => return Err(error),
            (Err(error), OnError::Skip) => {
                tracing::warn!("left out: {error}");
                self.skipped.fetch_add(1, Ordering::Relaxed);
                error
            }
        };
        if !self.config.drop_last {
            return Ok(None);
        }
        self.substitute(place, sample, failed).map(Some)
    }

    /// Another sample, chosen by seed, epoch and index.
    fn substitute<T>(
        &self,
        place: Place,
        mut sample: impl FnMut(usize) -> Result<T, DataError>,
        failed: DataError,
    ) -> Result<T, DataError> {
        const ATTEMPTS: usize = 32;
        // Apart from the stream of the sample's augmentation.
        let mut rng = Rng::new(!place.seed, place.epoch, place.index as u64);
        let mut last = failed;
        for _ in 0..ATTEMPTS {
            match sample(rng.below(self.samples)) {
                Ok(sample) => return Ok(sample),
                Err(error) => last = error,
            }
        }
        Err(DataError::NothingReadable { attempts: ATTEMPTS + 1, last: Box::new(last) })
    }
}

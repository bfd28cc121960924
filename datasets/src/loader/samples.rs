//! Batches of samples of any kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::slot::{Place, Slot};
use super::workers::Workers;
use super::{Ahead, LoaderConfig};
use crate::DataError;

/// Samples of any kind, ready for training, addressed by index.
///
/// Implementations are pure: the same seed, epoch and index give the same sample, from any thread.
pub trait Samples: Send + Sync {
    /// One sample.
    type Sample: Send;

    /// Samples per epoch.
    fn len(&self) -> usize;

    /// True if there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sample `index` of `epoch`, varied by `seed`.
    ///
    /// # Errors
    /// If its files cannot be used.
    fn sample(&self, seed: u64, epoch: u64, index: usize) -> Result<Self::Sample, DataError>;
}

/// Prepares batches of samples ahead on other threads, in an order that depends on seed and epoch alone, as
/// [`Loader`](super::Loader) does for labelled images.
pub struct SampleLoader<S> {
    job: Arc<Job<S>>,
}

struct Job<S> {
    samples: S,
    config: LoaderConfig,
    skipped: AtomicUsize,
    workers: Workers,
}

impl<S: Samples + 'static> SampleLoader<S>
where
    S::Sample: 'static,
{
    /// A loader of `samples`.
    ///
    /// # Errors
    /// If the batch or the number of threads is 0, there are no samples or fewer than one full batch while `drop_last`
    /// is set, or threads cannot be started.
    pub fn new(samples: S, config: LoaderConfig) -> Result<Self, DataError> {
        config.check(samples.len())?;
        let workers = Workers::new(config.threads)?;
        Ok(Self { job: Arc::new(Job { samples, config, skipped: AtomicUsize::new(0), workers }) })
    }

    /// The samples.
    pub fn samples(&self) -> &S {
        &self.job.samples
    }

    /// Batches per epoch.
    pub fn batches_per_epoch(&self) -> usize {
        self.job.config.batches(self.job.samples.len())
    }

    /// Number of unusable samples skipped or replaced so far, over all epochs.
    pub fn skipped(&self) -> usize {
        self.job.skipped.load(Ordering::Relaxed)
    }

    /// The batches of `epoch` from number `first` on. Batches do not depend on where an epoch is entered.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn epoch(&self, epoch: u64, first: usize) -> Result<Ahead<Vec<S::Sample>>, DataError> {
        let job = Arc::clone(&self.job);
        let order = job.config.order(job.samples.len(), epoch);
        let batches = first..self.batches_per_epoch().max(first);
        Ahead::start(batches, job.config, move |number, pace, stop| {
            let Job { samples, config, skipped, workers } = &*job;
            let slot = Slot { config, samples: samples.len(), skipped };
            let LoaderConfig { seed, .. } = *config;
            let filled = workers.map(pace, config.indices(&order, number).to_vec(), |index| {
                slot.fill(stop, Place { seed, epoch, index }, |index| samples.sample(seed, epoch, index))
            });
            // Of several failures the first in order is reported, whichever thread was faster.
            filled.into_iter().filter_map(Result::transpose).collect()
        })
    }
}

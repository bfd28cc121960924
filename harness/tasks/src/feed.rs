//! The training set, batch by batch.

use zoo_datasets::{DataError, Loader, SampleLoader, Samples};
use zoo_recipe::{LABEL, LABEL_SHARE, MIXED_LABEL};

use crate::{Batch, Field};

/// Full batches of a training set, shuffled and varied by the recipe's seed: the same for any number of threads.
pub struct Feed {
    batches_per_epoch: usize,
    epoch: Box<dyn Fn(u64, usize) -> Result<Batches, DataError>>,
}

impl Feed {
    /// Images under this name, with their classes.
    pub(crate) fn of_images(loader: Loader, image: String) -> Self {
        let batches_per_epoch = loader.batches_per_epoch();
        let epoch = move |epoch, first| {
            let image = image.clone();
            let named = move |zoo_datasets::Batch { images, labels, n, mixed }| {
                let mut fields = vec![Field::real(image.clone(), images), Field::index(LABEL, labels)];
                if let Some(mixed) = mixed {
                    fields.extend([Field::index(MIXED_LABEL, mixed.labels), Field::real(LABEL_SHARE, mixed.shares)]);
                }
                Batch { n, fields }
            };
            let batches = loader.epoch(epoch, first)?.map(move |batch| batch.map(&named));
            Ok(Batches(Box::new(batches)))
        };
        Self { batches_per_epoch, epoch: Box::new(epoch) }
    }

    /// Samples of any kind; `join` makes a batch of them.
    pub(crate) fn of_samples<S: Samples + 'static>(
        loader: SampleLoader<S>,
        join: impl Fn(Vec<S::Sample>) -> Batch + Clone + Send + 'static,
    ) -> Self {
        let batches_per_epoch = loader.batches_per_epoch();
        let epoch = move |epoch, first| {
            let join = join.clone();
            let batches = loader.epoch(epoch, first)?.map(move |samples| samples.map(&join));
            Ok(Batches(Box::new(batches)))
        };
        Self { batches_per_epoch, epoch: Box::new(epoch) }
    }

    /// Batches per epoch.
    pub fn batches_per_epoch(&self) -> usize {
        self.batches_per_epoch
    }

    /// The batches of `epoch` from number `first` on. Batches do not depend on the position at which an epoch is
    /// entered, so an interrupted epoch can be resumed bit for bit.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn epoch(&self, epoch: u64, first: usize) -> Result<Batches, DataError> {
        (self.epoch)(epoch, first)
    }
}

/// The batches of an epoch, prepared ahead. Dropping it stops the threads.
pub struct Batches(Box<dyn Iterator<Item = Result<Batch, DataError>> + Send>);

impl Iterator for Batches {
    type Item = Result<Batch, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

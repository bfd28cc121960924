//! Batches for training and evaluation, prefetched on other threads.

mod ahead;
mod mix;
mod samples;
mod slot;
mod workers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::transforms::Pipeline;
use crate::{DataError, Dataset, OnError, Rng, Size, shuffled};

pub use ahead::Ahead;
pub use mix::{Mix, Mixed};
pub use samples::{SampleLoader, Samples};
use slot::{Place, Slot};
use workers::{Pace, Workers};

/// How a [`Loader`] forms batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoaderConfig {
    /// Samples per batch, all parts of it together.
    pub batch: usize,
    /// Shuffle in each epoch (a permutation seeded by seed and epoch); otherwise in order of index.
    pub shuffle: bool,
    /// Leave out the last batch of an epoch if it is short. Every batch then has exactly `batch` samples: with
    /// [`OnError::Skip`] the place of an unreadable sample is taken by another one, chosen by hash. Otherwise
    /// unreadable samples are simply missing from their batch, and no sample occurs twice.
    pub drop_last: bool,
    /// Seed of order and augmentation.
    pub seed: u64,
    /// Worker threads; results do not depend on it.
    pub threads: usize,
    /// Finished batches that may wait for the consumer. At most `prefetch + 2` batches are in memory.
    pub prefetch: usize,
    /// The handling of unreadable samples.
    pub on_error: OnError,
    /// Which part of each batch is loaded; other parts are loaded elsewhere.
    pub share: Share,
}

/// A part of each batch. Order and samples are those of the whole batches, however many parts there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which of the parts, from 0.
    pub part: usize,
    /// How many parts there are, equally large if the batch can be divided so.
    pub of: usize,
}

impl Share {
    /// All of it.
    pub const WHOLE: Self = Self { part: 0, of: 1 };

    /// This part of some samples.
    fn slice<T>(self, all: &[T]) -> &[T] {
        let end = |part: usize| all.len() * part / self.of;
        &all[end(self.part)..end(self.part + 1)]
    }
}

impl Default for LoaderConfig {
    fn default() -> Self {
        Self {
            batch: 32,
            shuffle: false,
            drop_last: false,
            seed: 0,
            threads: thread::available_parallelism().map_or(1, usize::from),
            prefetch: 2,
            on_error: OnError::Fail,
            share: Share::WHOLE,
        }
    }
}

impl LoaderConfig {
    fn check(&self, samples: usize) -> Result<(), DataError> {
        if self.batch == 0 || self.threads == 0 {
            let reason = format!("a batch of {} on {} threads", self.batch, self.threads);
            return Err(DataError::Config(reason));
        }
        let Share { part, of } = self.share;
        if part >= of || of > self.batch {
            return Err(DataError::Config(format!("part {part} of {of} of a batch of {}", self.batch)));
        }
        let least = if self.drop_last { self.batch } else { 1 };
        if samples < least {
            let reason = format!("{samples} samples are too few: one batch needs at least {least}");
            return Err(DataError::Config(reason));
        }
        Ok(())
    }

    /// Batches per epoch.
    fn batches(&self, samples: usize) -> usize {
        if self.drop_last { samples / self.batch } else { samples.div_ceil(self.batch) }
    }

    /// The order of samples in an epoch.
    fn order(&self, samples: usize, epoch: u64) -> Vec<usize> {
        if self.shuffle { shuffled(samples, self.seed, epoch) } else { (0..samples).collect() }
    }

    /// The samples of batch `number`, all parts of it together.
    fn whole<'a>(&self, order: &'a [usize], number: usize) -> &'a [usize] {
        &order[number * self.batch..order.len().min((number + 1) * self.batch)]
    }

    /// The samples of this part of batch `number`.
    fn indices<'a>(&self, order: &'a [usize], number: usize) -> &'a [usize] {
        self.share.slice(self.whole(order, number))
    }
}

/// Samples that go through the network together.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Images, NCHW, normalised.
    pub images: Vec<f32>,
    /// Classes, one per image.
    pub labels: Vec<u32>,
    /// Number of images; 0 if all samples of a batch that may be short were unreadable.
    pub n: usize,
    /// The second class of each image, if the loader mixes images.
    pub mixed: Option<Mixed>,
}

/// Prepares batches of a data set, in an order that depends on seed and epoch alone.
pub struct Loader {
    job: Arc<Job>,
    mix: Option<Mix>,
}

/// The shared state of the threads of a loader.
struct Job {
    dataset: Arc<dyn Dataset>,
    pipeline: Pipeline,
    config: LoaderConfig,
    /// Numbers per image.
    sample_len: usize,
    channels_height_width: [usize; 3],
    skipped: AtomicUsize,
    workers: Workers,
}

impl Loader {
    /// A loader of `dataset` through `pipeline`.
    ///
    /// # Errors
    /// If the batch or the number of threads is 0, the data set has no samples or fewer than one full batch while
    /// `drop_last` is set, the transforms leave the size of images open, or threads cannot be started.
    pub fn new(dataset: Arc<dyn Dataset>, pipeline: Pipeline, config: LoaderConfig) -> Result<Self, DataError> {
        config.check(dataset.len())?;
        let refuse = |reason: String| Err(DataError::Config(reason));
        let Some(size) = pipeline.output(dataset.image_size()) else {
            return refuse("the transforms do not fix the image size; add a resize or a crop".into());
        };
        let channels = pipeline.normalize().planes();
        let sample_len = channels * size.area();
        if sample_len.checked_mul(config.batch).is_none_or(|len| len > MAX_BATCH_LEN) {
            return refuse(format!("a batch of {} images of {size} pixels", config.batch));
        }
        let channels_height_width = [channels, size.height, size.width];
        let workers = Workers::new(config.threads)?;
        let skipped = AtomicUsize::new(0);
        let job = Job { dataset, pipeline, config, sample_len, channels_height_width, skipped, workers };
        Ok(Self { job: Arc::new(job), mix: None })
    }

    /// The same loader with the images of each batch mixed.
    ///
    /// # Errors
    /// Parameters that `mix` cannot have.
    pub fn mixing(self, mix: Mix) -> Result<Self, DataError> {
        mix.check()?;
        Ok(Self { mix: Some(mix), ..self })
    }

    /// The data set.
    pub fn dataset(&self) -> &Arc<dyn Dataset> {
        &self.job.dataset
    }

    /// The shape of one image: channels, height, width.
    pub fn image_shape(&self) -> [usize; 3] {
        self.job.channels_height_width
    }

    /// Batches per epoch.
    pub fn batches_per_epoch(&self) -> usize {
        self.job.config.batches(self.job.dataset.len())
    }

    /// Number of unreadable samples skipped or replaced so far, over all epochs.
    pub fn skipped(&self) -> usize {
        self.job.skipped.load(Ordering::Relaxed)
    }

    /// The batches of `epoch` from number `first` on. Batches do not depend on the position at which an epoch is
    /// entered, so an interrupted epoch can be resumed bit for bit.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn epoch(&self, epoch: u64, first: usize) -> Result<Batches, DataError> {
        let (job, mix) = (Arc::clone(&self.job), self.mix);
        let order = job.config.order(job.dataset.len(), epoch);
        let batches = first..self.batches_per_epoch().max(first);
        Ahead::start(batches, job.config, move |number, pace, stop| {
            let mut batch = job.batch(job.config.indices(&order, number), epoch, pace, stop)?;
            if let Some(mix) = &mix {
                job.mix(mix, &mut batch, job.config.whole(&order, number), (epoch, number), stop)?;
            }
            Ok(batch)
        })
    }
}

/// Most numbers in a batch: 16 GiB of f32.
const MAX_BATCH_LEN: usize = 4 << 30;

impl Job {
    fn batch(&self, indices: &[usize], epoch: u64, pace: Pace, stop: &AtomicBool) -> Result<Batch, DataError> {
        let mut images = vec![0.0; indices.len() * self.sample_len];
        let places = images.chunks_exact_mut(self.sample_len).zip(indices).collect();
        let labels = self.workers.map(pace, places, |(out, &index)| {
            let LoaderConfig { seed, .. } = self.config;
            let slot = Slot { config: &self.config, samples: self.dataset.len(), skipped: &self.skipped };
            slot.fill(stop, Place { seed, epoch, index }, |index| self.sample(index, epoch, out))
        });
        let mut kept = Vec::with_capacity(indices.len());
        for (slot, label) in labels.into_iter().enumerate() {
            // Of several failures the first in order is reported, whichever thread was faster.
            if let Some(label) = label? {
                images.copy_within(slot * self.sample_len..(slot + 1) * self.sample_len, kept.len() * self.sample_len);
                kept.push(label);
            }
        }
        images.truncate(kept.len() * self.sample_len);
        Ok(Batch { images, n: kept.len(), labels: kept, mixed: None })
    }

    /// Mixes each image of this part of a batch with the one before it in the `whole` batch.
    fn mix(
        &self,
        mix: &Mix,
        batch: &mut Batch,
        whole: &[usize],
        (epoch, number): (u64, usize),
        stop: &AtomicBool,
    ) -> Result<(), DataError> {
        let Share { part, of } = self.config.share;
        let first = whole.len() * part / of;
        // Other parts load the image before the first of this one; the last one of a whole batch is already here.
        let loaded = match first.checked_sub(1) {
            Some(before) => Some(self.batch(&whole[before..first], epoch, Pace::Alone, stop)?),
            None if of > 1 => Some(self.batch(&whole[whole.len() - 1..], epoch, Pace::Alone, stop)?),
            None => None,
        };
        let from = loaded.as_ref().unwrap_or(batch);
        let Some(label) = from.labels.last().copied() else { return Ok(()) };
        let image = from.images[(from.n - 1) * self.sample_len..].to_vec();
        let [_, height, width] = self.channels_height_width;
        // Samples count up from 0, batches down from the largest number.
        let mut rng = Rng::new(self.config.seed, epoch, !(number as u64));
        mix.run(Size::new(width, height), &mut rng, batch, (&image, label));
        Ok(())
    }

    /// Writes sample `index`, transformed, to `out`, and returns its class.
    fn sample(&self, index: usize, epoch: u64, out: &mut [f32]) -> Result<u32, DataError> {
        let decode_error = |source| DataError::Decode { name: self.dataset.name(index), source };
        let source = self.dataset.source(index)?;
        let mut rng = Rng::new(self.config.seed, epoch, index as u64);
        let plan = self.pipeline.plan(source.size().map_err(decode_error)?, &mut rng);
        let image = plan.run(source.decode_region(plan.region()).map_err(decode_error)?);
        let [_, height, width] = self.channels_height_width;
        if (image.width(), image.height()) != (width, height) {
            let found = image.size();
            return Err(DataError::Config(format!(
                "{}: {found} pixels after the transforms, but other images have {width}x{height}",
                self.dataset.name(index)
            )));
        }
        self.pipeline.finish(&plan, &image, out);
        Ok(self.dataset.label(index))
    }
}

/// The batches of one epoch, in order. Dropping it stops the threads.
pub type Batches = Ahead<Batch>;

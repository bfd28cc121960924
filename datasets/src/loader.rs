//! Batches for training and evaluation, prepared ahead on other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use rayon::prelude::*;

use crate::transforms::Pipeline;
use crate::{DataError, Dataset, OnError, Rng, shuffled};

/// How a [`Loader`] forms batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoaderConfig {
    /// Samples per batch.
    pub batch: usize,
    /// Shuffle anew each epoch (a permutation seeded by seed and epoch); otherwise in order of index.
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
    /// What to do about an unreadable sample.
    pub on_error: OnError,
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
        }
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
}

/// Prepares batches of a data set, in an order that depends on seed and epoch alone.
pub struct Loader {
    job: Arc<Job>,
}

/// What all threads of a loader share.
struct Job {
    dataset: Arc<dyn Dataset>,
    pipeline: Pipeline,
    config: LoaderConfig,
    /// Numbers per image.
    sample_len: usize,
    channels_height_width: [usize; 3],
    skipped: AtomicUsize,
    pool: rayon::ThreadPool,
}

impl Loader {
    /// A loader of `dataset` through `pipeline`.
    ///
    /// # Errors
    /// If the batch or the number of threads is 0, the data set has no samples or fewer than one full batch while
    /// `drop_last` is set, the transforms leave the size of images open, or threads cannot be started.
    pub fn new(dataset: Arc<dyn Dataset>, pipeline: Pipeline, config: LoaderConfig) -> Result<Self, DataError> {
        let refuse = |reason: String| Err(DataError::Config(reason));
        if config.batch == 0 || config.threads == 0 {
            return refuse(format!("a batch of {} on {} threads", config.batch, config.threads));
        }
        let least = if config.drop_last { config.batch } else { 1 };
        if dataset.len() < least {
            return refuse(format!("{} samples, but at least {least} are needed for one batch", dataset.len()));
        }
        let Some(size) = pipeline.output(dataset.image_size()) else {
            return refuse("the transforms leave the image size open; add a resize or a crop to a fixed size".into());
        };
        let sample_len = 3 * size.area();
        if sample_len.checked_mul(config.batch).is_none_or(|len| len > MAX_BATCH_LEN) {
            return refuse(format!("a batch of {} images of {size} pixels", config.batch));
        }
        let channels_height_width = [3, size.height, size.width];
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(config.threads)
            .thread_name(|i| format!("loader-{i}"))
            .build()
            .map_err(|error| DataError::Config(format!("the loader's threads: {error}")))?;
        let skipped = AtomicUsize::new(0);
        let job = Job { dataset, pipeline, config, sample_len, channels_height_width, skipped, pool };
        Ok(Self { job: Arc::new(job) })
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
        let LoaderConfig { batch, drop_last, .. } = self.job.config;
        let n = self.job.dataset.len();
        if drop_last { n / batch } else { n.div_ceil(batch) }
    }

    /// Number of unreadable samples left out or replaced so far, over all epochs.
    pub fn skipped(&self) -> usize {
        self.job.skipped.load(Ordering::Relaxed)
    }

    /// The batches of `epoch` from number `first` on. Batches do not depend on where an epoch is entered, so an
    /// interrupted one goes on bit for bit.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn epoch(&self, epoch: u64, first: usize) -> Result<Batches, DataError> {
        let job = Arc::clone(&self.job);
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = sync_channel(job.config.prefetch);
        let batches = first..self.batches_per_epoch().max(first);
        let remaining = batches.len();
        let worker = thread::Builder::new()
            .name("loader".into())
            .spawn({
                let stop = Arc::clone(&stop);
                move || job.produce(epoch, batches, &sender, &stop)
            })
            .map_err(|error| DataError::Config(format!("the loader's thread: {error}")))?;
        Ok(Batches { receiver: Some(receiver), worker: Some(worker), stop, remaining })
    }
}

/// Most numbers in a batch: 16 GiB of f32.
const MAX_BATCH_LEN: usize = 4 << 30;

impl Job {
    fn produce(
        &self,
        epoch: u64,
        batches: std::ops::Range<usize>,
        sender: &SyncSender<Result<Batch, DataError>>,
        stop: &AtomicBool,
    ) {
        let LoaderConfig { batch, shuffle, seed, .. } = self.config;
        let n = self.dataset.len();
        let order = if shuffle { shuffled(n, seed, epoch) } else { (0..n).collect() };
        for number in batches {
            let indices = &order[number * batch..n.min((number + 1) * batch)];
            let result = self.pool.install(|| self.batch(indices, epoch, stop));
            let failed = result.is_err();
            // A closed channel: the consumer is gone.
            if stop.load(Ordering::Relaxed) || sender.send(result).is_err() || failed {
                return;
            }
        }
    }

    fn batch(&self, indices: &[usize], epoch: u64, stop: &AtomicBool) -> Result<Batch, DataError> {
        let mut images = vec![0.0; indices.len() * self.sample_len];
        let labels = images
            .par_chunks_exact_mut(self.sample_len)
            .zip(indices)
            .map(|(out, &index)| if stop.load(Ordering::Relaxed) { Ok(None) } else { self.slot(index, epoch, out) })
            .collect::<Vec<_>>();
        let mut kept = Vec::with_capacity(indices.len());
        for (slot, label) in labels.into_iter().enumerate() {
            // Of several failures the first in order is reported, whichever thread was faster.
            if let Some(label) = label? {
                images.copy_within(slot * self.sample_len..(slot + 1) * self.sample_len, kept.len() * self.sample_len);
                kept.push(label);
            }
        }
        images.truncate(kept.len() * self.sample_len);
        Ok(Batch { images, n: kept.len(), labels: kept })
    }

    /// Fills one place of a batch; `None` if it stays empty.
    fn slot(&self, index: usize, epoch: u64, out: &mut [f32]) -> Result<Option<u32>, DataError> {
        let failed = match (self.sample(index, epoch, out), self.config.on_error) {
            (Ok(label), _) => return Ok(Some(label)),
            (Err(error), OnError::Fail) => return Err(error),
            (Err(error), OnError::Skip) => self.count(error),
        };
        if !self.config.drop_last {
            return Ok(None);
        }
        self.substitute(index, epoch, out, failed).map(Some)
    }

    /// Fills the place of the unreadable sample `index` with another one, chosen by seed, epoch and index.
    fn substitute(&self, index: usize, epoch: u64, out: &mut [f32], failed: DataError) -> Result<u32, DataError> {
        const ATTEMPTS: usize = 32;
        // Apart from the stream of the sample's augmentation.
        let mut rng = Rng::new(!self.config.seed, epoch, index as u64);
        let mut last = failed;
        for _ in 0..ATTEMPTS {
            match self.sample(rng.below(self.dataset.len()), epoch, out) {
                Ok(label) => return Ok(label),
                Err(error) => last = error,
            }
        }
        Err(DataError::NothingReadable { attempts: ATTEMPTS + 1, last: Box::new(last) })
    }

    fn count(&self, error: DataError) -> DataError {
        tracing::warn!("left out: {error}");
        self.skipped.fetch_add(1, Ordering::Relaxed);
        error
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
        self.pipeline.normalize().apply(&image, out);
        Ok(self.dataset.label(index))
    }
}

/// The batches of one epoch, in order. Dropping it stops the threads.
pub struct Batches {
    receiver: Option<Receiver<Result<Batch, DataError>>>,
    worker: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    remaining: usize,
}

impl Iterator for Batches {
    type Item = Result<Batch, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.remaining == 0 {
            return None;
        }
        match self.receiver.as_ref()?.recv() {
            Ok(batch) => {
                // After an error nothing follows.
                self.remaining = if batch.is_ok() { self.remaining - 1 } else { 0 };
                Some(batch)
            }
            Err(_) => {
                self.remaining = 0;
                Some(Err(DataError::Config("the loader's thread ended early".into())))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.remaining))
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A thread that waits for room in the channel gives up once the receiver is gone.
        drop(self.receiver.take());
        if let Some(worker) = self.worker.take() {
            // A panic of the worker was reported by `next`.
            let _ = worker.join();
        }
    }
}

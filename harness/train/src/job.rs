//! What is trained, and the batches that it is trained and evaluated on.

use zoo_datasets::{Loader, LoaderConfig, OnError};
use zoo_engine::Arithmetic;
use zoo_input::{DataSets, Split};
use zoo_recipe::{Recipe, ResolvedModel, schema};

use crate::{TrainError, event::GoldenVerdict};

/// What computes if no device is simulated.
pub const HOST: &str = "host";

/// A device whose arithmetic is simulated.
#[derive(Clone, Copy)]
pub struct SimulatedDevice<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where its numbers are rounded, and to what.
    pub arithmetic: &'a Arithmetic,
}

/// What is trained, on what.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The recipe.
    pub recipe: &'a Recipe,
    /// Its architecture, resolved.
    pub model: &'a ResolvedModel,
    /// Its data.
    pub data: &'a DataSets,
    /// Top-1 accuracy of a linear classifier on the same data, if it was measured: reported beside the target.
    pub linear_baseline: Option<f64>,
    /// Whether the step was proven: reported with the result.
    pub golden: GoldenVerdict,
    /// The device that computes; absent: this machine, in f32.
    pub device: Option<SimulatedDevice<'a>>,
}

impl Job<'_> {
    /// Threads that compute; as many prepare data beside them.
    pub fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.recipe.engine.threads.unwrap_or_else(cores)
    }

    /// Name of what computes.
    pub fn device_name(&self) -> &str {
        self.device.map_or(HOST, |device| device.name)
    }

    /// Samples that are evaluated together: as many as are trained together, unless there are fewer.
    pub fn eval_batch(&self) -> usize {
        self.recipe.train.batch.min(self.data.val.len().max(1))
    }

    /// Full batches of the training set, shuffled and augmented by the recipe's seed.
    ///
    /// # Errors
    /// Preprocessing that does not deliver what the network takes, or too few samples.
    pub fn train_loader(&self) -> Result<Loader, TrainError> {
        self.loader(Split::Train, self.recipe.train.batch)
    }

    /// All of the held-out set, in order.
    ///
    /// # Errors
    /// As [`Job::train_loader`].
    pub fn val_loader(&self) -> Result<Loader, TrainError> {
        self.loader(Split::Eval, self.eval_batch())
    }

    fn loader(&self, split: Split, batch: usize) -> Result<Loader, TrainError> {
        let training = split == Split::Train;
        let set = if training { &self.data.train } else { &self.data.val };
        let image = self.model.inputs.values().next();
        let image = image.ok_or_else(|| TrainError::Mismatch("the network has no input".into()))?;
        let pipeline = zoo_input::pipeline(self.recipe, split, set.image_size(), *image)?;
        let config = LoaderConfig {
            batch,
            shuffle: training,
            drop_last: training,
            seed: self.recipe.train.seed,
            threads: self.threads(),
            on_error: match self.recipe.data.on_error {
                schema::OnError::Fail => OnError::Fail,
                schema::OnError::Skip => OnError::Skip,
            },
            ..LoaderConfig::default()
        };
        Ok(Loader::new(set.clone(), pipeline, config)?)
    }
}

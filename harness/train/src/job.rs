//! A training job: the network, and the data for training and evaluation.

use candle_core::Tensor;
use zoo_datasets::{LoaderConfig, Share};
use zoo_engine::Arithmetic;
use zoo_graph::Graph;
use zoo_ranks::Ranks;
use zoo_recipe::{Recipe, ResolvedModel, schema::Whiten};
use zoo_tasks::{Baseline, DataSets, Feed};

use crate::{
    TrainError,
    event::{GoldenVerdict, HOST},
    inputs::declared,
    whiten,
};

/// A simulated device.
#[derive(Clone, Copy)]
pub struct SimulatedDevice<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its arithmetic: where numbers are rounded, and to which type.
    pub arithmetic: &'a Arithmetic,
}

/// A training job.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The recipe.
    pub recipe: &'a Recipe,
    /// Its architecture, resolved.
    pub model: &'a ResolvedModel,
    /// Its data.
    pub data: &'a DataSets,
    /// Top-1 accuracy of a linear classifier on the same data, if measured: reported with the target.
    pub linear_baseline: Option<f64>,
    /// The scores of other trivial answers on the same data: reported with the target.
    pub baselines: &'a [Baseline],
    /// Whether the step was proven: reported with the result.
    pub golden: GoldenVerdict,
    /// The simulated device; absent: this machine, in f32.
    pub device: Option<SimulatedDevice<'a>>,
}

impl Job<'_> {
    /// Number of compute threads; the same number of threads prepares data.
    pub fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.recipe.engine.threads.unwrap_or_else(cores)
    }

    /// Name of the device.
    pub fn device_name(&self) -> &str {
        self.device.map_or(HOST, |device| device.name)
    }

    /// Batch size of evaluations: that of the training, or the number of held-out samples if there are fewer.
    pub fn eval_batch(&self) -> usize {
        self.recipe.train.batch.min(self.data.samples.val_len().max(1))
    }

    /// Full batches of the training set for a step, shuffled and augmented with the recipe's seed. Each rank gets its
    /// part of a batch.
    ///
    /// # Errors
    /// Preprocessing that does not fit the inputs of the step, or too few samples.
    pub fn feed(&self, step: &Graph, ranks: &Ranks) -> Result<Feed, TrainError> {
        let share = Share { part: ranks.rank(), of: ranks.size() };
        Ok(self.data.feed(self.recipe, &declared(step), self.threads(), share)?)
    }

    /// The name and the initial value of the weight that `train.whiten` computes.
    ///
    /// # Errors
    /// Images that cannot be read, or a convolution that they do not fit.
    pub(crate) fn whitening(&self, step: &Graph, whiten: &Whiten) -> Result<(String, Tensor), TrainError> {
        let feed = self.data.samples.unvaried(self.recipe, &declared(step), self.eval_loader_config())?;
        whiten::filters(whiten, step, feed.epoch(0, 0)?)
    }

    /// How to load held-out samples: all of them in order, independent of the seed of the training.
    pub fn eval_loader_config(&self) -> LoaderConfig {
        LoaderConfig { batch: self.eval_batch(), ..zoo_tasks::loader_config(self.recipe, self.threads()) }
    }
}

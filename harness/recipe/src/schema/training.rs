//! Length and target of the training.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{InitFrom, Metric, Part, Period};

/// Batch size, length, evaluations and checkpoints of the training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// Batch size: samples per update. With simulated devices, of one device; with several processes, of all of them
    /// together.
    #[schemars(range(min = 1, max = 65536))]
    pub batch: usize,
    /// Passes over the training set; an incomplete last batch is dropped.
    #[schemars(range(min = 1, max = 100000))]
    pub epochs: usize,
    /// Seed of initialisation, sample order, augmentation and dropout.
    #[serde(default)]
    pub seed: u64,
    /// Pretrained weights and running statistics, for example of a backbone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_from: Option<InitFrom>,
    /// Modules that are trained differently: frozen, later, or with another learning rate. All other modules are
    /// trained from the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// Decay of an exponential moving average of the parameters, which evaluation uses: ema = decay*ema + (1 -
    /// decay)*parameter after each update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub ema: Option<f64>,
    /// Whether the decay of the average starts small: at update n it is at most (1 + n)/(10 + n) (`num_updates` of
    /// tf.train.ExponentialMovingAverage).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ema_warmup: bool,
    /// Whether batch normalisation uses the statistics of all processes together (PyTorch's SyncBatchNorm) instead of
    /// each process its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sync_bn: bool,
    /// How often the held-out set is evaluated; it is always evaluated at the end.
    #[serde(default = "each_epoch")]
    pub eval_every: Period,
    /// How often a checkpoint is written; one is always written at the end.
    #[serde(default = "each_epoch")]
    pub checkpoint_every: Period,
}

fn each_epoch() -> Period {
    Period::Epochs(1.0)
}

/// The target that the training has to reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The metric measured on the held-out set.
    pub metric: Metric,
    /// The value to reach, in the range of the metric; shares as a fraction or with `%`.
    pub value: f64,
    /// Further targets that have to be reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Goal>,
    /// Spread of the runs of the source (one standard deviation).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub sigma: Option<f64>,
    /// Source of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Runs that converged as expected; `zoo verdict` compares other runs with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<ReferenceRuns>,
    /// How much worse the mean of other runs may be than the mean of the reference; by default the distance of `value`
    /// from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub margin: Option<f64>,
}

/// Summary of runs of one recipe with different seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReferenceRuns {
    /// Mean of their results, in the range of the metric.
    pub mean: f64,
    /// Standard deviation of their results, with `runs - 1` in the denominator.
    #[schemars(range(min = 0))]
    pub sigma: f64,
    /// Number of runs.
    #[schemars(range(min = 2))]
    pub runs: usize,
    /// Who ran them, and where the results are published.
    pub source: String,
}

impl Target {
    /// Everything that has to be reached, the main goal first.
    pub fn goals(&self) -> impl Iterator<Item = Goal> {
        std::iter::once(Goal { metric: self.metric, value: self.value }).chain(self.also.iter().copied())
    }
}

/// A value to reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// The metric measured on the held-out set.
    pub metric: Metric,
    /// The value to reach, in the range of the metric; shares as a fraction or with `%`.
    pub value: f64,
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.metric, self.metric.format(self.value))
    }
}

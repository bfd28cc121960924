//! Length and target of the training.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{InitFrom, Metric, Part, Period};

/// Batch size, length and rhythm of the training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// Samples per update: of one device where devices are simulated, of all ranks together where several train.
    #[schemars(range(min = 1, max = 65536))]
    pub batch: usize,
    /// Passes through the training set; an incomplete last batch is left out.
    #[schemars(range(min = 1, max = 100000))]
    pub epochs: usize,
    /// Seed of initialisation, order, augmentation and dropout.
    #[serde(default)]
    pub seed: u64,
    /// Where weights and running statistics come from that do not start anew, such as a backbone's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_from: Option<InitFrom>,
    /// Modules that are trained differently from the rest: frozen, later, slower. What stands here for nothing is
    /// trained throughout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// Decay of an exponential moving average of the parameters, which evaluation uses: ema = decay*ema + (1 -
    /// decay)*parameter after each update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub ema: Option<f64>,
    /// Whether several ranks normalise over the batch of all of them together (PyTorch's SyncBatchNorm); else each over
    /// its own part.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sync_bn: bool,
    /// How often the held-out set is evaluated; the end always is.
    #[serde(default = "each_epoch")]
    pub eval_every: Period,
    /// How often a checkpoint is written; the end always is.
    #[serde(default = "each_epoch")]
    pub checkpoint_every: Period,
}

fn each_epoch() -> Period {
    Period::Epochs(1.0)
}

/// What the training has to reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The metric measured on the held-out set.
    pub metric: Metric,
    /// The value to reach, in the metric's range; shares as a fraction or with `%`.
    pub value: f64,
    /// What has to be reached as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Goal>,
    /// Spread of the source's runs (one standard deviation).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub sigma: Option<f64>,
    /// Where the value comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Runs that converged as they should, which `zoo verdict` compares others with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<ReferenceRuns>,
    /// How much worse than the reference's mean that of other runs may be; absent: as much as `value` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub margin: Option<f64>,
}

/// Runs of one recipe that differ by their seeds, in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReferenceRuns {
    /// Mean of what they reached, in the metric's range.
    pub mean: f64,
    /// Their standard deviation, with `runs - 1` in the denominator.
    #[schemars(range(min = 0))]
    pub sigma: f64,
    /// How many there were.
    #[schemars(range(min = 2))]
    pub runs: usize,
    /// Whose runs, and where the figures are found.
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
    /// The value to reach, in the metric's range; shares as a fraction or with `%`.
    pub value: f64,
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.metric, self.metric.format(self.value))
    }
}

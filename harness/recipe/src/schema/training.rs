//! Loss, update rule, length and target of the training.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Period;

/// The loss: the sum of the terms named here, at least one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// Softmax and cross entropy, mean over the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softmax_cross_entropy: Option<SoftmaxCrossEntropy>,
    /// Half the sum of squares of the parameters, as part of the forward loss (TensorFlow's l2_loss).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2: Option<L2>,
}

/// Softmax and cross entropy, mean over the batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SoftmaxCrossEntropy {
    /// Share s of the probability taken from the true class (arXiv 1512.00567, section 7).
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub label_smoothing: f64,
    /// Who gets it.
    pub smoothing_over: SmoothingOver,
}

/// Classes that label smoothing gives the share s to, of K classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SmoothingOver {
    /// s/K to each of the K classes, the true one included (PyTorch, TensorFlow).
    #[default]
    AllClasses,
    /// s/(K-1) to each class but the true one (MindSpore's migration guide).
    OtherClasses,
}

/// weight * (sum of squares)/2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct L2 {
    /// Factor; what weight decay would be called in an optimizer.
    #[schemars(range(min = 0))]
    pub weight: f64,
    /// The parameters in the sum.
    #[serde(default)]
    pub over: L2Over,
}

/// The parameters that an L2 loss sums over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum L2Over {
    /// Every trained parameter, biases and normalisations included.
    #[default]
    All,
    /// Weights of convolutions and dense layers only.
    Weights,
}

/// The update rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Optimizer {
    /// Stochastic gradient descent with momentum: v = momentum*v + (g + decay*p), p -= lr*v; v starts as the first (g +
    /// decay*p) (PyTorch's SGD).
    Sgd(Sgd),
    /// Adam (arXiv 1412.6980), decay added to the gradient (PyTorch's Adam).
    Adam(Adam),
}

impl Optimizer {
    /// Weight decay and the parameters spared from it.
    pub fn decay(&self) -> (f64, &[DecayGroup]) {
        match self {
            Self::Sgd(sgd) => (sgd.weight_decay, &sgd.no_decay),
            Self::Adam(adam) => (adam.weight_decay, &adam.no_decay),
        }
    }
}

/// Stochastic gradient descent with momentum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sgd {
    /// Share of the last velocity that is kept.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub momentum: f64,
    /// Nesterov's form: p -= lr*(g + decay*p + momentum*v) with v updated first.
    pub nesterov: bool,
    /// Share of the parameter added to its gradient.
    #[schemars(range(min = 0))]
    pub weight_decay: f64,
    /// Parameters that do not decay.
    pub no_decay: Vec<DecayGroup>,
}

/// Adam.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Adam {
    /// Decay rate of the first moment.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub beta1: f64,
    /// Decay rate of the second moment.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub beta2: f64,
    /// Added to the root of the second moment.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub eps: f64,
    /// Share of the parameter added to its gradient.
    #[schemars(range(min = 0))]
    pub weight_decay: f64,
    /// Parameters that do not decay.
    pub no_decay: Vec<DecayGroup>,
}

impl Default for Adam {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, no_decay: Vec::new() }
    }
}

/// A group of parameters spared from weight decay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecayGroup {
    /// Scale and shift of batch normalisations.
    Bn,
    /// Biases of convolutions and dense layers.
    Bias,
}

/// Batch size, length and rhythm of the training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// Samples per update, on one device.
    #[schemars(range(min = 1, max = 65536))]
    pub batch: usize,
    /// Passes through the training set; an incomplete last batch is left out.
    #[schemars(range(min = 1, max = 100000))]
    pub epochs: usize,
    /// Seed of initialisation, order, augmentation and dropout.
    #[serde(default)]
    pub seed: u64,
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
    /// What is measured on the held-out set.
    pub metric: Metric,
    /// The value to reach, as a fraction or with `%`.
    #[schemars(range(min = 0, max = 1))]
    pub value: f64,
    /// Spread of the source's runs (one standard deviation).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub sigma: Option<f64>,
    /// Where the value comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

/// What is measured on the held-out set; all are fractions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Share of samples whose class comes first.
    Top1,
    /// Share of samples whose class is among the first five.
    Top5,
}

//! How variables start: a closed set of distributions, with the names that recipes write.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Distribution that a parameter tensor is drawn from.
///
/// `fan_in` is the product of all dimensions but the first of a weight `[out, in, ...]`, `fan_out` that of all but the
/// second. The fan of a bias is that of its weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Init {
    /// N(0, gain^2/fan) (arXiv 1502.01852).
    KaimingNormal(Kaiming),
    /// U(-b, b), b = gain*sqrt(3/fan) (arXiv 1502.01852). With the defaults this is Keras' `he_uniform`, b =
    /// sqrt(6/fan_in).
    KaimingUniform(Kaiming),
    /// N(0, gain^2 * 2/(fan_in + fan_out)) (Glorot and Bengio 2010).
    XavierNormal(Xavier),
    /// U(-b, b), b = gain*sqrt(6/(fan_in + fan_out)) (Glorot and Bengio 2010).
    XavierUniform(Xavier),
    /// U(-bound, bound).
    Uniform(UniformInit),
    /// N(0, std^2).
    Normal(NormalInit),
    /// N(0, std^2), values beyond two std drawn again (TensorFlow's and MindSpore's truncated normal).
    TruncatedNormal(NormalInit),
    /// Every element the same.
    Constant(f64),
    /// U(-b, b), b = 1/sqrt(fan_in): what PyTorch gives weights and biases of convolutions and dense layers.
    TorchDefault(TorchDefault),
}

/// [`Init::TorchDefault`] has nothing to set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TorchDefault {}

/// Fan and gain of He's initialisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Kaiming {
    /// Which fan keeps its variance: `fan_in` that of activations, `fan_out` that of gradients.
    pub mode: FanMode,
    /// Gain of the nonlinearity; sqrt(2) is that of ReLU.
    #[schemars(range(min = 0))]
    pub gain: f64,
}

impl Default for Kaiming {
    fn default() -> Self {
        Self { mode: FanMode::FanIn, gain: std::f64::consts::SQRT_2 }
    }
}

/// Which fan He's initialisation divides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FanMode {
    /// Inputs per output.
    FanIn,
    /// Outputs per input.
    FanOut,
}

/// Gain of Glorot's initialisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Xavier {
    /// Gain of the nonlinearity.
    #[schemars(range(min = 0))]
    pub gain: f64,
}

impl Default for Xavier {
    fn default() -> Self {
        Self { gain: 1.0 }
    }
}

/// Half width of a uniform distribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UniformInit {
    /// Largest magnitude.
    #[schemars(range(min = 0))]
    pub bound: f64,
}

/// Spread of a normal distribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NormalInit {
    /// Standard deviation.
    #[schemars(range(min = 0))]
    pub std: f64,
}

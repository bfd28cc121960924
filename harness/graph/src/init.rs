//! Initial distributions of variables: a closed set, with the names used in recipes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Distribution of the initial values of a parameter.
///
/// For a weight `[out, in, ...]`, `fan_in` is the product of all dimensions except the first, `fan_out` the product of
/// all except the second. The fan of a bias is the fan of its weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Init {
    /// N(0, gain^2/fan) (arXiv 1502.01852).
    KaimingNormal(Kaiming),
    /// U(-b, b), b = gain*sqrt(3/fan) (arXiv 1502.01852). With the defaults, this is `he_uniform` of Keras, b =
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
    /// N(0, std^2), with values beyond two standard deviations redrawn (truncated normal of TensorFlow and MindSpore).
    TruncatedNormal(NormalInit),
    /// All elements are equal.
    Constant(f64),
    /// The first filters of a convolution copy the channels of its input, one each: 1 at the centre, 0 elsewhere.
    /// Further filters are drawn as `torch_default` (PyTorch's `dirac_` on the first filters, arXiv 2404.00498, section
    /// 3.3).
    Dirac(Dirac),
    /// U(-b, b), b = 1/sqrt(fan_in): PyTorch's default for weights and biases of convolutions and dense layers.
    TorchDefault(TorchDefault),
}

/// [`Init::Dirac`] has nothing to set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dirac {}

/// [`Init::TorchDefault`] has nothing to set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TorchDefault {}

/// Fan and gain of He initialisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Kaiming {
    /// Which fan keeps its variance: `fan_in` that of activations, `fan_out` that of gradients.
    pub mode: FanMode,
    /// Gain of the nonlinearity; sqrt(2) for ReLU.
    #[schemars(range(min = 0))]
    pub gain: f64,
}

impl Default for Kaiming {
    fn default() -> Self {
        Self { mode: FanMode::FanIn, gain: std::f64::consts::SQRT_2 }
    }
}

/// The fan that He initialisation divides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FanMode {
    /// Inputs per output.
    FanIn,
    /// Outputs per input.
    FanOut,
}

/// Gain of Glorot initialisation.
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

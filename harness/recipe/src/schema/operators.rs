//! Layers that compute. Field by field what an author writes; [`crate::resolve`] has the clean forms.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::layer::{is_yes, yes};
use super::{BnInit, Padding, Pair, Param, Size, WeightInit};

/// 2-D convolution of `[C, H, W]` with a weight `[out, C/groups, kernel h, kernel w]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Conv {
    /// Module name; required outside `sequential`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Number of filters.
    pub out: Param<Size>,
    /// Size of the window.
    pub kernel: Pair,
    /// Step of the window.
    #[serde(default = "Pair::ones")]
    pub stride: Pair,
    /// Zeros around the image.
    #[serde(default)]
    pub pad: Padding,
    /// Distance between neighbouring taps of the window.
    #[serde(default = "Pair::ones")]
    pub dilation: Pair,
    /// Number of groups that input and output channels are split in.
    #[serde(default = "one_group")]
    pub groups: Param<Size>,
    /// Whether a bias is added.
    #[serde(default = "yes")]
    pub bias: Param<bool>,
    /// How the parameters start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<WeightInit>,
}

fn one_group() -> Param<Size> {
    Param::Value(Size(1))
}

/// Zero padding as an operator of its own; zoo can fold it into the convolution that follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// Module name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Zeros around the image.
    pub size: Padding,
}

/// Batch normalisation; normalises by the biased variance, keeps the unbiased one in the running statistics (PyTorch's
/// BatchNorm2d).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bn {
    /// Module name; required outside `sequential`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Added to the variance.
    #[serde(default = "bn_eps")]
    #[schemars(range(min = 0, max = 1))]
    pub eps: f64,
    /// Share of the new batch in the running statistics (PyTorch's sense; TensorFlow and MindSpore write 1 minus this).
    #[serde(default = "bn_momentum")]
    #[schemars(range(min = 0, max = 1))]
    pub momentum: f64,
    /// How the parameters start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<BnInit>,
}

fn bn_eps() -> f64 {
    1e-5
}

fn bn_momentum() -> f64 {
    0.1
}

macro_rules! plain_layer {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Module name.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub name: Option<String>,
            /// `false` leaves the layer out.
            #[serde(default = "yes", skip_serializing_if = "is_yes")]
            pub enabled: Param<bool>,
        }
    };
}

plain_layer!(
    /// max(x, 0).
    Relu
);
plain_layer!(
    /// 1/(1 + exp(-x)).
    Sigmoid
);
plain_layer!(
    /// Logarithm of the softmax over pairs of channels.
    PairLogSoftmax
);
plain_layer!(
    /// min(max(x, 0), 6).
    Relu6
);
plain_layer!(
    /// Mean over height and width.
    GlobalAvgPool
);
plain_layer!(
    /// `[C, H, W]` to `[C*H*W]`, row-major.
    Flatten
);

/// Maximum of each window; windows outside the image count nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaxPool {
    /// Module name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Size of the window.
    pub kernel: Pair,
    /// Step of the window; the kernel if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<Pair>,
    /// Rows and columns around the image, never the maximum.
    #[serde(default)]
    pub pad: Padding,
    /// Round the output size up instead of down.
    #[serde(default)]
    pub ceil_mode: bool,
}

/// Mean of each window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AvgPool {
    /// Module name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Size of the window.
    pub kernel: Pair,
    /// Step of the window; the kernel if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<Pair>,
    /// Zeros around the image.
    #[serde(default)]
    pub pad: Padding,
    /// Round the output size up instead of down.
    #[serde(default)]
    pub ceil_mode: bool,
    /// Whether padding counts in the divisor (PyTorch: yes, TensorFlow: no).
    #[serde(default = "counted")]
    pub count_include_pad: bool,
}

fn counted() -> bool {
    true
}

/// Mean of windows chosen such that the output has a given size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveAvgPool {
    /// Module name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Height and width of the output.
    pub out: Pair,
}

/// x / (k + alpha/size * sum of squares over `size` neighbouring channels)^beta (PyTorch's LocalResponseNorm; the
/// paper's alpha is alpha/size here).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lrn {
    /// Module name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Number of neighbouring channels.
    pub size: Param<Size>,
    /// Weight of the sum of squares.
    #[serde(default = "lrn_alpha")]
    #[schemars(range(min = 0))]
    pub alpha: f64,
    /// Exponent.
    #[serde(default = "lrn_beta")]
    #[schemars(range(min = 0))]
    pub beta: f64,
    /// Added to the sum.
    #[serde(default = "lrn_k")]
    #[schemars(range(min = 0))]
    pub k: f64,
}

fn lrn_alpha() -> f64 {
    1e-4
}

fn lrn_beta() -> f64 {
    0.75
}

fn lrn_k() -> f64 {
    1.0
}

/// Dense layer with a weight `[out, in]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Module name; required outside `sequential`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Number of outputs.
    pub out: Param<Size>,
    /// Whether a bias is added.
    #[serde(default = "yes")]
    pub bias: Param<bool>,
    /// How the parameters start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<WeightInit>,
}

/// Inverted dropout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dropout {
    /// Module name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Share of elements set to zero (1 minus TensorFlow's keep probability).
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub rate: f64,
}

//! How parameters start: what a layer says, and what holds for all that say nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use zoo_graph::init::{FanMode, Init, Kaiming, NormalInit, TorchDefault, UniformInit, Xavier};

/// Start of a convolution's or dense layer's parameters; what is absent comes from `model.init`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightInit {
    /// Of the weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Init>,
    /// Of the bias.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<Init>,
}

/// Start of a batch normalisation's parameters; what is absent comes from `model.init`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BnInit {
    /// Every element of the scale. Zero on the last normalisation of a residual branch starts the block as identity
    /// (arXiv 1706.02677).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gamma: Option<f64>,
    /// Every element of the shift.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beta: Option<f64>,
}

/// Start of all parameters that their layer says nothing about. Without an entry: PyTorch's defaults (`torch_default`;
/// gamma 1, beta 0).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InitDefaults {
    /// Of convolutions.
    pub conv: WeightInit,
    /// Of dense layers.
    pub linear: WeightInit,
    /// Of batch normalisations.
    pub bn: BnInit,
}

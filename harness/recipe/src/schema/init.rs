//! How parameters start: what a layer says, and what holds for all that say nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use zoo_graph::init::{FanMode, Init, Kaiming, NormalInit, TorchDefault, UniformInit, Xavier};

/// Start of a convolution's or dense layer's parameters; what is absent comes from the block around it, then from
/// `model.init`, then from PyTorch (`torch_default`).
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

impl WeightInit {
    /// Whether it says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What this says, and for the rest what `other` says.
    pub(crate) fn or(&self, other: &Self) -> Self {
        let pick = |own: &Option<Init>, other: &Option<Init>| own.as_ref().or(other.as_ref()).cloned();
        Self { weight: pick(&self.weight, &other.weight), bias: pick(&self.bias, &other.bias) }
    }

    /// How the weight starts.
    pub fn weight(&self) -> Init {
        self.weight.clone().unwrap_or(Init::TorchDefault(TorchDefault {}))
    }

    /// How the bias starts.
    pub fn bias(&self) -> Init {
        self.bias.clone().unwrap_or(Init::TorchDefault(TorchDefault {}))
    }
}

/// Start of a batch normalisation's parameters; what is absent comes from the block around it, then from `model.init`,
/// then from PyTorch (gamma 1, beta 0).
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

impl BnInit {
    /// Whether it says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What this says, and for the rest what `other` says.
    pub(crate) fn or(&self, other: &Self) -> Self {
        Self { gamma: self.gamma.or(other.gamma), beta: self.beta.or(other.beta) }
    }
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

impl InitDefaults {
    /// Whether it says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What this says, and for the rest what `other` says.
    pub(crate) fn or(&self, other: &Self) -> Self {
        Self { conv: self.conv.or(&other.conv), linear: self.linear.or(&other.linear), bn: self.bn.or(&other.bn) }
    }
}

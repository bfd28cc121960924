//! What happens to gradients between the backward pass and the update.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens to gradients before the update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Gradients {
    /// Bounds, in the order in which they are applied; weight decay comes after them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clip: Vec<Clip>,
    /// Whether these bounds are put on gradients as the loss scale has left them, before they are divided by it. Only
    /// where `npu.loss_scale` scales the loss does it matter.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub clip_scaled: bool,
    /// A step whose loss is above this, or is not a number, updates no parameter (running statistics still move,
    /// unless the loss is not a number).
    #[schemars(extend("exclusiveMinimum" = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_loss_above: Option<f64>,
}

/// A bound on gradients.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Clip {
    /// All gradients are multiplied by min(1, bound/(norm + 1e-6)), where norm is the Euclidean norm of all of them
    /// together (PyTorch's clip_grad_norm_).
    Norm(#[schemars(extend("exclusiveMinimum" = 0))] f64),
    /// Each element is brought into [-bound, bound].
    Value(#[schemars(extend("exclusiveMinimum" = 0))] f64),
}

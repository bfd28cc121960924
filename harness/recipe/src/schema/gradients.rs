//! Processing of gradients between the backward pass and the update.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

zoo_settings::settings! {
    /// What happens to gradients before the update.
    pub struct Gradients {
        /// Gradient clipping, in the order of application, before weight decay.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub clip: Vec<Clip> = Vec::new(),
        /// Whether scaled gradients are clipped, before they are divided by the loss scale. This only matters if
        /// `npu.loss_scale` scales the loss.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub clip_scaled: bool = false,
        /// A step with a loss above this value, or with a NaN loss, updates no parameter. Running statistics are still
        /// updated, unless the loss is NaN.
        #[schemars(extend("exclusiveMinimum" = 0))]
        pub skip_loss_above?: f64,
    }
}

/// Gradient clipping.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Clip {
    /// All gradients are multiplied by min(1, bound/(norm + 1e-6)), where norm is the Euclidean norm of all of them
    /// together (PyTorch's clip_grad_norm_).
    Norm(#[schemars(extend("exclusiveMinimum" = 0))] f64),
    /// Each element is clamped to [-bound, bound].
    Value(#[schemars(extend("exclusiveMinimum" = 0))] f64),
}

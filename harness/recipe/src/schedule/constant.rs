//! One learning rate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Clock, Curve, Warmup, real};

/// One learning rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// The learning rate.
    #[schemars(range(min = 0))]
    pub base_lr: f64,
    /// Warm-up at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Warmup>,
}

impl Curve for Constant {
    fn lr(&self, _: Clock) -> f64 {
        self.base_lr
    }

    fn emit(&self) -> Vec<String> {
        vec![format!("return {}", real(self.base_lr))]
    }

    fn peak_lr(&self) -> f64 {
        self.base_lr
    }

    fn peak_lr_mut(&mut self) -> &mut f64 {
        &mut self.base_lr
    }

    fn warmup(&self) -> Option<&Warmup> {
        self.warmup.as_ref()
    }
}

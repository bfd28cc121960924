//! What padding contains.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What padding contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PadMode {
    /// Zeros.
    #[default]
    Zeros,
    /// The image, mirrored at its edge rows and columns, which are not repeated (PyTorch's ReflectionPad2d).
    Reflect,
}

impl PadMode {
    /// Whether it is the default.
    pub fn is_zeros(&self) -> bool {
        *self == Self::Zeros
    }
}

//! The size of an image.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Height and width of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ImageSize {
    /// A square.
    Square(#[schemars(range(min = 1, max = 4096))] usize),
    /// `[height, width]`.
    Rectangle([usize; 2]),
}

impl ImageSize {
    /// `[height, width]`.
    pub fn extent(self) -> [usize; 2] {
        match self {
            Self::Square(size) => [size, size],
            Self::Rectangle(extent) => extent,
        }
    }
}

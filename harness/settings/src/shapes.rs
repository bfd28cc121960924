//! Generated scenes of shapes with a class per pixel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ImageSize;

/// Generated scenes of shapes (disc, triangle, square, star) on a textured background, five classes in all. Colours do
/// not depend on the class. Values are drawn uniformly from ranges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Shapes {
    /// Training scenes.
    #[schemars(range(min = 1, max = 1000000))]
    pub train: usize,
    /// Held-out scenes.
    #[schemars(range(min = 1, max = 1000000))]
    pub val: usize,
    /// Height and width in pixels.
    pub size: ImageSize,
    /// Seed of the whole set.
    pub seed: u64,
    /// Number of shapes in a scene.
    pub shapes: [usize; 2],
    /// Radius of a shape as a share of the shorter side.
    pub radius: [f64; 2],
    /// Range of the smallest difference in luminance between a shape and its background, in levels of 0..255.
    pub contrast: [f64; 2],
    /// Number of lines drawn over the background.
    #[schemars(range(max = 1000))]
    pub strokes: usize,
    /// Range of the standard deviation of the noise, in levels of 0..255.
    pub noise: [f64; 2],
}

impl Default for Shapes {
    fn default() -> Self {
        Self {
            train: 1000,
            val: 200,
            size: ImageSize::Square(64),
            seed: 0,
            shapes: [1, 4],
            radius: [0.12, 0.26],
            contrast: [30.0, 70.0],
            strokes: 3,
            noise: [2.0, 10.0],
        }
    }
}

//! Generated scenes of shapes with boxes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ImageSize;

/// Generated scenes of shapes (disc, triangle, square, star) with their boxes, among other shapes, five classes with
/// the background. Colours do not depend on the class. Values are drawn uniformly from ranges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BoxedShapes {
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
    /// Number of objects in a scene; fewer if there is no room for them.
    pub objects: [usize; 2],
    /// Number of crosses and half discs, which are no objects.
    pub distractors: [usize; 2],
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

impl Default for BoxedShapes {
    fn default() -> Self {
        Self {
            train: 1600,
            val: 200,
            size: ImageSize::Square(96),
            seed: 0,
            objects: [1, 4],
            distractors: [0, 3],
            radius: [0.08, 0.24],
            contrast: [40.0, 90.0],
            strokes: 3,
            noise: [2.0, 10.0],
        }
    }
}

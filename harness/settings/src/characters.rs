//! Generated images of characters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rendered characters on textured backgrounds. Values are drawn uniformly from ranges, per sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Characters {
    /// Number of classes: the first characters of `0`..`9`, `A`..`Z`.
    #[schemars(range(min = 2, max = 36))]
    pub classes: usize,
    /// Training samples.
    #[schemars(range(min = 1, max = 1000000))]
    pub train: usize,
    /// Held-out samples.
    #[schemars(range(min = 1, max = 1000000))]
    pub val: usize,
    /// Height and width in pixels.
    #[schemars(range(min = 16, max = 512))]
    pub size: usize,
    /// Seed of the whole set.
    pub seed: u64,
    /// Height of the font as a share of the image.
    pub font: [f64; 2],
    /// Largest shift from the centre as a share of the image.
    #[schemars(range(min = 0, max = 0.5))]
    pub shift: f64,
    /// Largest rotation in either direction, in degrees.
    #[schemars(range(min = 0, max = 180))]
    pub rotation: f64,
    /// Largest shear in either direction.
    #[schemars(range(min = 0, max = 1))]
    pub shear: f64,
    /// Range of the horizontal scale.
    pub stretch: [f64; 2],
    /// Range of the smallest difference in luminance between character and background, in levels of 0..255.
    pub contrast: [f64; 2],
    /// Largest number of lines drawn over the image.
    #[schemars(range(max = 20))]
    pub strokes: usize,
    /// Range of the standard deviation of the blur, in pixels at size 64.
    pub blur: [f64; 2],
    /// Range of the standard deviation of the noise, in levels of 0..255.
    pub noise: [f64; 2],
}

impl Default for Characters {
    fn default() -> Self {
        Self {
            classes: 10,
            train: 8000,
            val: 1000,
            size: 64,
            seed: 0,
            font: [0.59, 0.88],
            shift: 0.08,
            rotation: 10.0,
            shear: 0.15,
            stretch: [0.85, 1.15],
            contrast: [60.0, 100.0],
            strokes: 3,
            blur: [0.0, 1.2],
            noise: [2.0, 10.0],
        }
    }
}

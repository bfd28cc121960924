//! Generated scenes with text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ImageSize;

/// Generated scenes: words in several fonts, bent or in perspective, among other shapes. Lengths are in pixels for a
/// scene of 192 pixels and scale with its shorter side. Values are drawn uniformly from ranges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextScenes {
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
    /// Number of words in a scene.
    pub words: [usize; 2],
    /// Size of an em.
    pub font: [f64; 2],
    /// Standard deviation of the rotation, in degrees.
    #[schemars(range(min = 0, max = 90))]
    pub rotation: f64,
    /// Share of the words that follow an arc.
    #[schemars(range(min = 0, max = 1))]
    pub bent: f64,
    /// Range of the smallest difference in luminance between a word and its background, in levels of 0..255.
    pub contrast: [f64; 2],
    /// Share of the scenes without any text.
    #[schemars(range(min = 0, max = 1))]
    pub empty: f64,
    /// Share of the scenes with a word that is too small to read and must be ignored.
    #[schemars(range(min = 0, max = 1))]
    pub illegible: f64,
    /// Number of shapes that are not text.
    pub distractors: [usize; 2],
    /// Range of the standard deviation of the noise, in levels of 0..255.
    pub noise: [f64; 2],
}

impl Default for TextScenes {
    fn default() -> Self {
        Self {
            train: 1500,
            val: 100,
            size: ImageSize::Square(192),
            seed: 0,
            words: [1, 5],
            font: [16.0, 34.0],
            rotation: 12.0,
            bent: 0.15,
            contrast: [45.0, 90.0],
            empty: 0.02,
            illegible: 0.1,
            distractors: [3, 9],
            noise: [2.0, 10.0],
        }
    }
}

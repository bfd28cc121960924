//! Generated scenes with text.

use super::ImageSize;

settings! {
    /// Generated scenes: words in several fonts, bent or in perspective, among other shapes. Lengths are in pixels for
    /// a scene of 192 pixels and scale with its shorter side. Values are drawn uniformly from ranges.
    pub struct TextScenes {
        /// Training scenes.
        #[schemars(range(min = 1, max = 1000000))]
        pub train: usize = 1500,
        /// Held-out scenes.
        #[schemars(range(min = 1, max = 1000000))]
        pub val: usize = 100,
        /// Height and width in pixels.
        pub size: ImageSize = ImageSize::Square(192),
        /// Seed of the whole set.
        pub seed: u64 = 0,
        /// Number of words in a scene.
        pub words: [usize; 2] = [1, 5],
        /// Size of an em.
        pub font: [f64; 2] = [16.0, 34.0],
        /// Standard deviation of the rotation, in degrees.
        #[schemars(range(min = 0, max = 90))]
        pub rotation: f64 = 12.0,
        /// Share of the words that follow an arc.
        #[schemars(range(min = 0, max = 1))]
        pub bent: f64 = 0.15,
        /// Range of the smallest difference in luminance between a word and its background, in levels of 0..255.
        pub contrast: [f64; 2] = [45.0, 90.0],
        /// Share of the scenes without any text.
        #[schemars(range(min = 0, max = 1))]
        pub empty: f64 = 0.02,
        /// Share of the scenes with a word that is too small to read and must be ignored.
        #[schemars(range(min = 0, max = 1))]
        pub illegible: f64 = 0.1,
        /// Number of shapes that are not text.
        pub distractors: [usize; 2] = [3, 9],
        /// Range of the standard deviation of the noise, in levels of 0..255.
        pub noise: [f64; 2] = [2.0, 10.0],
    }
}

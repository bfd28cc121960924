//! Generated scenes of shapes with a class per pixel.

use super::ImageSize;

settings! {
    /// Generated scenes of shapes (disc, triangle, square, star) on a textured background, five classes in all. Colours
    /// do not depend on the class. Values are drawn uniformly from ranges.
    pub struct Shapes {
        /// Training scenes.
        #[schemars(range(min = 1, max = 1000000))]
        pub train: usize = 1000,
        /// Held-out scenes.
        #[schemars(range(min = 1, max = 1000000))]
        pub val: usize = 200,
        /// Height and width in pixels.
        pub size: ImageSize = ImageSize::Square(64),
        /// Seed of the whole set.
        pub seed: u64 = 0,
        /// Number of shapes in a scene.
        pub shapes: [usize; 2] = [1, 4],
        /// Radius of a shape as a share of the shorter side.
        pub radius: [f64; 2] = [0.12, 0.26],
        /// Range of the smallest difference in luminance between a shape and its background, in levels of 0..255.
        pub contrast: [f64; 2] = [30.0, 70.0],
        /// Number of lines drawn over the background.
        #[schemars(range(max = 1000))]
        pub strokes: usize = 3,
        /// Range of the standard deviation of the noise, in levels of 0..255.
        pub noise: [f64; 2] = [2.0, 10.0],
    }
}

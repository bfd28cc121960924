//! Generated scenes of shapes with boxes.

use super::ImageSize;

settings! {
    /// Generated scenes of shapes (disc, triangle, square, star) with their boxes, among other shapes, five classes
    /// with the background. Colours do not depend on the class. Values are drawn uniformly from ranges.
    pub struct BoxedShapes {
        /// Training scenes.
        #[schemars(range(min = 1, max = 1000000))]
        pub train: usize = 1600,
        /// Held-out scenes.
        #[schemars(range(min = 1, max = 1000000))]
        pub val: usize = 200,
        /// Height and width in pixels.
        pub size: ImageSize = ImageSize::Square(96),
        /// Seed of the whole set.
        pub seed: u64 = 0,
        /// Number of objects in a scene; fewer if there is no room for them.
        pub objects: [usize; 2] = [1, 4],
        /// Number of crosses and half discs, which are no objects.
        pub distractors: [usize; 2] = [0, 3],
        /// Radius of a shape as a share of the shorter side.
        pub radius: [f64; 2] = [0.08, 0.24],
        /// Range of the smallest difference in luminance between a shape and its background, in levels of 0..255.
        pub contrast: [f64; 2] = [40.0, 90.0],
        /// Number of lines drawn over the background.
        #[schemars(range(max = 1000))]
        pub strokes: usize = 3,
        /// Range of the standard deviation of the noise, in levels of 0..255.
        pub noise: [f64; 2] = [2.0, 10.0],
    }
}

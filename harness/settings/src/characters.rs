//! Generated images of characters.

settings! {
    /// Rendered characters on textured backgrounds. Values are drawn uniformly from ranges, per sample.
    pub struct Characters {
        /// Number of classes: the first characters of `0`..`9`, `A`..`Z`.
        #[schemars(range(min = 2, max = 36))]
        pub classes: usize = 10,
        /// Training samples.
        #[schemars(range(min = 1, max = 1000000))]
        pub train: usize = 8000,
        /// Held-out samples.
        #[schemars(range(min = 1, max = 1000000))]
        pub val: usize = 1000,
        /// Height and width in pixels.
        #[schemars(range(min = 16, max = 512))]
        pub size: usize = 64,
        /// Seed of the whole set.
        pub seed: u64 = 0,
        /// Height of the font as a share of the image.
        pub font: [f64; 2] = [0.59, 0.88],
        /// Largest shift from the centre as a share of the image.
        #[schemars(range(min = 0, max = 0.5))]
        pub shift: f64 = 0.08,
        /// Largest rotation in either direction, in degrees.
        #[schemars(range(min = 0, max = 180))]
        pub rotation: f64 = 10.0,
        /// Largest shear in either direction.
        #[schemars(range(min = 0, max = 1))]
        pub shear: f64 = 0.15,
        /// Range of the horizontal scale.
        pub stretch: [f64; 2] = [0.85, 1.15],
        /// Range of the smallest difference in luminance between character and background, in levels of 0..255.
        pub contrast: [f64; 2] = [60.0, 100.0],
        /// Largest number of lines drawn over the image.
        #[schemars(range(max = 20))]
        pub strokes: usize = 3,
        /// Range of the standard deviation of the blur, in pixels at size 64.
        pub blur: [f64; 2] = [0.0, 1.2],
        /// Range of the standard deviation of the noise, in levels of 0..255.
        pub noise: [f64; 2] = [2.0, 10.0],
    }
}

//! Generated videos of a moving target.

settings! {
    /// Generated videos: a textured object that moves, rotates, grows, changes its shape and is sometimes partly
    /// hidden, among similar objects. Values are drawn uniformly from ranges.
    pub struct Videos {
        /// Training videos, with one pair of each per epoch.
        #[schemars(range(min = 2, max = 1000000))]
        pub train: usize = 2000,
        /// Held-out videos, with one pair of each for evaluation.
        #[schemars(range(min = 1, max = 1000000))]
        pub val: usize = 200,
        /// Held-out videos that are tracked from the first frame to the last.
        #[schemars(range(min = 1, max = 10000))]
        pub sequences: usize = 20,
        /// Number of frames of a video.
        #[schemars(range(min = 2, max = 10000))]
        pub frames: usize = 20,
        /// Height and width of a frame in pixels.
        #[schemars(range(min = 32, max = 2048))]
        pub size: usize = 360,
        /// Seed of the whole set.
        pub seed: u64 = 0,
        /// Mean radius of objects, in pixels.
        pub radius: [f64; 2] = [22.0, 42.0],
        /// Speed, in pixels per frame.
        pub speed: [f64; 2] = [0.0, 5.0],
        /// Largest amplitude of the waves along the outline of an object, relative to its radius.
        #[schemars(range(min = 0, max = 0.3))]
        pub waves: f64 = 0.3,
        /// Number of other objects in the scene; the first has almost the colours of the target.
        pub distractors: [usize; 2] = [1, 3],
        /// Share of the videos in which a bar sometimes hides parts of the target.
        #[schemars(range(min = 0, max = 1))]
        pub occluded: f64 = 0.3,
    }
}

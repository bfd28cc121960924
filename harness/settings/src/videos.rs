//! Generated videos of a moving target.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Generated videos: a textured object that moves, rotates, grows, changes its shape and is sometimes partly hidden,
/// among similar objects. Values are drawn uniformly from ranges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Videos {
    /// Training videos, with one pair of each per epoch.
    #[schemars(range(min = 2, max = 1000000))]
    pub train: usize,
    /// Held-out videos, with one pair of each for evaluation.
    #[schemars(range(min = 1, max = 1000000))]
    pub val: usize,
    /// Held-out videos that are tracked from the first frame to the last.
    #[schemars(range(min = 1, max = 10000))]
    pub sequences: usize,
    /// Number of frames of a video.
    #[schemars(range(min = 2, max = 10000))]
    pub frames: usize,
    /// Height and width of a frame in pixels.
    #[schemars(range(min = 32, max = 2048))]
    pub size: usize,
    /// Seed of the whole set.
    pub seed: u64,
    /// Mean radius of objects, in pixels.
    pub radius: [f64; 2],
    /// Speed, in pixels per frame.
    pub speed: [f64; 2],
    /// Largest amplitude of the waves along the outline of an object, relative to its radius.
    #[schemars(range(min = 0, max = 0.3))]
    pub waves: f64,
    /// Number of other objects in the scene; the first has almost the colours of the target.
    pub distractors: [usize; 2],
    /// Share of the videos in which a bar sometimes hides parts of the target.
    #[schemars(range(min = 0, max = 1))]
    pub occluded: f64,
}

impl Default for Videos {
    fn default() -> Self {
        Self {
            train: 2000,
            val: 200,
            sequences: 20,
            frames: 20,
            size: 360,
            seed: 0,
            radius: [22.0, 42.0],
            speed: [0.0, 5.0],
            waves: 0.3,
            distractors: [1, 3],
            occluded: 0.3,
        }
    }
}

//! Images with a class per pixel.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ImageSize;

/// Generated scenes of shapes (disc, triangle, square, star) on a textured background, five classes in all. Colours say
/// nothing about the class. Ranges are drawn from uniformly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Shapes {
    /// Scenes to train on.
    #[schemars(range(min = 1, max = 1000000))]
    pub train: usize,
    /// Scenes held out.
    #[schemars(range(min = 1, max = 1000000))]
    pub val: usize,
    /// Height and width in pixels.
    pub size: ImageSize,
    /// Seed of the whole set.
    pub seed: u64,
    /// Shapes in a scene.
    pub shapes: [usize; 2],
    /// Radius of a shape as a share of the shorter side.
    pub radius: [f64; 2],
    /// Range of the smallest difference in luminance between a shape and what is behind it, in levels of 0..255.
    pub contrast: [f64; 2],
    /// Strokes drawn over the background.
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

/// Photographs with label maps: `train/images` with `train/labels` (PNG files of the same names) and their `val` parts,
/// or PASCAL VOC's `JPEGImages`, `SegmentationClass` and `ImageSets/Segmentation`. The indices of a palette, or grey
/// levels, are the classes; 255 is none. `classes.txt`, if there is one, has a name per line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelMaps {
    /// Folder that holds the layout; `--data` replaces it.
    pub root: PathBuf,
}

/// From an image with a label map to what a network is trained on (torchvision's `references/segmentation`). The step's
/// inputs are the image and `label`, a class per pixel, 255 where there is none. Training takes a random part of the
/// network's size out of the resized image; evaluation scales the whole image into it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LabelMapPreparation {
    /// Range of the length of the shorter side in training, in pixels; absent: half to twice the network's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shorter: Option<[usize; 2]>,
    /// Probability of mirroring in training.
    #[schemars(range(min = 0, max = 1))]
    pub flip: f64,
}

impl Default for LabelMapPreparation {
    fn default() -> Self {
        Self { shorter: None, flip: 0.5 }
    }
}

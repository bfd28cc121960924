//! Data, preparation and detection of text in images.

use std::path::PathBuf;

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

/// Photographs with annotated text, in one of the published layouts: `train_images` with `train_gts`,
/// `ch4_training_images` with `ch4_training_localization_transcription_gt`, `Images/Train` with
/// `Groundtruth/Polygon/Train`, `images` with `gts`, and their test parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TextFolder {
    /// Folder with one of these layouts; `--data` replaces it.
    pub root: PathBuf,
    /// Format of annotation files.
    #[serde(default)]
    pub format: TextFormat,
}

/// Format of annotation files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TextFormat {
    /// `x1,y1,x2,y2,x3,y3,x4,y4,text`; `###` is ignored.
    #[default]
    Icdar2015,
    /// Polygons of any number of corners, `x1,y1,...,xn,yn,text` or the original `x: [[...]], y: [[...]]`; `#` is
    /// ignored.
    TotalText,
}

/// From an annotated image to a training sample of DB (arXiv 1911.08947, section 3.4 and 4.2). The inputs of the step
/// are the image, `gt` (1 in shrunken text), `mask` (0 where text is ignored), `thresh_map` and `thresh_mask`. All of
/// them have the input size of the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextPreparation {
    /// Probability of a horizontal flip in training.
    #[schemars(range(min = 0, max = 1))]
    pub flip: f64,
    /// Range of the rotation in training, in degrees.
    pub rotation: [f64; 2],
    /// Range of the scale in training.
    pub scale: [f64; 2],
    /// Whether to crop a random part without cutting text; otherwise the whole image is scaled to the input of the
    /// network.
    pub crop: bool,
    /// Largest change of brightness in training, relative to the full range.
    #[schemars(range(min = 0, max = 1))]
    pub brightness: f64,
    /// Largest relative change of contrast in training.
    #[schemars(range(min = 0, max = 1))]
    pub contrast: f64,
    /// Ratio r by which text is shrunk: its outline moves by area*(1 - r^2)/perimeter.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub shrink_ratio: f64,
    /// Range of the threshold map.
    pub threshold: [f64; 2],
    /// Smaller text (width or height in pixels) is ignored in training.
    #[schemars(range(min = 0))]
    pub min_size: f64,
    /// Height of an image in evaluation; the width is proportional, rounded to a multiple of 32. By default images are
    /// scaled to the input of the network.
    #[schemars(range(min = 32, max = 4096))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval_height: Option<usize>,
}

impl Default for TextPreparation {
    /// As DB's authors train.
    fn default() -> Self {
        Self {
            flip: 0.5,
            rotation: [-10.0, 10.0],
            scale: [0.5, 3.0],
            crop: true,
            brightness: 0.0,
            contrast: 0.0,
            shrink_ratio: 0.4,
            threshold: [0.3, 0.7],
            min_size: 8.0,
            eval_height: None,
        }
    }
}

/// How text is detected in a probability map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextDetection {
    /// Output of the model: probabilities `[1, H, W]`.
    pub probability: String,
    /// Pixels above this probability belong to text.
    #[schemars(range(min = 0, max = 1))]
    pub threshold: f64,
    /// Smallest mean probability inside a detection.
    #[schemars(range(min = 0, max = 1))]
    pub min_score: f64,
    /// Largest number of candidate outlines.
    #[schemars(range(min = 1, max = 100000))]
    pub max_candidates: usize,
    /// Smallest length of the shorter side before expansion, in pixels of the map; after expansion it is 2 more.
    #[schemars(range(min = 0))]
    pub min_side: f64,
    /// Rectangles, or polygons for bent text.
    pub shape: TextShape,
    /// Outlines are expanded by area*unclip/perimeter; by default 1.5 for boxes, 2 for polygons.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unclip: Option<f64>,
}

impl Default for TextDetection {
    /// As DB's authors evaluate on ICDAR 2015.
    fn default() -> Self {
        Self {
            probability: "binary".into(),
            threshold: 0.3,
            min_score: 0.6,
            max_candidates: 1000,
            min_side: 3.0,
            shape: TextShape::Box,
            unclip: None,
        }
    }
}

/// Shape of detected text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TextShape {
    /// The rectangle with the smallest area, at any angle.
    #[default]
    Box,
    /// A polygon of any shape.
    Polygon,
}

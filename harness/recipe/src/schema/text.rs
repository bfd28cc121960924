//! Data, preparation and detection of text in images.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ImageSize;

/// Generated scenes: words in several faces, bent or in perspective, among shapes that are no text. Lengths are pixels
/// of a scene of 192 and grow with its shorter side; ranges are drawn from uniformly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextScenes {
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
    /// Words in a scene.
    pub words: [usize; 2],
    /// Size of an em.
    pub font: [f64; 2],
    /// Standard deviation of the rotation, in degrees.
    #[schemars(range(min = 0, max = 90))]
    pub rotation: f64,
    /// Share of the words that follow an arc.
    #[schemars(range(min = 0, max = 1))]
    pub bent: f64,
    /// Range of the smallest difference in luminance between a word and what is behind it, in levels of 0..255.
    pub contrast: [f64; 2],
    /// Share of the scenes without any text.
    #[schemars(range(min = 0, max = 1))]
    pub empty: f64,
    /// Share of the scenes with a word too small to read, which is to be ignored.
    #[schemars(range(min = 0, max = 1))]
    pub illegible: f64,
    /// Shapes that are no text.
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
    /// Folder that holds the layout; `--data` replaces it.
    pub root: PathBuf,
    /// What annotation files look like.
    #[serde(default)]
    pub format: TextFormat,
}

/// What annotation files look like.
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

/// From an annotated image to what DB is trained on (arXiv 1911.08947, section 3.4 and 4.2). The step's inputs are the
/// image, `gt` (1 in shrunken text), `mask` (0 where text is ignored), `thresh_map` and `thresh_mask`. Everything is
/// brought to the network's size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextPreparation {
    /// Probability of mirroring in training.
    #[schemars(range(min = 0, max = 1))]
    pub flip: f64,
    /// Range of the rotation in training, in degrees.
    pub rotation: [f64; 2],
    /// Range of the scale in training.
    pub scale: [f64; 2],
    /// Cut out a random part that keeps text whole; otherwise the whole image is scaled into the network's input.
    pub crop: bool,
    /// Largest change of brightness in training, as a part of the full range.
    #[schemars(range(min = 0, max = 1))]
    pub brightness: f64,
    /// Largest change of contrast in training, as a factor's distance from 1.
    #[schemars(range(min = 0, max = 1))]
    pub contrast: f64,
    /// Part r of a text's size that remains: its outline moves by area*(1 - r^2)/perimeter.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub shrink_ratio: f64,
    /// Range of the threshold map.
    pub threshold: [f64; 2],
    /// Text that is less wide or high, in pixels, is ignored in training.
    #[schemars(range(min = 0))]
    pub min_size: f64,
    /// Rows of an image in evaluation, columns in proportion to the next multiple of 32; absent: images are scaled into
    /// the network's input.
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

/// How text is read off a probability map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextDetection {
    /// Output of the model: probabilities `[1, H, W]`.
    pub probability: String,
    /// Pixels above this probability belong to text.
    #[schemars(range(min = 0, max = 1))]
    pub threshold: f64,
    /// Least mean probability inside a detection.
    #[schemars(range(min = 0, max = 1))]
    pub min_score: f64,
    /// Most outlines that are looked at.
    #[schemars(range(min = 1, max = 100000))]
    pub max_candidates: usize,
    /// Least length of the shorter side before growing, in pixels of the map; afterwards it is 2 more.
    #[schemars(range(min = 0))]
    pub min_side: f64,
    /// Rectangles, or polygons for bent text.
    pub shape: TextShape,
    /// Outlines grow by area*unclip/perimeter; absent: 1.5 for boxes, 2 for polygons.
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

/// What outlines of text are reduced to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TextShape {
    /// The rectangle of least area, at any angle.
    #[default]
    Box,
    /// A polygon of any shape.
    Polygon,
}

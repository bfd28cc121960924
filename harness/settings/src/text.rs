//! Preparation and detection of text in images.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

settings! {
    // Defaults: As DB's authors train.
    /// From an annotated image to a training sample of DB (arXiv 1911.08947, section 3.4 and 4.2). The inputs of the
    /// step are the image, `gt` (1 in shrunken text), `mask` (0 where text is ignored), `thresh_map` and `thresh_mask`.
    /// All of them have the input size of the network.
    pub struct TextPreparation {
        /// Probability of a horizontal flip in training.
        #[schemars(range(min = 0, max = 1))]
        pub flip: f64 = 0.5,
        /// Range of the rotation in training, in degrees.
        pub rotation: [f64; 2] = [-10.0, 10.0],
        /// Range of the scale in training.
        pub scale: [f64; 2] = [0.5, 3.0],
        /// Whether to crop a random part without cutting text; otherwise the whole image is scaled to the input of the
        /// network.
        pub crop: bool = true,
        /// Largest change of brightness in training, relative to the full range.
        #[schemars(range(min = 0, max = 1))]
        pub brightness: f64 = 0.0,
        /// Largest relative change of contrast in training.
        #[schemars(range(min = 0, max = 1))]
        pub contrast: f64 = 0.0,
        /// Ratio r by which text is shrunk: its outline moves by area*(1 - r^2)/perimeter.
        #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
        pub shrink_ratio: f64 = 0.4,
        /// Range of the threshold map.
        pub threshold: [f64; 2] = [0.3, 0.7],
        /// Smaller text (width or height in pixels) is ignored in training.
        #[schemars(range(min = 0))]
        pub min_size: f64 = 8.0,
        /// Height of an image in evaluation; the width is proportional, rounded to a multiple of 32. By default images
        /// are scaled to the input of the network.
        #[schemars(range(min = 32, max = 4096))]
        pub eval_height?: usize,
    }
}

settings! {
    // Defaults: As DB's authors evaluate on ICDAR 2015.
    /// How text is detected in a probability map.
    pub struct TextDetection {
        /// Output of the model: probabilities `[1, H, W]`.
        pub probability: String = "binary".into(),
        /// Pixels above this probability belong to text.
        #[schemars(range(min = 0, max = 1))]
        pub threshold: f64 = 0.3,
        /// Smallest mean probability inside a detection.
        #[schemars(range(min = 0, max = 1))]
        pub min_score: f64 = 0.6,
        /// Largest number of candidate outlines.
        #[schemars(range(min = 1, max = 100000))]
        pub max_candidates: usize = 1000,
        /// Smallest length of the shorter side before expansion, in pixels of the map; after expansion it is 2 more.
        #[schemars(range(min = 0))]
        pub min_side: f64 = 3.0,
        /// Rectangles, or polygons for bent text.
        pub shape: TextShape = TextShape::Box,
        /// Outlines are expanded by area*unclip/perimeter; by default 1.5 for boxes, 2 for polygons.
        #[schemars(range(min = 0))]
        pub unclip?: f64,
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

//! Preparation of pairs of frames, and tracking.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// From two frames of a video to a training sample of SiamMask: a template, a search image and their labels. The inputs
/// of the step are `template`, `search`, `label_cls`, `label_loc`, `label_loc_weight`, `label_mask` and
/// `label_mask_weight`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PairPreparation {
    /// Anchor boxes.
    pub anchors: Anchors,
    /// Largest number of frames between template and search image.
    pub frame_range: usize,
    /// Augmentation of templates.
    pub template: CropVariation,
    /// Augmentation of search images.
    pub search: CropVariation,
    /// Share of the pairs without colour.
    #[schemars(range(min = 0, max = 1))]
    pub grey: f64,
    /// Share of the pairs with a search image from another video.
    #[schemars(range(min = 0, max = 1))]
    pub negative: f64,
    /// Share of the pairs that are flipped horizontally.
    #[schemars(range(min = 0, max = 1))]
    pub flip: f64,
    /// Share of the pairs with permuted colour channels.
    #[schemars(range(min = 0, max = 1))]
    pub permute: f64,
    /// Anchors that overlap the target by more are positive.
    #[schemars(range(min = 0, max = 1))]
    pub positive_iou: f64,
    /// Anchors that overlap the target by less are negative.
    #[schemars(range(min = 0, max = 1))]
    pub negative_iou: f64,
    /// Largest number of positive anchors of a pair.
    pub positives: usize,
    /// Largest number of labelled anchors of a pair.
    pub labelled: usize,
}

impl Default for PairPreparation {
    /// As SiamMask's authors train the base stage.
    fn default() -> Self {
        Self {
            anchors: Anchors::default(),
            frame_range: 100,
            template: CropVariation { shift: 4.0, scale: 0.05, blur: 0.0, colour: true },
            search: CropVariation { shift: 64.0, scale: 0.18, blur: 0.18, colour: true },
            grey: 0.25,
            negative: 0.2,
            flip: 0.0,
            permute: 0.0,
            positive_iou: 0.6,
            negative_iou: 0.3,
            positives: 16,
            labelled: 64,
        }
    }
}

/// Anchor boxes at every position of the output of the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Anchors {
    /// Distance between adjacent positions, in pixels of the search image.
    #[schemars(range(min = 1, max = 128))]
    pub stride: usize,
    /// Height divided by width.
    pub ratios: Vec<f64>,
    /// Sizes: an anchor of ratio 1 has sides of scale*stride.
    pub scales: Vec<f64>,
}

impl Default for Anchors {
    fn default() -> Self {
        Self { stride: 8, ratios: vec![0.33, 0.5, 1.0, 2.0, 3.0], scales: vec![8.0] }
    }
}

/// Augmentation of a crop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CropVariation {
    /// Largest shift in each direction, in pixels of the crop.
    #[schemars(range(min = 0))]
    pub shift: f64,
    /// Largest relative change of each side.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub scale: f64,
    /// Probability of blurring.
    #[schemars(range(min = 0, max = 1))]
    pub blur: f64,
    /// Shift all pixels by a random colour.
    pub colour: bool,
}

/// How a target is tracked with the outputs of the network. The sizes of template and search image are those of the
/// inputs `template` and `search` of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tracking {
    /// Output of the model: log-probabilities `[A, H, W, 2]`, background before target.
    pub class: String,
    /// Output of the model: boxes `[4A, H, W]`.
    pub boxes: String,
    /// Output of the model: mask logits `[M*M, H, W]`.
    pub mask: String,
    /// Penalty for changes of size and shape.
    #[schemars(range(min = 0))]
    pub penalty: f64,
    /// Weight of the cosine window relative to the score.
    #[schemars(range(min = 0, max = 1))]
    pub window_influence: f64,
    /// How fast the size follows a confident detection.
    #[schemars(range(min = 0, max = 1))]
    pub rate: f64,
    /// Pixels above this probability belong to the target.
    #[schemars(range(min = 0, max = 1))]
    pub mask_threshold: f64,
}

impl Default for Tracking {
    /// As SiamMask's authors track with the base stage on VOT.
    fn default() -> Self {
        Self {
            class: "cls".into(),
            boxes: "loc".into(),
            mask: "mask".into(),
            penalty: 0.09,
            window_influence: 0.39,
            rate: 0.38,
            mask_threshold: 0.3,
        }
    }
}

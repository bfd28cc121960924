//! Preparation of pairs of frames, and tracking.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

settings! {
    // Defaults: As SiamMask's authors train the base stage.
    /// From two frames of a video to a training sample of SiamMask: a template, a search image and their labels. The
    /// inputs of the step are `template`, `search`, `label_cls`, `label_loc`, `label_loc_weight`, `label_mask` and
    /// `label_mask_weight`.
    pub struct PairPreparation {
        /// Anchor boxes.
        pub anchors: Anchors = Anchors::default(),
        /// Largest number of frames between template and search image.
        pub frame_range: usize = 100,
        /// Augmentation of templates.
        pub template: CropVariation = CropVariation { shift: 4.0, scale: 0.05, blur: 0.0, colour: true },
        /// Augmentation of search images.
        pub search: CropVariation = CropVariation { shift: 64.0, scale: 0.18, blur: 0.18, colour: true },
        /// Share of the pairs without colour.
        #[schemars(range(min = 0, max = 1))]
        pub grey: f64 = 0.25,
        /// Share of the pairs with a search image from another video.
        #[schemars(range(min = 0, max = 1))]
        pub negative: f64 = 0.2,
        /// Share of the pairs that are flipped horizontally.
        #[schemars(range(min = 0, max = 1))]
        pub flip: f64 = 0.0,
        /// Share of the pairs with permuted colour channels.
        #[schemars(range(min = 0, max = 1))]
        pub permute: f64 = 0.0,
        /// Anchors that overlap the target by more are positive.
        #[schemars(range(min = 0, max = 1))]
        pub positive_iou: f64 = 0.6,
        /// Anchors that overlap the target by less are negative.
        #[schemars(range(min = 0, max = 1))]
        pub negative_iou: f64 = 0.3,
        /// Largest number of positive anchors of a pair.
        pub positives: usize = 16,
        /// Largest number of labelled anchors of a pair.
        pub labelled: usize = 64,
    }
}

settings! {
    /// Anchor boxes at every position of the output of the network.
    pub struct Anchors {
        /// Distance between adjacent positions, in pixels of the search image.
        #[schemars(range(min = 1, max = 128))]
        pub stride: usize = 8,
        /// Height divided by width.
        pub ratios: Vec<f64> = vec![0.33, 0.5, 1.0, 2.0, 3.0],
        /// Sizes: an anchor of ratio 1 has sides of scale*stride.
        pub scales: Vec<f64> = vec![8.0],
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

settings! {
    // Defaults: As SiamMask's authors track with the base stage on VOT.
    /// How a target is tracked with the outputs of the network. The sizes of template and search image are those of the
    /// inputs `template` and `search` of the model.
    pub struct Tracking {
        /// Output of the model: log-probabilities `[A, H, W, 2]`, background before target.
        pub class: String = "cls".into(),
        /// Output of the model: boxes `[4A, H, W]`.
        pub boxes: String = "loc".into(),
        /// Output of the model: mask logits `[M*M, H, W]`.
        pub mask: String = "mask".into(),
        /// Penalty for changes of size and shape.
        #[schemars(range(min = 0))]
        pub penalty: f64 = 0.09,
        /// Weight of the cosine window relative to the score.
        #[schemars(range(min = 0, max = 1))]
        pub window_influence: f64 = 0.39,
        /// How fast the size follows a confident detection.
        #[schemars(range(min = 0, max = 1))]
        pub rate: f64 = 0.38,
        /// Pixels above this probability belong to the target.
        #[schemars(range(min = 0, max = 1))]
        pub mask_threshold: f64 = 0.3,
    }
}

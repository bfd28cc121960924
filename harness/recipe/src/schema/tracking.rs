//! Data, preparation and tracking of one target through a video.

use std::path::PathBuf;

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
    #[schemars(range(min = 0, max = 0.9))]
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

/// Crops of 511x511 pixels around their targets, as prepared by the authors of SiamMask from COCO, ImageNet DET and
/// VID, and YouTube-VOS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Crop511 {
    /// Folder that contains the sets.
    pub root: PathBuf,
    /// The sets that are mixed.
    pub sets: Vec<CropSet>,
    /// Pairs per epoch.
    #[schemars(range(min = 1, max = 100000000))]
    pub pairs: usize,
    /// Folder of evaluation sequences, relative to `root`: VOT (`groundtruth.txt` next to the frames) or DAVIS.
    pub sequences: PathBuf,
}

/// One set of crops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CropSet {
    /// Folder of the crops, relative to the root.
    pub folder: PathBuf,
    /// JSON index, relative to the root.
    pub index: PathBuf,
    /// Whether the set has masks.
    pub masks: bool,
    /// Tracks used per round through the mixture; by default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100000000))]
    pub tracks: Option<usize>,
    /// Largest number of frames between template and search image, if it differs from `preprocess.pairs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame_range: Option<usize>,
}

/// Folders of frames: a folder of images, or DAVIS (`JPEGImages/480p/NAME` with `Annotations/480p/NAME`), or VOT and its
/// kin (`groundtruth.txt` or `groundtruth_rect.txt` next to the frames, or to their folder `color` or `img`). Training
/// and evaluation use the same videos, so a training on them is refused while the recipe has a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FrameFolder {
    /// The folder; `--data` replaces it.
    pub root: PathBuf,
    /// The target, by its number in masks of several objects (DAVIS 2017: an entry of the palette, from 1). Without it,
    /// the masks of a video show one object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 255))]
    pub object: Option<u8>,
}

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

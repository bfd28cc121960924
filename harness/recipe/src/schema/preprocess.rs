//! From decoded images to the input of the network, and from its outputs to what is evaluated.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    BoxDetection, BoxPreparation, ImageSize, LabelMapPreparation, Masking, PairPreparation, TextDetection,
    TextPreparation, Tracking,
};
use crate::layers::PadMode;

/// From a decoded image (u8, RGB) to the input of the network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Preprocess {
    /// Steps for training, in order.
    pub train: Vec<Step>,
    /// Steps for evaluation, in order.
    pub eval: Vec<Step>,
    /// How the images of a training batch are mixed, after all steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix: Option<Mix>,
    /// How images are varied in evaluation, to average what the network makes of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tta: Option<TestTimeAugmentation>,
    /// How images with text become samples; `train` and `eval` can then only normalise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<TextPreparation>,
    /// How images with label maps become samples; `train` and `eval` can then only normalise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_maps: Option<LabelMapPreparation>,
    /// How images with boxes become samples; `train` and `eval` can then only normalise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boxes: Option<BoxPreparation>,
    /// How tokens of texts are hidden from the network, which predicts them; by default it predicts the next token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masking: Option<Masking>,
    /// How videos become samples; `train` and `eval` can then only normalise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs: Option<PairPreparation>,
}

/// Postprocessing of the outputs of the network before evaluation. Not needed for classification and language
/// modelling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Postprocess {
    /// Outlines of text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<TextDetection>,
    /// Boxes of objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boxes: Option<BoxDetection>,
    /// Position of a target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub track: Option<Tracking>,
}

impl Postprocess {
    /// Whether everything is as it is without the section.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// One step of the preprocessing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Scales so that the shorter side has a given length; the longer one is int(size*long/short) (torchvision's
    /// Resize).
    Resize(Resize),
    /// Scales to a given height and width, without keeping the aspect ratio.
    ResizeTo(ResizeTo),
    /// Crops the centre; offsets are (n - size)/2, halves to even.
    CenterCrop(CenterCrop),
    /// Crops a rectangle of random area, aspect ratio and position, and scales it to a square (arXiv 1409.4842;
    /// torchvision's RandomResizedCrop).
    RandomResizedCrop(RandomResizedCrop),
    /// Crops a rectangle of random height and aspect ratio that covers a part of the image (TensorFlow's
    /// sample_distorted_bounding_box with the whole image as the box). `resize_to` usually follows.
    RandomCoveringCrop(RandomCoveringCrop),
    /// Pads the image and crops a square at a random position.
    RandomCrop(RandomCrop),
    /// Flips horizontally with probability p.
    HorizontalFlip(HorizontalFlip),
    /// Changes brightness, contrast, saturation and hue by random factors, in random order (torchvision's ColorJitter).
    ColorJitter(ColorJitter),
    /// Applies random operations of one magnitude: shear, translation, rotation, colours, levels (arXiv 1909.13719;
    /// torchvision's RandAugment with nearest-neighbour interpolation and black borders).
    RandAugment(RandAugment),
    /// Applies one operation of that list, of a random magnitude from a wider range (arXiv 2103.10158; torchvision's
    /// TrivialAugmentWide with nearest-neighbour interpolation and black borders).
    TrivialAugment(TrivialAugment),
    /// Erases a random rectangle; follows `normalize` (arXiv 1708.04896; torchvision's RandomErasing).
    RandomErasing(RandomErasing),
    /// (x - mean)/std per channel, in f32.
    Normalize(Normalize),
}

/// Scales so that the shorter side has a given length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// Length of the shorter side, in pixels.
    #[schemars(range(min = 1, max = 4096))]
    pub shorter: usize,
    /// Interpolation, antialiased.
    #[serde(default)]
    pub filter: Filter,
}

/// Scales to a given height and width.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeTo {
    /// Height and width, or both as one number.
    pub size: ImageSize,
    /// Interpolation, antialiased.
    #[serde(default)]
    pub filter: Filter,
}

/// Interpolation of a resize, Pillow's: antialiased, on 8-bit levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// Triangle.
    #[default]
    Bilinear,
    /// Cubic with a = -0.5.
    Bicubic,
}

/// Crops the centre.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CenterCrop {
    /// Height and width, or both as one number.
    pub size: ImageSize,
}

/// Crops a random rectangle and scales it to a square.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// Side of the square, in pixels.
    #[schemars(range(min = 1, max = 4096))]
    pub size: usize,
    /// Range of the share of the image's area.
    #[serde(default = "crop_scale")]
    pub scale: [f64; 2],
    /// Range of width/height, drawn log-uniformly.
    #[serde(default = "crop_ratio")]
    pub ratio: [f64; 2],
    /// Interpolation, antialiased.
    #[serde(default)]
    pub filter: Filter,
}

fn crop_scale() -> [f64; 2] {
    [0.08, 1.0]
}

fn crop_ratio() -> [f64; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

/// Crops a rectangle of random height and aspect ratio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RandomCoveringCrop {
    /// Smallest share of the image that is covered (`min_object_covered`).
    #[schemars(range(min = 0, max = 1))]
    pub min_covered: f64,
    /// Range of the share of the image's area (`area_range`).
    pub area: [f64; 2],
    /// Range of width/height, drawn uniformly (`aspect_ratio_range`).
    pub ratio: [f64; 2],
}

impl Default for RandomCoveringCrop {
    /// The values of TensorFlow's official ImageNet preprocessing.
    fn default() -> Self {
        Self { min_covered: 0.1, area: [0.05, 1.0], ratio: [0.75, 1.33] }
    }
}

/// Pads the image and crops a square at a random position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomCrop {
    /// Side of the square, in pixels.
    #[schemars(range(min = 1, max = 4096))]
    pub size: usize,
    /// Pixels added on each side.
    #[serde(default)]
    #[schemars(range(max = 4096))]
    pub pad: usize,
    /// What they contain.
    #[serde(default, skip_serializing_if = "PadMode::is_zeros")]
    pub mode: PadMode,
}

/// Flips horizontally.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HorizontalFlip {
    /// Probability.
    #[schemars(range(min = 0, max = 1))]
    pub p: f64,
    /// Whether `p` only applies to the first epoch, and each further epoch flips the images that the previous one did
    /// not (arXiv 2404.00498, section 3.6).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub alternate: bool,
}

impl Default for HorizontalFlip {
    fn default() -> Self {
        Self { p: 0.5, alternate: false }
    }
}

/// Changes colours by random factors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ColorJitter {
    /// The factor of brightness lies within this of 1, and not below 0.
    #[schemars(range(min = 0))]
    pub brightness: f64,
    /// The same for contrast.
    #[schemars(range(min = 0))]
    pub contrast: f64,
    /// The same for saturation.
    #[schemars(range(min = 0))]
    pub saturation: f64,
    /// Largest turn of the hue, as a share of the circle.
    #[schemars(range(min = 0, max = 0.5))]
    pub hue: f64,
}

/// Random operations of one magnitude.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RandAugment {
    /// Number of operations, one after the other.
    #[schemars(range(min = 1, max = 14))]
    pub operations: usize,
    /// Magnitude of all operations, below `bins`.
    pub magnitude: usize,
    /// Number of magnitudes.
    #[schemars(range(min = 2))]
    pub bins: usize,
}

impl Default for RandAugment {
    /// torchvision's.
    fn default() -> Self {
        Self { operations: 2, magnitude: 9, bins: 31 }
    }
}

/// Applies one random operation of random magnitude.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrivialAugment {
    /// Number of magnitudes.
    #[schemars(range(min = 2))]
    pub bins: usize,
}

impl Default for TrivialAugment {
    /// torchvision's.
    fn default() -> Self {
        Self { bins: 31 }
    }
}

/// Erases a random rectangle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RandomErasing {
    /// Probability.
    #[schemars(range(min = 0, max = 1))]
    pub p: f64,
    /// Range of the share of the image's area.
    pub scale: [f64; 2],
    /// Range of height/width, drawn uniformly in the logarithm.
    pub ratio: [f64; 2],
    /// What the network sees there: 0 is the mean of `normalize`.
    pub value: f64,
}

impl Default for RandomErasing {
    /// torchvision's.
    fn default() -> Self {
        Self { p: 0.5, scale: [0.02, 0.33], ratio: [0.3, 3.3], value: 0.0 }
    }
}

/// Mixes each image of a training batch with the one before it, the first with the last, all with the same share, and
/// the loss with it: share * loss(own class) + (1 - share) * loss(other class). As torchvision's MixUp and CutMix. The
/// loss is `softmax_cross_entropy` of the class of each image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Mix {
    /// Images are added, weighted by a share drawn from Beta(`mixup`, `mixup`) (arXiv 1710.09412). 0: no mixup;
    /// otherwise at least 0.01.
    #[schemars(range(min = 0, max = 4))]
    pub mixup: f64,
    /// A rectangle of the other image is pasted, whose share is drawn from Beta(`cutmix`, `cutmix`) (arXiv 1905.04899).
    /// 0: no CutMix; otherwise at least 0.01. With both, each batch gets one of them with equal probability.
    #[schemars(range(min = 0, max = 4))]
    pub cutmix: f64,
    /// Probability that a batch is mixed.
    #[schemars(range(min = 0, max = 1))]
    pub p: f64,
}

impl Default for Mix {
    fn default() -> Self {
        Self { mixup: 0.0, cutmix: 0.0, p: 1.0 }
    }
}

/// Test-time augmentation: evaluation averages the outputs of the network over variants of each image, after all steps.
/// In training, images are not affected. The samples are images of one class.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TestTimeAugmentation {
    /// Whether each variant and its mirror image count half each.
    pub mirror: bool,
    /// Pixels by which the image is moved, to the lower right and to the upper left, with reflected borders; each
    /// counts a quarter, and the unmoved image a half. 0: it is not moved.
    #[schemars(range(max = 4096))]
    pub shift: usize,
}

impl Default for TestTimeAugmentation {
    fn default() -> Self {
        Self { mirror: true, shift: 0 }
    }
}

/// (x - mean)/std per channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Normalize {
    /// Mean of each channel.
    pub mean: [f64; 3],
    /// Standard deviation of each channel.
    pub std: [f64; 3],
    /// The range of pixel values to which mean and std refer.
    #[serde(default)]
    pub scale: Levels,
    /// Order of the channels in the input of the network, and in mean and std.
    #[serde(default, skip_serializing_if = "ChannelOrder::is_rgb")]
    pub channels: ChannelOrder,
}

/// Order of the colour channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChannelOrder {
    /// Red, green, blue.
    #[default]
    Rgb,
    /// Blue, green, red (OpenCV).
    Bgr,
}

impl ChannelOrder {
    fn is_rgb(&self) -> bool {
        *self == Self::Rgb
    }
}

/// Range of pixel values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Levels {
    /// 0..1: pixels are divided by 255 first.
    #[default]
    Unit,
    /// 0..255.
    Byte,
}

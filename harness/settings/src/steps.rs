//! Steps of the preprocessing of images.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ImageSize, PadMode};

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

settings! {
    // Defaults: The values of TensorFlow's official ImageNet preprocessing.
    /// Crops a rectangle of random height and aspect ratio.
    pub struct RandomCoveringCrop {
        /// Smallest share of the image that is covered (`min_object_covered`).
        #[schemars(range(min = 0, max = 1))]
        pub min_covered: f64 = 0.1,
        /// Range of the share of the image's area (`area_range`).
        pub area: [f64; 2] = [0.05, 1.0],
        /// Range of width/height, drawn uniformly (`aspect_ratio_range`).
        pub ratio: [f64; 2] = [0.75, 1.33],
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

settings! {
    /// Flips horizontally.
    pub struct HorizontalFlip {
        /// Probability.
        #[schemars(range(min = 0, max = 1))]
        pub p: f64 = 0.5,
        /// Whether `p` only applies to the first epoch, and each further epoch flips the images that the previous one
        /// did not (arXiv 2404.00498, section 3.6).
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub alternate: bool = false,
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

settings! {
    // Defaults: torchvision's.
    /// Random operations of one magnitude.
    pub struct RandAugment {
        /// Number of operations, one after the other.
        #[schemars(range(min = 1, max = 14))]
        pub operations: usize = 2,
        /// Magnitude of all operations, below `bins`.
        pub magnitude: usize = 9,
        /// Number of magnitudes.
        #[schemars(range(min = 2))]
        pub bins: usize = 31,
    }
}

settings! {
    // Defaults: torchvision's.
    /// Applies one random operation of random magnitude.
    pub struct TrivialAugment {
        /// Number of magnitudes.
        #[schemars(range(min = 2))]
        pub bins: usize = 31,
    }
}

settings! {
    // Defaults: torchvision's.
    /// Erases a random rectangle.
    pub struct RandomErasing {
        /// Probability.
        #[schemars(range(min = 0, max = 1))]
        pub p: f64 = 0.5,
        /// Range of the share of the image's area.
        pub scale: [f64; 2] = [0.02, 0.33],
        /// Range of height/width, drawn uniformly in the logarithm.
        pub ratio: [f64; 2] = [0.3, 3.3],
        /// What the network sees there: 0 is the mean of `normalize`.
        pub value: f64 = 0.0,
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

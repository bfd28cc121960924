//! Layers of networks that answer per pixel, and of siamese ones. Field by field what an author writes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::layer::{is_yes, yes};
use super::{Padding, Pair, Param, Size, WeightInit};

/// Transposed 2-D convolution (the input gradient of a convolution) with a weight `[in, out, kernel h, kernel w]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConvTranspose {
    /// Module name; required outside `sequential`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Number of output channels.
    pub out: Param<Size>,
    /// Size of the window.
    pub kernel: Pair,
    /// Step of the window in the output.
    #[serde(default = "Pair::ones")]
    pub stride: Pair,
    /// Rows and columns cut off the output.
    #[serde(default)]
    pub pad: Padding,
    /// Whether a bias is added.
    #[serde(default = "yes")]
    pub bias: Param<bool>,
    /// How the parameters start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<WeightInit>,
}

/// Enlarges (or shrinks) height and width, by `scale` or to `size`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upsample {
    /// Module name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// How many times as large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Pair>,
    /// Height and width of the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Pair>,
    /// Which pixels an output pixel is made of.
    #[serde(default)]
    pub mode: UpsampleMode,
    /// For `bilinear`: the corner pixels of input and output have the same place, not the corners of those pixels.
    #[serde(default)]
    pub align_corners: bool,
}

/// Which pixels an output pixel is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpsampleMode {
    /// The pixel at floor(place / scale).
    #[default]
    Nearest,
    /// The four around its place, weighted by their distance.
    Bilinear,
}

/// Cuts the same margin off all four sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Crop {
    /// Module name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Rows and columns that go, on each side.
    pub margin: Param<Size>,
    /// Only of maps narrower than this; wider ones stay whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub narrower_than: Option<Size>,
}

/// Product with a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Module name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// The number.
    pub by: f64,
}

/// Depth-wise cross-correlation without padding: each channel of the present value with the same channel of the same
/// sample of a tap (arXiv 1812.05050, section 3.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Xcorr {
    /// Module name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Tap that is slid over the present value.
    pub kernel: String,
}

/// Windows of the map as a batch of maps (PyTorch's unfold, TensorFlow's extract_image_patches): all windows of the
/// first sample, row by row, then those of the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Patches {
    /// Module name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Size of the window.
    pub kernel: Pair,
    /// Step of the window.
    #[serde(default = "Pair::ones")]
    pub stride: Pair,
    /// Zeros around the image.
    #[serde(default)]
    pub pad: Padding,
}

//! The architecture with everything decided: arguments substituted, blocks inlined, stacks repeated, names complete.
//!
//! Order of execution is the order of the tree: a [`LayerKind::Residual`] runs `main` before `shortcut`, branches of a
//! concatenation run from first to last. A layer with a name is a module, and has returned when its last inner layer
//! has; so a walk in this order, naming containers after their content, lists modules as PyTorch's forward hooks see
//! them. A name that comes up again is the next call of the same module (`relu#0`, `relu#1`, ...).

mod args;
mod blocks;
mod expand;

pub(crate) use expand::expand;

use indexmap::IndexMap;

use crate::schema::{Axis, Init, UpsampleMode};
use crate::span::{ConfigPath, Span};

/// The architecture with everything decided.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedModel {
    /// Shape of each input without the batch, `[channels, height, width]`; the body starts from the first.
    pub inputs: IndexMap<String, [usize; 3]>,
    /// Number of classes.
    pub classes: usize,
    /// The layers that are switched on, from input to output.
    pub body: Vec<ResolvedLayer>,
    /// Taps that the network gives, by name; empty: the last value, as `logits`.
    pub outputs: IndexMap<String, String>,
}

/// One layer that is switched on.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedLayer {
    /// Full name of the module, as in state_dict (`layer1.0.conv1`); `None` for a plain function.
    /// Layers with parameters always have one, and it is theirs alone.
    pub name: Option<String>,
    /// Where in the recipe it stands, for example `model.blocks.bottleneck.body[0].residual.main[3]`.
    pub path: ConfigPath,
    /// Where that was written.
    pub span: Span,
    /// What it does.
    pub kind: LayerKind,
    /// Taps that it gives to its caller, by key, where that is not just its last value.
    pub returns: IndexMap<String, String>,
}

/// What a layer does.
#[derive(Clone, Debug, PartialEq)]
pub enum LayerKind {
    /// 2-D convolution.
    Conv(Conv),
    /// Zeros around the image: `[top, bottom, left, right]`.
    Pad([usize; 4]),
    /// Batch normalisation.
    BatchNorm(BatchNorm),
    /// max(x, 0).
    Relu,
    /// min(max(x, 0), 6).
    Relu6,
    /// Maximum of each window.
    MaxPool(MaxPool),
    /// Mean of each window.
    AvgPool(AvgPool),
    /// Mean of windows such that the output is `[height, width]`.
    AdaptiveAvgPool([usize; 2]),
    /// `[C, H, W]` to `[C, 1, 1]`.
    GlobalAvgPool,
    /// Local response normalisation.
    Lrn(Lrn),
    /// Dense layer.
    Linear(Linear),
    /// 1/(1 + exp(-x)).
    Sigmoid,
    /// Product with a number.
    Scale(f64),
    /// Transposed convolution.
    ConvTranspose(ConvTranspose),
    /// Another height and width.
    Upsample(Upsample),
    /// A margin cut off all four sides.
    Crop {
        /// Rows and columns that go, on each side.
        margin: usize,
        /// Wider maps stay whole.
        narrower_than: Option<usize>,
    },
    /// `[2A, H, W]` to `[A, H, W, 2]`.
    PairLogSoftmax,
    /// Depth-wise cross-correlation with this tap.
    Xcorr(String),
    /// Windows as a batch of maps.
    Patches(Patches),
    /// Dropout with the share of elements that become zero.
    Dropout {
        /// In `[0, 1)`.
        rate: f64,
    },
    /// `[C, H, W]` to `[C*H*W]`.
    Flatten,
    /// Layers in a row: a sequential, a stack, or one use of a block.
    Sequential(Vec<ResolvedLayer>),
    /// main(x) + shortcut(x); an empty shortcut is identity.
    Residual {
        /// The branch that computes.
        main: Vec<ResolvedLayer>,
        /// The branch around it.
        shortcut: Vec<ResolvedLayer>,
    },
    /// Branches from one input, joined along `axis`; an empty branch is identity.
    Concat {
        /// The branches.
        branches: Vec<Vec<ResolvedLayer>>,
        /// The dimension that grows.
        axis: Axis,
    },
    /// Keeps the present value under this name, unique in the model.
    Tap(String),
    /// Goes on from the value of this tap or model input.
    From(String),
    /// Adds the value of this tap.
    Add(String),
    /// Subtracts the value of this tap.
    Subtract(String),
    /// Layers whose parameters exist, and which are never called.
    Unused(Vec<ResolvedLayer>),
    /// A module above once more, with the same parameters.
    Again(Box<ResolvedLayer>),
}

/// 2-D convolution with a weight `[out, in/groups, kernel h, kernel w]` (parameter `<name>.weight`) and, with `bias`, a
/// bias `[out]` (`<name>.bias`).
#[derive(Clone, Debug, PartialEq)]
pub struct Conv {
    /// Number of filters.
    pub out: usize,
    /// Height, width.
    pub kernel: [usize; 2],
    /// Height, width.
    pub stride: [usize; 2],
    /// Top, bottom, left, right.
    pub pad: [usize; 4],
    /// Height, width.
    pub dilation: [usize; 2],
    /// Number of groups.
    pub groups: usize,
    /// How the weight starts.
    pub weight_init: Init,
    /// How the bias starts; `None`: there is no bias.
    pub bias_init: Option<Init>,
}

/// Transposed convolution with a weight `[in, out, kernel h, kernel w]` (parameter `<name>.weight`) and perhaps a bias
/// `[out]` (`<name>.bias`).
#[derive(Clone, Debug, PartialEq)]
pub struct ConvTranspose {
    /// Number of output channels.
    pub out: usize,
    /// Height, width.
    pub kernel: [usize; 2],
    /// Height, width, in the output.
    pub stride: [usize; 2],
    /// Rows and columns cut off the output: top, bottom, left, right.
    pub pad: [usize; 4],
    /// How the weight starts.
    pub weight_init: Init,
    /// How the bias starts; `None`: there is no bias.
    pub bias_init: Option<Init>,
}

/// Another height and width.
#[derive(Clone, Debug, PartialEq)]
pub struct Upsample {
    /// How large it gets.
    pub to: UpsampleTo,
    /// Which pixels an output pixel is made of.
    pub mode: UpsampleMode,
    /// For bilinear: corner pixels have the same place.
    pub align_corners: bool,
}

/// How large a map gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpsampleTo {
    /// Times height, times width.
    Scale([usize; 2]),
    /// Height, width.
    Size([usize; 2]),
}

/// Windows of a map as a batch of maps.
#[derive(Clone, Debug, PartialEq)]
pub struct Patches {
    /// Height, width.
    pub kernel: [usize; 2],
    /// Height, width.
    pub stride: [usize; 2],
    /// Top, bottom, left, right; zeros.
    pub pad: [usize; 4],
}

/// Batch normalisation with parameters `<name>.weight` (gamma), `<name>.bias` (beta) and buffers `<name>.running_mean`,
/// `<name>.running_var`.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNorm {
    /// Added to the variance.
    pub eps: f64,
    /// Share of the new batch in the running statistics.
    pub momentum: f64,
    /// Start of every element of the scale.
    pub gamma_init: f64,
    /// Start of every element of the shift.
    pub beta_init: f64,
}

/// Maximum of each window.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxPool {
    /// Height, width.
    pub kernel: [usize; 2],
    /// Height, width.
    pub stride: [usize; 2],
    /// Top, bottom, left, right; never the maximum.
    pub pad: [usize; 4],
    /// Round the output size up.
    pub ceil_mode: bool,
}

/// Mean of each window.
#[derive(Clone, Debug, PartialEq)]
pub struct AvgPool {
    /// Height, width.
    pub kernel: [usize; 2],
    /// Height, width.
    pub stride: [usize; 2],
    /// Top, bottom, left, right; zeros.
    pub pad: [usize; 4],
    /// Round the output size up.
    pub ceil_mode: bool,
    /// Whether padding counts in the divisor.
    pub count_include_pad: bool,
}

/// x / (k + alpha/size * sum of squares over `size` neighbouring channels)^beta.
#[derive(Clone, Debug, PartialEq)]
pub struct Lrn {
    /// Number of neighbouring channels.
    pub size: usize,
    /// Weight of the sum of squares.
    pub alpha: f64,
    /// Exponent.
    pub beta: f64,
    /// Added to the sum.
    pub k: f64,
}

/// Dense layer with a weight `[out, in]` (parameter `<name>.weight`) and perhaps a bias `[out]` (`<name>.bias`).
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// Number of outputs.
    pub out: usize,
    /// How the weight starts.
    pub weight_init: Init,
    /// How the bias starts; `None`: there is no bias.
    pub bias_init: Option<Init>,
}

//! Layers as written. [`crate::resolve`] turns them into layers with full names and clean numbers.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BnInit, Param, Scalar, WeightInit};

/// One layer: `- conv: {name: conv1, out: 64, kernel: 3}`, or just `- relu` where nothing needs saying.
///
/// `name` is the module's name as in the reference framework's state_dict; names of enclosing modules are put before it,
/// joined by dots. A layer without a name is a plain function: it has no parameters and no golden of its own. One name may stand
/// on several layers without parameters (a ReLU called three times). Inside `sequential`, a layer without a name is named by its
/// index. `enabled: false` leaves a layer out (what comes in goes out; indices of its neighbours stay).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Layer {
    /// 2-D convolution.
    Conv(Box<Conv>),
    /// Zero padding as an operator of its own.
    Pad(Pad),
    /// Batch normalisation over batch, height and width.
    Bn(Bn),
    /// max(x, 0).
    Relu(Relu),
    /// Maximum of each window.
    MaxPool(MaxPool),
    /// Mean of each window.
    AvgPool(AvgPool),
    /// Mean of windows chosen such that the output has a given size (PyTorch's AdaptiveAvgPool2d).
    AdaptiveAvgPool(AdaptiveAvgPool),
    /// Mean over height and width: `[C, H, W]` to `[C, 1, 1]`.
    GlobalAvgPool(GlobalAvgPool),
    /// Local response normalisation across channels (AlexNet's, NIPS 2012, section 3.3).
    Lrn(Lrn),
    /// Dense layer on `[features]`.
    Linear(Linear),
    /// Sets elements to zero at random in training and scales the others by 1/(1 - rate); identity in evaluation.
    Dropout(Dropout),
    /// `[C, H, W]` to `[C*H*W]`.
    Flatten(Flatten),
    /// Two branches from one input, added.
    Residual(Residual),
    /// Several branches from one input, joined.
    Concat(Concat),
    /// Layers in a row as one module.
    Sequential(Sequential),
    /// A block used several times in a row, as modules `name.0`, `name.1`, ...
    Stack(Stack),
    /// A block used once, as one module.
    Block(UseBlock),
    /// Keeps the present value under a name, for `from`.
    Tap(String),
    /// Goes on from the value of a tap or from an input of the model.
    From(String),
}

/// A size in both directions, or as `[height, width]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Pair {
    /// The same in both directions.
    Both(Param<Size>),
    /// Height, width.
    Each([Param<Size>; 2]),
}

impl Pair {
    pub(crate) fn ones() -> Self {
        Self::Both(Param::Value(Size(1)))
    }
}

/// A number of elements, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Size(#[schemars(range(min = 1, max = 16777216))] pub usize);

/// A number of elements, possibly none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Count(#[schemars(range(max = 65536))] pub usize);

/// Rows and columns added around an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Padding {
    /// The same on all four sides.
    All(Param<Count>),
    /// `[above and below, left and right]`.
    Axes([Param<Count>; 2]),
    /// `[top, bottom, left, right]`.
    Sides([Param<Count>; 4]),
}

impl Default for Padding {
    fn default() -> Self {
        Self::All(Param::default())
    }
}

fn yes() -> Param<bool> {
    Param::Value(true)
}

fn is_yes(value: &Param<bool>) -> bool {
    *value == Param::Value(true)
}

/// 2-D convolution of `[C, H, W]` with a weight `[out, C/groups, kernel h, kernel w]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Conv {
    /// Module name; required outside `sequential`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Number of filters.
    pub out: Param<Size>,
    /// Size of the window.
    pub kernel: Pair,
    /// Step of the window.
    #[serde(default = "Pair::ones")]
    pub stride: Pair,
    /// Zeros around the image.
    #[serde(default)]
    pub pad: Padding,
    /// Distance between neighbouring taps of the window.
    #[serde(default = "Pair::ones")]
    pub dilation: Pair,
    /// Number of groups that input and output channels are split in.
    #[serde(default = "one_group")]
    pub groups: Param<Size>,
    /// Whether a bias is added.
    #[serde(default = "yes")]
    pub bias: Param<bool>,
    /// How the parameters start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<WeightInit>,
}

fn one_group() -> Param<Size> {
    Param::Value(Size(1))
}

/// Zero padding as an operator of its own; zoo can fold it into the convolution that follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// Module name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Zeros around the image.
    pub size: Padding,
}

/// Batch normalisation; normalises by the biased variance, keeps the unbiased one in the running statistics (PyTorch's BatchNorm2d).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bn {
    /// Module name; required outside `sequential`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Added to the variance.
    #[serde(default = "bn_eps")]
    #[schemars(range(min = 0, max = 1))]
    pub eps: f64,
    /// Share of the new batch in the running statistics (PyTorch's sense; TensorFlow and MindSpore write 1 minus this).
    #[serde(default = "bn_momentum")]
    #[schemars(range(min = 0, max = 1))]
    pub momentum: f64,
    /// How the parameters start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<BnInit>,
}

fn bn_eps() -> f64 {
    1e-5
}

fn bn_momentum() -> f64 {
    0.1
}

macro_rules! plain_layer {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Module name.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub name: Option<String>,
            /// `false` leaves the layer out.
            #[serde(default = "yes", skip_serializing_if = "is_yes")]
            pub enabled: Param<bool>,
        }
    };
}

plain_layer!(
    /// max(x, 0).
    Relu
);
plain_layer!(
    /// Mean over height and width.
    GlobalAvgPool
);
plain_layer!(
    /// `[C, H, W]` to `[C*H*W]`, row-major.
    Flatten
);

/// Maximum of each window; windows outside the image count nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaxPool {
    /// Module name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Size of the window.
    pub kernel: Pair,
    /// Step of the window; the kernel if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<Pair>,
    /// Rows and columns around the image, never the maximum.
    #[serde(default)]
    pub pad: Padding,
    /// Round the output size up instead of down.
    #[serde(default)]
    pub ceil_mode: bool,
}

/// Mean of each window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AvgPool {
    /// Module name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Size of the window.
    pub kernel: Pair,
    /// Step of the window; the kernel if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<Pair>,
    /// Zeros around the image.
    #[serde(default)]
    pub pad: Padding,
    /// Round the output size up instead of down.
    #[serde(default)]
    pub ceil_mode: bool,
    /// Whether padding counts in the divisor (PyTorch: yes, TensorFlow: no).
    #[serde(default = "counted")]
    pub count_include_pad: bool,
}

fn counted() -> bool {
    true
}

/// Mean of windows chosen such that the output has a given size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveAvgPool {
    /// Module name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Height and width of the output.
    pub out: Pair,
}

/// x / (k + alpha/size * sum of squares over `size` neighbouring channels)^beta (PyTorch's LocalResponseNorm; the paper's alpha is alpha/size here).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lrn {
    /// Module name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Number of neighbouring channels.
    pub size: Param<Size>,
    /// Weight of the sum of squares.
    #[serde(default = "lrn_alpha")]
    #[schemars(range(min = 0))]
    pub alpha: f64,
    /// Exponent.
    #[serde(default = "lrn_beta")]
    #[schemars(range(min = 0))]
    pub beta: f64,
    /// Added to the sum.
    #[serde(default = "lrn_k")]
    #[schemars(range(min = 0))]
    pub k: f64,
}

fn lrn_alpha() -> f64 {
    1e-4
}

fn lrn_beta() -> f64 {
    0.75
}

fn lrn_k() -> f64 {
    1.0
}

/// Dense layer with a weight `[out, in]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Module name; required outside `sequential`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Number of outputs.
    pub out: Param<Size>,
    /// Whether a bias is added.
    #[serde(default = "yes")]
    pub bias: Param<bool>,
    /// How the parameters start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<WeightInit>,
}

/// Inverted dropout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dropout {
    /// Module name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves the layer out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Share of elements set to zero (1 minus TensorFlow's keep probability).
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub rate: f64,
}

/// main(x) + shortcut(x).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Residual {
    /// Module name, put before the names inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves both branches and the addition out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// The branch that computes.
    #[schemars(length(min = 1))]
    pub main: Vec<Layer>,
    /// The branch around it; identity if absent, or if all its layers are switched off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shortcut: Vec<Layer>,
}

/// Branches joined along one dimension, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Concat {
    /// Module name, put before the names inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves all branches out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// The branches, each from the same input; an empty one is identity.
    #[schemars(length(min = 1))]
    pub branches: Vec<Vec<Layer>>,
    /// The dimension that grows.
    #[serde(default)]
    pub axis: Axis,
}

/// A dimension of `[C, H, W]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// C
    #[default]
    Channel,
    /// H
    Height,
    /// W
    Width,
}

/// Layers in a row as one module; those without a name are named by their index from 0 (PyTorch's nn.Sequential).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sequential {
    /// Module name, put before the names inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves all of it out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// The layers.
    #[schemars(length(min = 1))]
    pub body: Vec<Layer>,
}

/// A block used several times in a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// Module name; the uses are called `name.0`, `name.1`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves all of it out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Which of `model.blocks`.
    pub block: String,
    /// How many times.
    pub repeat: Param<Repeat>,
    /// Arguments of every use.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub args: IndexMap<String, Param<Scalar>>,
    /// Arguments of the first use, before `args`.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub first: IndexMap<String, Param<Scalar>>,
}

/// How often a block stands in a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Repeat(#[schemars(range(min = 1, max = 1024))] pub usize);

/// A block used once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UseBlock {
    /// Module name, put before the names inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `false` leaves all of it out.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: Param<bool>,
    /// Which of `model.blocks`.
    #[serde(rename = "use")]
    pub block: String,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub args: IndexMap<String, Param<Scalar>>,
}

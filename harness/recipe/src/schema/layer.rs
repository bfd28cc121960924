//! Layers as written. [`crate::resolve`] turns them into layers with full names and clean numbers.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dense::*;
use super::operators::*;
use super::{Param, Scalar};

/// One layer: `- conv: {name: conv1, out: 64, kernel: 3}`, or just `- relu` where nothing needs saying.
///
/// `name` is the module's name as in the reference framework's state_dict; names of enclosing modules are put before
/// it, joined by dots. A layer without a name is a plain function: it has no parameters and no golden of its own. One
/// name may stand on several layers without parameters (a ReLU called three times). Inside `sequential`, a layer
/// without a name is named by its index. `enabled: false` leaves a layer out (what comes in goes out; indices of its
/// neighbours stay).
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
    /// min(max(x, 0), 6).
    Relu6(Relu6),
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
    /// 1/(1 + exp(-x)).
    Sigmoid(Sigmoid),
    /// Product with a number.
    Scale(Scale),
    /// Transposed 2-D convolution.
    ConvTranspose(Box<ConvTranspose>),
    /// Enlarges (or shrinks) height and width.
    Upsample(Upsample),
    /// Cuts the same margin off all four sides.
    Crop(Crop),
    /// Logarithm of the softmax over pairs of channels: `[2A, H, W]`, which is `[2, A, H, W]`, to `[A, H, W, 2]`.
    PairLogSoftmax(PairLogSoftmax),
    /// Depth-wise cross-correlation with a tap: each channel with the same channel of the same sample.
    Xcorr(Xcorr),
    /// Windows of the map as a batch of maps: `[C, H, W]` to as many `[C, kernel h, kernel w]` as there are windows.
    Patches(Patches),
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
    /// Layers under a name that is not called as a module itself (only what is inside it is).
    Scope(Scope),
    /// Layers whose parameters exist, and which are never called.
    Unused(Unused),
    /// A named module above once more, with the same parameters (a siamese network). Its taps then stand for this call.
    Again(String),
    /// Adds the value of a tap.
    Add(String),
    /// Subtracts the value of a tap.
    Subtract(String),
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

pub(super) fn yes() -> Param<bool> {
    Param::Value(true)
}

pub(super) fn is_yes(value: &Param<bool>) -> bool {
    *value == Param::Value(true)
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
    /// What the module gives to its caller where that is several values: taps of its inside, by key (`0`, `1`, ... of a
    /// tuple). The golden of its output is then one tensor per key. The next layer goes on from the last value.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub returns: IndexMap<String, String>,
}

/// Layers under a name that is no module of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// Put before the names inside.
    pub name: String,
    /// The layers.
    #[schemars(length(min = 1))]
    pub body: Vec<Layer>,
}

/// Layers that a checkpoint holds and nothing calls: they never train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unused {
    /// The layers, as if they were called here.
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
    /// What it gives to its caller where that is several values: taps of its inside, by key.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub returns: IndexMap<String, String>,
}

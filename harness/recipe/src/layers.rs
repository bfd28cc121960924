//! The layers of the recipe language, one file each: the settings, how the layer resolves, which nodes it builds, how
//! it is described and drawn.
//!
//! To add one, write its file (a struct with docs for authors, and `Word` for it) and list it below. The keys `name`
//! and `enabled` come from [`Module`]. Schema, reference, completion, listing and picture are derived from the struct
//! and the trait.

mod alibi;
mod body;
pub(crate) mod resolve;
mod rotary;
mod schema;
mod weight_norm;
mod window;

mod adaptive_avg_pool;
mod add;
mod add_parameter;
mod affine;
mod again;
mod attention;
mod avg_pool;
mod block;
mod blur_pool;
mod bn;
mod channel_shuffle;
mod concat;
mod constant;
mod continuous_position_bias;
mod conv;
mod conv1d;
mod conv_transpose;
mod crop;
mod cumsum;
mod distance_bias;
mod dot_product_attention;
mod drop_path;
mod dropout;
mod elu;
mod embedding;
mod experts;
mod flatten;
mod from;
mod gate;
mod gelu;
mod global_avg_pool;
mod grid;
mod group_norm;
mod hard_sigmoid;
mod hard_swish;
mod instance_norm;
mod layer_norm;
mod layer_scale;
mod leaky_relu;
mod linear;
mod logit_scale;
mod lrn;
mod map;
mod matmul;
mod max_pool;
mod merge_patches;
mod mish;
mod mul;
mod pad;
mod pair_log_softmax;
mod parameter;
mod patches;
mod permute;
mod pixel_shuffle;
mod positions;
mod prelu;
mod prepend;
mod relative_position_bias;
mod relu;
mod relu6;
mod reshape;
mod residual;
mod rms_norm;
mod roll;
mod scale;
mod scope;
mod sequential;
mod sigmoid;
mod silu;
mod sine_positions;
mod slice;
mod softmax;
mod stack;
mod subtract;
mod take;
mod tanh;
mod tap;
mod tokens;
mod unembed;
mod unused;
mod upsample;
mod windows;
mod xcorr;

pub use alibi::slopes as alibi_slopes;
pub use body::{Block, Body, ResolvedLayer};
pub use concat::Axis;
pub use experts::{ExpertActivation, ExpertWeights};
pub use gelu::Approximation;
pub use rotary::{Llama3Scaling, Pairs, Rotary, RotaryScaling};
pub(crate) use schema::{schema_of, shapes_of};
pub use upsample::UpsampleMode;
pub use weight_norm::WeightNorm;
pub use zoo_settings::PadMode;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_graph::{GraphError, ValueId};

use crate::builder::Builder;
use crate::diagnostic::Diagnostic;
use crate::lints::Lints;
use crate::python::{At, Var};
use resolve::Place;

/// The enum of all layers, and the dispatch to each.
macro_rules! layers {
    ($($tag:literal => $module:ident::$name:ident,)*) => {
        $(pub use $module::$name;)*

        /// One layer: `- conv: {name: conv1, out: 64, kernel: 3}`, or just `- relu` if it needs no settings.
        ///
        /// `name` is the name of the module in the state_dict of the reference framework; names of enclosing modules
        /// are prepended with dots. A layer without a name is a plain function: it has no parameters and no golden.
        /// Several layers without parameters can share a name (a ReLU called three times). Inside `sequential`, a layer
        /// without a name is named by its index. `enabled: false` removes a layer (it becomes the identity; the indices
        /// of other layers do not change).
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[allow(missing_docs)] // Each is described where it is defined.
        pub enum Layer {
            $(#[serde(rename = $tag)] $name($name),)*
        }

        impl Layer {
            /// The key that authors write.
            pub fn tag(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => $tag,)*
                }
            }

            /// Whether the layer with this key is a module; `None` if there is no such layer.
            pub(crate) fn module(tag: &str) -> Option<Module> {
                match tag {
                    $($tag => Some($name::MODULE),)*
                    _ => None,
                }
            }

            /// The key with the amount of randomness; see `Word::CHANCE`.
            pub fn chance(&self) -> Option<&'static str> {
                match self {
                    $(Self::$name(_) => $name::CHANCE,)*
                }
            }

            /// What it is to a reader.
            pub fn describe(&self) -> Description<'_> {
                match self {
                    $(Self::$name(word) => word.describe($tag),)*
                }
            }

            /// The lists of layers that it runs itself.
            pub fn bodies_mut(&mut self) -> Vec<&mut Body> {
                match self {
                    $(Self::$name(word) => word.bodies_mut(),)*
                }
            }

            pub(crate) fn resolve(&mut self, at: &mut Place<'_, '_>) -> Option<()> {
                match self {
                    $(Self::$name(word) => word.resolve(at),)*
                }
            }

            pub(crate) fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError> {
                match self {
                    $(Self::$name(word) => word.build(at, x),)*
                }
            }

            pub(crate) fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic> {
                match self {
                    $(Self::$name(word) => word.emit(at),)*
                }
            }

            pub(crate) fn lint(&self, lints: &mut Lints<'_>) {
                match self {
                    $(Self::$name(word) => word.lint(lints),)*
                }
            }
        }
    };
}

layers! {
    "conv" => conv::Conv,
    "pad" => pad::Pad,
    "bn" => bn::Bn,
    "relu" => relu::Relu,
    "relu6" => relu6::Relu6,
    "max_pool" => max_pool::MaxPool,
    "avg_pool" => avg_pool::AvgPool,
    "blur_pool" => blur_pool::BlurPool,
    "adaptive_avg_pool" => adaptive_avg_pool::AdaptiveAvgPool,
    "global_avg_pool" => global_avg_pool::GlobalAvgPool,
    "lrn" => lrn::Lrn,
    "linear" => linear::Linear,
    "sigmoid" => sigmoid::Sigmoid,
    "scale" => scale::Scale,
    "silu" => silu::Silu,
    "slice" => slice::Slice,
    "hard_swish" => hard_swish::HardSwish,
    "hard_sigmoid" => hard_sigmoid::HardSigmoid,
    "gelu" => gelu::Gelu,
    "leaky_relu" => leaky_relu::LeakyRelu,
    "elu" => elu::Elu,
    "mish" => mish::Mish,
    "prelu" => prelu::Prelu,
    "tanh" => tanh::Tanh,
    "softmax" => softmax::Softmax,
    "map" => map::Map,
    "layer_norm" => layer_norm::LayerNorm,
    "group_norm" => group_norm::GroupNorm,
    "instance_norm" => instance_norm::InstanceNorm,
    "rms_norm" => rms_norm::RmsNorm,
    "permute" => permute::Permute,
    "reshape" => reshape::Reshape,
    "channel_shuffle" => channel_shuffle::ChannelShuffle,
    "pixel_shuffle" => pixel_shuffle::PixelShuffle,
    "conv1d" => conv1d::Conv1d,
    "conv_transpose" => conv_transpose::ConvTranspose,
    "upsample" => upsample::Upsample,
    "crop" => crop::Crop,
    "pair_log_softmax" => pair_log_softmax::PairLogSoftmax,
    "xcorr" => xcorr::Xcorr,
    "patches" => patches::Patches,
    "dropout" => dropout::Dropout,
    "flatten" => flatten::Flatten,
    "residual" => residual::Residual,
    "concat" => concat::Concat,
    "sequential" => sequential::Sequential,
    "stack" => stack::Stack,
    "block" => block::UseBlock,
    "scope" => scope::Scope,
    "unused" => unused::Unused,
    "again" => again::Again,
    "add" => add::Add,
    "subtract" => subtract::Subtract,
    "mul" => mul::Mul,
    "matmul" => matmul::Matmul,
    "parameter" => parameter::Parameter,
    "constant" => constant::Constant,
    "tokens" => tokens::Tokens,
    "grid" => grid::Grid,
    "embedding" => embedding::Embedding,
    "unembed" => unembed::Unembed,
    "positions" => positions::Positions,
    "sine_positions" => sine_positions::SinePositions,
    "windows" => windows::Windows,
    "roll" => roll::Roll,
    "cumsum" => cumsum::Cumsum,
    "merge_patches" => merge_patches::MergePatches,
    "prepend" => prepend::Prepend,
    "add_parameter" => add_parameter::AddParameter,
    "layer_scale" => layer_scale::LayerScale,
    "affine" => affine::Affine,
    "attention" => attention::Attention,
    "dot_product_attention" => dot_product_attention::DotProductAttention,
    "relative_position_bias" => relative_position_bias::RelativePositionBias,
    "continuous_position_bias" => continuous_position_bias::ContinuousPositionBias,
    "distance_bias" => distance_bias::DistanceBias,
    "logit_scale" => logit_scale::LogitScale,
    "take" => take::Take,
    "drop_path" => drop_path::DropPath,
    "gate" => gate::Gate,
    "experts" => experts::Experts,
    "tap" => tap::Tap,
    "from" => from::FromTap,
}

/// What zoo knows of one kind of layer.
///
/// In a value of this type, all expressions of block arguments are replaced by their values. [`Word::resolve`] adds
/// what depends on the context; all other methods are called afterwards.
pub(crate) trait Word {
    /// Whether it is a module, and of which kind.
    const MODULE: Module;

    /// The key with the amount of randomness. Goldens contain no random layers, so checks build them as the identity
    /// unless the command line sets this key.
    const CHANCE: Option<&'static str> = None;

    /// Resolves what depends on the context of the layer: full names of taps, initialisers, layers inside.
    ///
    /// `None` if something is wrong, which has been reported.
    fn resolve(&mut self, _at: &mut Place<'_, '_>) -> Option<()> {
        Some(())
    }

    /// Adds its nodes, from the value `x`.
    fn build(&self, at: &mut Builder<'_, '_>, x: ValueId) -> Result<ValueId, GraphError>;

    /// Writes it as PyTorch; returns its result.
    fn emit(&self, at: &mut At<'_, '_>) -> Result<Var, Diagnostic>;

    /// What it is to a reader; by default a small step that its key describes.
    fn describe(&self, key: &'static str) -> Description<'_> {
        Step::riding(key).into()
    }

    /// The lists of layers that it runs itself.
    fn bodies_mut(&mut self) -> Vec<&mut Body> {
        Vec::new()
    }

    /// Warns about unusual values.
    fn lint(&self, _lints: &mut Lints<'_>) {}
}

/// Whether a layer is a module of the reference framework. A module has the keys `name` and `enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// It has parameters, and so a name that is its alone.
    Parameters,
    /// It holds other layers; if it has a name, that is its alone.
    Container,
    /// It computes; it may have a name, and share it.
    Function,
    /// It is not a module.
    None,
}

/// What a layer is to a reader, and to all that walk an architecture.
#[derive(Clone, Debug, PartialEq)]
pub enum Description<'a> {
    /// A step of its own.
    Step(Step<'a>),
    /// Layers in a row.
    Row(&'a [ResolvedLayer]),
    /// Branches from one value, joined again.
    Branches {
        /// The branches, in order of execution.
        lanes: Vec<&'a [ResolvedLayer]>,
        /// How they are joined, in a list of layers.
        text: &'static str,
        /// How they are joined, below the branches.
        join: &'static str,
    },
    /// Another call of an earlier module: one layer.
    Again(&'a [ResolvedLayer]),
    /// Layers that are never called.
    Unused(&'a [ResolvedLayer]),
    /// The present value gets a name.
    Tap(&'a str),
    /// The following layers continue from a named value.
    From(&'a str),
}

/// A layer that computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Step<'a> {
    /// A description in terms of the recipe, without defaults.
    pub text: String,
    /// What kind of work it is.
    pub work: Work,
    /// Whether pictures show it in the box of the step before.
    pub rides: bool,
    /// Taps that it reads in addition to the current value.
    pub reads: Vec<&'a str>,
}

/// Kinds of work, by colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Convolutions.
    Conv,
    /// Dense layers.
    Dense,
    /// Pools and other changes of size.
    Size,
    /// Sums, concatenations, correlations.
    Join,
    /// The rest.
    Other,
}

impl<'a> Step<'a> {
    pub(crate) fn new(work: Work, text: impl Into<String>) -> Self {
        Self { text: text.into(), work, rides: false, reads: Vec::new() }
    }

    /// A small step that pictures show in the box of the one before.
    pub(crate) fn riding(text: impl Into<String>) -> Self {
        Self { rides: true, ..Self::new(Work::Other, text) }
    }

    /// A step that reads a tap in addition to the current value.
    pub(crate) fn reading(text: impl Into<String>, tap: &'a str) -> Self {
        Self { reads: vec![tap], ..Self::new(Work::Join, text) }
    }
}

impl<'a> From<Step<'a>> for Description<'a> {
    fn from(step: Step<'a>) -> Self {
        Self::Step(step)
    }
}

impl<'a> Description<'a> {
    /// The lists of layers inside.
    pub fn inside(self) -> Vec<&'a [ResolvedLayer]> {
        match self {
            Self::Row(body) | Self::Unused(body) | Self::Again(body) => vec![body],
            Self::Branches { lanes, .. } => lanes,
            Self::Step(_) | Self::Tap(_) | Self::From(_) => Vec::new(),
        }
    }
}

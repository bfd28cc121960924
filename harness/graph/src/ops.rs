//! The closed set of device operators, one file each with all properties of the operator ([`Operator`]).
//!
//! To add an operator, write its file, list it in the `operators!` table below, and follow the compiler errors: the
//! engine's kernels and ONNX match over [`Op`] without a wildcard.

mod adaptive_avg_pool;
mod add;
mod all_reduce;
mod assign;
mod avg_pool;
mod balanced_bce;
mod bias_add;
mod bias_add_grad;
mod bn_infer;
mod bn_running_update;
mod bn_training_grad;
mod bn_training_reduce;
mod bn_training_reduce_grad;
mod bn_training_update;
mod bn_training_update_grad;
mod cast;
mod clip;
mod collective;
mod concat;
mod conv2d;
mod conv2d_backprop_filter;
mod conv2d_backprop_input;
mod cumsum;
mod depthwise_correlation;
mod dropout;
mod extract_patches;
mod eye;
mod fill;
mod gather;
mod grouped_matmul;
mod l2_loss;
mod loss_scale;
mod lrn;
mod map;
mod mask_soft_margin;
mod matmul;
mod max_pool;
mod operand;
mod pad;
mod relu;
mod relu_grad;
mod reshape;
mod resize;
mod rounding;
mod routing;
mod scale;
mod scale_by;
mod slice;
mod softmax_cross_entropy;
mod split;
mod top_k;
mod trans_data;
mod transpose;
mod update;
mod weighted_sum;
mod window;
mod work;

pub use adaptive_avg_pool::{AdaptiveAvgPool, AdaptiveAvgPoolGrad, adaptive_range};
pub use add::Add;
pub use all_reduce::{AllReduce, GatherStatistics};
pub use assign::Assign;
pub use avg_pool::{AvgPool, AvgPoolGrad};
pub use balanced_bce::{BalancedBce, HardNegatives, MiningScope};
pub use bias_add::BiasAdd;
pub use bias_add_grad::BiasAddGrad;
pub use bn_infer::{BnInfer, BnInferGrad};
pub use bn_running_update::BnRunningUpdate;
pub use bn_training_grad::{BnTrainingGrad, GradRelu};
pub use bn_training_reduce::BnTrainingReduce;
pub use bn_training_reduce_grad::BnTrainingReduceGrad;
pub use bn_training_update::BnTrainingUpdate;
pub use bn_training_update_grad::BnTrainingUpdateGrad;
pub use cast::Cast;
pub use clip::{ClipByGlobalNorm, ClipByValue, clip_factor};
pub use collective::{Collective, Exchange};
pub use concat::Concat;
pub use conv2d::Conv2D;
pub use conv2d_backprop_filter::Conv2DBackpropFilter;
pub use conv2d_backprop_input::Conv2DBackpropInput;
pub use cumsum::Cumsum;
pub use depthwise_correlation::{DepthwiseCorrelation, DepthwiseCorrelationGrad};
pub use dropout::Dropout;
pub use extract_patches::{ExtractPatches, ExtractPatchesGrad};
pub use eye::Eye;
pub use fill::Fill;
pub use gather::{Gather, Indices, ScatterAdd};
pub use grouped_matmul::{GroupedMatMul, GroupedMatMulWeights};
pub use l2_loss::L2Loss;
pub use loss_scale::LossScale;
pub use lrn::{Lrn, LrnGrad};
pub use map::{DeviceName, Map};
pub use mask_soft_margin::{LogitLayout, MaskSoftMargin};
pub use matmul::{MatMul, Products};
pub use max_pool::{MaxPool, MaxPoolGrad};
pub use operand::{Element, Operand, OperandLayout, Read};
pub use pad::Pad;
pub use relu::{Rectifier, Relu};
pub use relu_grad::ReluGrad;
pub use reshape::Reshape;
pub use resize::{Interpolation, Resize, ResizeGrad, ResizeTap};
use rounding::smallest_plane;
pub use rounding::{Normalisation, Rounding, Summed};
pub use routing::{Combine, CombineGrad, Dispatch};
pub use scale::Scale;
pub use scale_by::ScaleBy;
pub use slice::Slice;
pub use softmax_cross_entropy::{SmoothingOver, SoftmaxCrossEntropy};
pub use split::Split;
pub use top_k::TopK;
pub use trans_data::TransData;
pub use transpose::Transpose;
pub use update::{DecayTerm, Group, LongestStep, Update};
pub use weighted_sum::WeightedSum;
pub use window::Window;
pub use work::{Kind, Product, Work};

use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::{C0, DType, Layout, Shape, TensorType},
    units::{Bytes, Flop},
};
use thiserror::Error;

/// Why an operator cannot be applied to its operands.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum OpError {
    /// Wrong number of operands.
    #[error("takes {expected} operands, not {found}")]
    Arity {
        /// The expected number of operands.
        expected: &'static str,
        /// The given number of operands.
        found: usize,
    },
    /// An operand of the wrong shape.
    #[error("{operand} has shape {found}, expected {expected}")]
    Shape {
        /// Which operand.
        operand: &'static str,
        /// The requirement of the operator.
        expected: String,
        /// The given shape.
        found: Shape,
    },
    /// An operand of the wrong element type.
    #[error("{operand} is {found}, expected {expected}")]
    DType {
        /// Which operand.
        operand: &'static str,
        /// The requirement of the operator.
        expected: &'static str,
        /// The given type.
        found: DType,
    },
    /// A window that does not fit.
    #[error(
        "a {kernel_h}x{kernel_w} window (dilation included) does not fit into {h}x{w} (padding included): \
         make the kernel smaller, the padding larger, or pool less before"
    )]
    Window {
        /// Extent of the window with its dilation.
        kernel_h: usize,
        /// Extent of the window with its dilation.
        kernel_w: usize,
        /// Extent of the padded map.
        h: usize,
        /// Extent of the padded map.
        w: usize,
    },
    /// An invalid attribute.
    #[error("{0}")]
    Attribute(String),
    /// A result with too many elements.
    #[error("the result has too many elements")]
    TooLarge,
    /// Differentiation reached an operator without a gradient.
    #[error("{0} has no gradient: it cannot be used between a parameter and the loss")]
    NoGradient(&'static str),
}

/// The cost of one application of an operator, independent of devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Floating-point operations; a multiply-accumulate is two.
    pub flop: Flop,
    /// Bytes read and written if every operand is read and every result written once.
    pub bytes: Bytes,
}

/// The properties of every operator, for passes, engine and device clock. Properties that must not be forgotten have no
/// default.
pub trait Operator {
    /// The operator of a device that it represents, given its attributes: one of its names in the table below, the
    /// first one by default.
    fn name(&self) -> Option<&'static str> {
        None
    }

    /// Shape rule: types of the results from the types of the operands.
    ///
    /// # Errors
    /// An operand that does not fit.
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError>;

    /// Floating-point operations of one application.
    fn flop(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Flop;

    /// How its kernels round, given the types of the operands.
    fn rounding(&self, inputs: &[&TensorType]) -> Rounding<'_>;

    /// How it reads its `i`-th operand. Any operator can read row-major operands in the type in which it computes.
    fn operand(&self, _i: usize) -> Operand {
        Operand::PLAIN
    }

    /// The work of a device in one application, as a count of operations unless there is a better estimate.
    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::counted(self.flop(inputs, outputs), inputs, outputs)
    }

    /// The kind of the operator, for fusion and skipped updates.
    fn kind(&self) -> Kind {
        Kind::Other
    }

    /// Whether a result mixes samples, which are the elements along the first axis: such a network cannot be exported
    /// for any number of samples.
    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        true
    }

    /// Adds the nodes of the gradient.
    ///
    /// # Errors
    /// The operator has no gradient, or operands do not fit.
    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        Err(grad.refuse(grad.operator()))
    }

    /// Whether its results are constants of the step: no gradient passes, and differentiation adds nothing before it.
    fn stops_gradient(&self) -> bool {
        false
    }

    /// The settings of parameter groups, for an [`Update::Optimizer`].
    fn group(&mut self) -> Option<&mut Group> {
        None
    }

    /// Pairs (operand, result) that may share memory: the result may overwrite the operand.
    fn in_place(&self) -> &[(usize, usize)] {
        &[]
    }

    /// The operand whose elements are numbers of rows or classes, and how many of these there are.
    fn numbered(&self, _inputs: &[&TensorType]) -> Option<(usize, usize)> {
        None
    }

    /// Whether its result is its operand as stored: both share memory while both are read. [`Operator::in_place`] must
    /// allow this.
    fn is_view(&self) -> bool {
        false
    }

    /// How it is split over ranks if they have a part of an operand or result. `None`: its operands are put together
    /// first, and each rank computes all of it.
    fn way(&self, _call: Call<'_>, _known: Slot, _part: &Part) -> Option<Way> {
        None
    }

    /// Whether a result only contains elements of the operands, or zeros, so that rounding it again changes nothing.
    fn passes_on(&self, _result: usize, inputs: &[&TensorType]) -> bool {
        self.rounding(inputs) == Rounding::Moves
    }
}

macro_rules! operators {
    ($($name:ident: $names:expr,)*) => {
        /// Any operator of the closed set.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant is documented by its own type")]
        pub enum Op { $($name($name)),* }

        impl Op {
            /// The operator's rules.
            pub fn rules(&self) -> &dyn Operator {
                match self { $(Self::$name(op) => op),* }
            }

            /// The device's name of the operator.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$name(op) => op.name().unwrap_or($name::NAMES[0])),* }
            }

            /// All device names of operators.
            pub fn names() -> impl Iterator<Item = &'static str> {
                [$($name::NAMES),*].into_iter().flatten().copied()
            }

            /// See [`Operator::group`].
            pub fn group(&mut self) -> Option<&mut Group> {
                match self { $(Self::$name(op) => op.group()),* }
            }
        }

        $(impl $name {
            /// The names of the operators of devices that it can represent.
            pub const NAMES: &[&str] = &$names;
        }

        impl From<$name> for Op {
            fn from(op: $name) -> Self { Self::$name(op) }
        })*
    };
}

operators! {
    AdaptiveAvgPool: ["ReduceMeanD", "AdaptiveAvgPool2d"],
    AdaptiveAvgPoolGrad: ["AdaptiveAvgPool2dGrad"],
    Add: ["AddN"],
    AllReduce: ["HcomAllReduce"],
    Assign: assign::NAMES,
    AvgPool: ["AvgPool"],
    AvgPoolGrad: ["AvgPoolGrad"],
    BalancedBce: ["BalancedBCETopK", "BalancedBCESortMask"],
    BiasAdd: ["BiasAdd"],
    BiasAddGrad: ["BiasAddGrad"],
    BnInfer: ["BNInfer"],
    BnInferGrad: ["BNInferGrad"],
    BnRunningUpdate: ["BNRunningUpdate"],
    BnTrainingGrad: ["BNTrainingGrad", "BNTrainingGradRelu", "BNTrainingGradAddRelu"],
    BnTrainingReduce: ["BNTrainingReduce"],
    BnTrainingReduceGrad: ["BNTrainingReduceGrad"],
    BnTrainingUpdate: ["BNTrainingUpdate", "BNTrainingUpdateRelu", "BNTrainingUpdateAdd", "BNTrainingUpdateAddRelu"],
    BnTrainingUpdateGrad: ["BNTrainingUpdateGrad"],
    Cast: ["Cast"],
    ClipByGlobalNorm: ["ClipByGlobalNorm"],
    ClipByValue: ["ClipByValue"],
    Collective: collective::NAMES,
    Combine: ["MoeFinalizeRouting"],
    CombineGrad: ["MoeFinalizeRoutingGrad"],
    Concat: ["ConcatV2"],
    Conv2D: ["Conv2D", "Conv2DRelu", "Conv2DBNReduce"],
    Conv2DBackpropFilter: ["Conv2DBackpropFilter"],
    Conv2DBackpropInput: ["Conv2DBackpropInput"],
    Cumsum: ["Cumsum"],
    DepthwiseCorrelation: ["DepthwiseCorrelation"],
    DepthwiseCorrelationGrad: ["DepthwiseCorrelationGrad"],
    Dispatch: ["MoeInitRouting"],
    Dropout: ["DropOutDoMask"],
    ExtractPatches: ["ExtractImagePatches"],
    ExtractPatchesGrad: ["ExtractImagePatchesGrad"],
    Eye: ["Eye"],
    Fill: ["Fill"],
    Gather: ["GatherV2"],
    GatherStatistics: ["BNGatherStatistics"],
    GroupedMatMul: ["GroupedMatmul"],
    GroupedMatMulWeights: ["GroupedMatmulGrad"],
    L2Loss: ["L2Loss"],
    LossScale: ["Mul"],
    Lrn: ["LRN"],
    LrnGrad: ["LRNGrad"],
    Map: map::NAMES,
    MaskSoftMargin: ["MaskSoftMarginLoss"],
    MatMul: ["MatMul"],
    MaxPool: ["MaxPool"],
    MaxPoolGrad: ["MaxPoolGrad"],
    Pad: ["PadD"],
    Relu: ["Relu", "Relu6"],
    ReluGrad: ["ReluGrad", "Relu6Grad"],
    Reshape: ["Reshape"],
    Resize: ["ResizeNearestNeighborV2", "ResizeBilinearV2"],
    ResizeGrad: ["ResizeNearestNeighborV2Grad", "ResizeBilinearV2Grad"],
    Scale: ["Muls"],
    ScaleBy: ["Mul"],
    ScatterAdd: ["UnsortedSegmentSum"],
    Slice: ["SliceD"],
    SoftmaxCrossEntropy: ["SoftmaxCrossEntropyWithLogits"],
    Split: ["SplitVD"],
    TopK: ["TopKV2"],
    TransData: ["TransData"],
    Transpose: ["TransposeD"],
    WeightedSum: ["AccumulateNV2"],
}

impl Op {
    /// The variables that it updates, if any.
    pub fn update(&self) -> Option<Update> {
        match self.rules().kind() {
            Kind::Update(update) => Some(update),
            Kind::Product
            | Kind::Normalisation
            | Kind::Activation
            | Kind::Elementwise
            | Kind::Sum
            | Kind::Statistics
            | Kind::Other => None,
        }
    }

    /// Whether a skipped step omits it.
    pub fn is_skipped(&self) -> bool {
        self.update().is_some_and(Update::is_skipped)
    }

    /// See [`Operator::infer`].
    ///
    /// # Errors
    /// An operand that does not fit.
    pub fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let types = self.rules().infer(inputs)?;
        match types.iter().find(|ty| !ty.dtype.is_float()) {
            None => Ok(types),
            // No kernel computes indices.
            Some(ty) => Err(OpError::DType { operand: "operand", expected: "numbers", found: ty.dtype }),
        }
    }

    /// Floating-point operations and bytes moved by one application.
    pub fn cost(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Cost {
        let bytes = inputs.iter().chain(outputs).map(|t| t.bytes()).sum();
        Cost { flop: self.rules().flop(inputs, outputs), bytes }
    }
}

/// Returns exactly `N` operands.
fn operands<'a, const N: usize>(
    inputs: &[&'a TensorType],
    expected: &'static str,
) -> Result<[&'a TensorType; N], OpError> {
    inputs.try_into().map_err(|_| OpError::Arity { expected, found: inputs.len() })
}

/// Returns the only operand, which has a floating-point type.
fn one_float<'a>(inputs: &[&'a TensorType]) -> Result<&'a TensorType, OpError> {
    let [x] = operands(inputs, "input")?;
    expect_float("input", x)?;
    Ok(x)
}

/// Returns the axes of an operand as `[n, c, h, w]`.
fn feature_map(operand: &'static str, ty: &TensorType) -> Result<[usize; 4], OpError> {
    ty.shape.nchw().ok_or_else(|| OpError::Shape { operand, expected: "NCHW (4 axes)".into(), found: ty.shape.clone() })
}

/// Requires that an operand has this shape.
fn expect_shape(operand: &'static str, ty: &TensorType, expected: &[usize]) -> Result<(), OpError> {
    if *ty.shape == *expected {
        return Ok(());
    }
    Err(OpError::Shape { operand, expected: Shape::from(expected).to_string(), found: ty.shape.clone() })
}

/// Requires that an operand has a floating-point type.
fn expect_float(operand: &'static str, ty: &TensorType) -> Result<(), OpError> {
    if ty.dtype.is_float() {
        return Ok(());
    }
    Err(OpError::DType { operand, expected: "a floating-point type", found: ty.dtype })
}

/// The number of samples: elements along the first axis of the first operand.
fn samples<'a>(inputs: &[&'a TensorType]) -> Option<&'a usize> {
    inputs.first().and_then(|ty| ty.shape.first())
}

/// The cost of an element-wise operator with the given number of operations per element.
fn per_element(operations: u64, ty: &TensorType) -> Flop {
    Flop(operations * ty.shape.numel() as u64)
}

/// Length in bytes of the contiguous runs when blocked maps are concatenated or split along their channels. `part` is
/// the smaller map. None in row-major order.
fn channel_run(inputs: &[&TensorType], outputs: &[&TensorType], part: &TensorType) -> Option<u64> {
    let y = outputs.first().filter(|y| y.layout == Layout::Nc1hwc0)?;
    let width = y.dtype.bytes().0;
    let whole_blocks = inputs.iter().chain(outputs).all(|ty| ty.shape.get(1).is_some_and(|c| c.is_multiple_of(C0)));
    let channels = part.shape.get(1).copied().unwrap_or(1).div_ceil(C0);
    let pixels = part.shape.iter().skip(2).product::<usize>();
    // Blocks of whole channels are contiguous; others are split lane by lane.
    Some(if whole_blocks { (channels * pixels * C0) as u64 * width } else { 2 * width })
}

/// Requires that two operands with the same shape also have the same element type and layout.
fn expect_same_storage(operand: &'static str, first: &TensorType, other: &TensorType) -> Result<(), OpError> {
    if (first.dtype, first.layout) == (other.dtype, other.layout) {
        return Ok(());
    }
    Err(OpError::Attribute(format!("{operand} is {other}, the first operand {first}")))
}

//! Reference kernels: the definition of every operator, in any floating-point type.
//!
//! Products and moves of whole tensors use candle where it is accurate. All other kernels are loops that compute each
//! element in f64 and round it once, so the error of a kernel in f32 is that of one rounding. f16 and bf16 values are
//! stored as f32 and rounded by the simulation of a device. Graphs must be row-major; only `TransData` can have
//! blocked operands.
//!
//! Work is divided by shapes and sums have a fixed order, so results have the same bits for any number of threads.
//! (This also holds for candle's `gemm`: its threads share output tiles, and the division of the summed axis only
//! depends on the shape and the caches of the processor.)

mod activation;
mod arithmetic;
mod average;
mod balanced_bce;
mod columns;
mod conv;
mod correlation;
mod cumsum;
mod executor;
mod formula;
mod gather;
mod grouped;
mod loss;
mod lrn;
mod mask_soft_margin;
mod matmul;
mod max_pool;
mod norm;
mod patches;
mod resize;
mod routing;
mod shape;
mod top_k;
mod transfer;

pub(crate) use executor::Executor;

use crate::{EngineError, KernelError, Scalars};
use candle_core::{FloatDType, Tensor};
use zoo_graph::{
    Bytes, DType, Graph, GraphError, Node, Op, Shape, TensorType,
    ops::{Product, Work},
};
use zoo_ranks::Ranks;

/// The result of a kernel: the results of the operator, or an error.
type Results = Result<Vec<Tensor>, KernelError>;

/// The operands of a node, with context that is not in the attributes of the operator.
pub(crate) struct Call<'a> {
    /// Values of the operands.
    pub operands: &'a [Tensor],
    /// Types of the operands.
    pub operand_types: &'a [&'a TensorType],
    /// Types of the results.
    pub result_types: &'a [&'a TensorType],
    /// Learning rate, step, seed.
    pub scalars: Scalars,
    pub ranks: &'a Ranks,
}

impl Call<'_> {
    /// The operands, if there are `N`.
    fn take<const N: usize>(&self) -> Result<[&Tensor; N], KernelError> {
        let found = self.operands.len();
        match <&[Tensor; N]>::try_from(self.operands) {
            Ok(operands) => Ok(operands.each_ref()),
            Err(_) => Err(KernelError::Arity { found }),
        }
    }

    /// The first `N` operands, and one more if it exists.
    fn take_with_optional<const N: usize>(&self) -> Result<([&Tensor; N], Option<&Tensor>), KernelError> {
        let found = self.operands.len();
        match self.operands.split_first_chunk::<N>() {
            Some((first, [])) => Ok((first.each_ref(), None)),
            Some((first, [last])) => Ok((first.each_ref(), Some(last))),
            _ => Err(KernelError::Arity { found }),
        }
    }
}

/// Computes an operator in the floating-point type of its first result.
///
/// # Errors
/// Labels out of range, or an element type that is not a float.
pub(crate) fn compute(op: &Op, call: &Call<'_>) -> Results {
    let [first, ..] = call.result_types else { return Err(KernelError::Arity { found: 0 }) };
    match first.dtype {
        // Half-precision values are stored as f32, and rounded by the simulation.
        DType::F16 | DType::Bf16 | DType::F32 => dispatch::<f32>(op, call),
        DType::F64 => dispatch::<f64>(op, call),
        DType::U32 => Err(KernelError::DType(DType::U32)),
    }
}

/// Computes one operator on row-major tensors, outside of a graph: floats in f64, or all of them in f32; class
/// indices in u32.
///
/// # Errors
/// Operands that do not fit the operator, or labels out of range. `name` is the name of the node in errors.
pub fn evaluate(name: &str, op: &Op, operands: &[Tensor], scalars: Scalars) -> Result<Vec<Tensor>, EngineError> {
    let operand_types: Vec<TensorType> = operands.iter().map(type_of).collect();
    let operand_types: Vec<&TensorType> = operand_types.iter().collect();
    let result_types = infer(name, op, &operand_types)?;
    let result_types: Vec<&TensorType> = result_types.iter().collect();
    let call =
        Call { operands, operand_types: &operand_types, result_types: &result_types, scalars, ranks: &Ranks::alone() };
    compute(op, &call).map_err(|source| EngineError::Node { name: name.to_owned(), op: op.name(), source })
}

/// The types of the results of a node.
pub(crate) fn infer(name: &str, op: &Op, operands: &[&TensorType]) -> Result<Vec<TensorType>, GraphError> {
    op.infer(operands).map_err(|source| GraphError::Shape { name: name.to_owned(), origin: None, source })
}

/// The type of a row-major tensor.
pub(crate) fn type_of(tensor: &Tensor) -> TensorType {
    let known = [(candle_core::DType::U32, DType::U32), (candle_core::DType::F32, DType::F32)];
    let dtype = known.iter().find(|(theirs, _)| *theirs == tensor.dtype()).map_or(DType::F64, |(_, ours)| *ours);
    TensorType::plain(Shape::from(tensor.dims()), dtype)
}

fn dispatch<T: FloatDType>(op: &Op, call: &Call<'_>) -> Results {
    Ok(match op {
        Op::AdaptiveAvgPool(op) => vec![average::adaptive::<T>(op, call.take()?)?],
        Op::AdaptiveAvgPoolGrad(op) => vec![average::adaptive_grad::<T>(op, call.take()?)?],
        Op::Add(_) => vec![arithmetic::add::<T>(call.operands)?],
        Op::AllReduce(_) => transfer::all_reduce(call)?,
        Op::GatherStatistics(_) => transfer::gather_statistics(call)?,
        Op::Assign(op) => formula::assign::<T>(op, call)?,
        Op::AvgPool(op) => vec![average::pool::<T>(op, call.take()?)?],
        Op::AvgPoolGrad(op) => vec![average::pool_grad::<T>(op, call.take()?)?],
        Op::BalancedBce(op) => balanced_bce::balanced_bce::<T>(op, call.take()?)?,
        Op::BiasAdd(_) => {
            let [x, bias] = call.take()?;
            vec![matmul::add_per_channel::<T>(x, bias)?]
        }
        Op::BiasAddGrad(_) => vec![norm::bias_grad::<T>(call.take()?)?],
        Op::BnInfer(op) => vec![norm::infer::<T>(op, call.take()?)?],
        Op::BnInferGrad(op) => vec![norm::infer_grad::<T>(op, call.take()?)?],
        Op::BnRunningUpdate(op) => norm::running_statistics::<T>(op, call.take()?)?,
        Op::BnTrainingGrad(op) => {
            let (operands, behind) = call.take_with_optional()?;
            norm::all_grads::<T>(op, operands, behind)?
        }
        Op::BnTrainingReduce(_) => norm::statistics::<T>(call.take()?)?,
        Op::BnTrainingReduceGrad(op) => vec![norm::input_grad::<T>(op.eps, call.take()?)?],
        Op::BnTrainingUpdate(op) => {
            let (operands, residual) = call.take_with_optional()?;
            vec![norm::normalize::<T>(op, operands, residual)?]
        }
        Op::BnTrainingUpdateGrad(op) => norm::scale_shift_grad::<T>(op.eps, call.take()?)?,
        Op::Cast(_) => {
            let [x] = call.take()?;
            vec![x.to_dtype(T::DTYPE)?]
        }
        Op::ClipByGlobalNorm(op) => arithmetic::clip_by_global_norm::<T>(op, call.operands)?,
        Op::ClipByValue(op) => vec![arithmetic::clip_by_value::<T>(op, call.take()?)?],
        Op::Combine(op) => vec![routing::combine::<T>(op, call.take()?)?],
        Op::CombineGrad(_) => routing::combine_grad::<T>(call.take()?)?,
        Op::Collective(_) => return Err(KernelError::Alone),
        Op::Concat(op) => vec![shape::concat(op, call.operands)?],
        Op::Conv2D(op) => {
            let (operands, bias) = call.take_with_optional()?;
            conv::forward::<T>(op, operands, bias)?
        }
        Op::Conv2DBackpropFilter(op) => vec![conv::filter_grad::<T>(op, call.take()?)?],
        Op::Conv2DBackpropInput(op) => vec![conv::input_grad::<T>(op, call.take()?)?],
        Op::Cumsum(op) => vec![cumsum::cumsum::<T>(op, call.take()?)?],
        Op::DepthwiseCorrelation(_) => vec![correlation::forward::<T>(call.take()?)?],
        Op::DepthwiseCorrelationGrad(op) => vec![correlation::grad::<T>(op, call.take()?)?],
        Op::Dispatch(op) => vec![routing::dispatch::<T>(op, call.take()?)?],
        Op::Dropout(op) => vec![activation::dropout::<T>(op, call.take()?, call.scalars)?],
        Op::ExtractPatches(op) => vec![patches::forward::<T>(op, call.take()?)?],
        Op::ExtractPatchesGrad(op) => vec![patches::grad::<T>(op, call.take()?)?],
        Op::Eye(op) => vec![arithmetic::eye::<T>(op)?],
        Op::Fill(op) => vec![arithmetic::fill::<T>(op)?],
        Op::Gather(op) => vec![gather::gather::<T>(op, call.operands)?],
        Op::GroupedMatMul(op) => vec![grouped::product::<T>(op, call.take()?)?],
        Op::GroupedMatMulWeights(op) => vec![grouped::weights::<T>(op, call.take()?)?],
        Op::L2Loss(_) => vec![arithmetic::l2_loss::<T>(call.take()?)?],
        Op::Lrn(op) => vec![lrn::forward::<T>(op, call.take()?)?],
        Op::LrnGrad(op) => vec![lrn::grad::<T>(op, call.take()?)?],
        Op::Map(op) => formula::map::<T>(op, call)?,
        Op::MaskSoftMargin(op) => mask_soft_margin::mask_soft_margin::<T>(op, call.take()?)?,
        Op::MatMul(op) => {
            let (operands, bias) = call.take_with_optional()?;
            vec![matmul::matmul::<T>(op, operands, bias)?]
        }
        Op::MaxPool(op) => vec![max_pool::forward::<T>(&op.window, call.take()?)?],
        Op::MaxPoolGrad(op) => vec![max_pool::grad::<T>(&op.window, call.take()?)?],
        Op::Pad(op) => vec![shape::pad(op, call.take()?)?],
        Op::Relu(op) => vec![activation::relu::<T>(op.rectifier, call.take()?)?],
        Op::ReluGrad(op) => vec![activation::relu_grad::<T>(op.rectifier, call.take()?)?],
        Op::Reshape(op) => vec![shape::reshape(op, call.take()?)?],
        Op::Resize(op) => vec![resize::forward::<T>(op, call.take()?)?],
        Op::ResizeGrad(op) => vec![resize::grad::<T>(op, call.take()?)?],
        Op::LossScale(op) => {
            let factor = op.factor(call.scalars.loss_scale);
            vec![arithmetic::scale::<T>(&zoo_graph::ops::Scale { factor }, call.take()?)?]
        }
        Op::Scale(op) => vec![arithmetic::scale::<T>(op, call.take()?)?],
        Op::ScaleBy(_) => vec![arithmetic::scale_by::<T>(call.take()?)?],
        Op::ScatterAdd(op) => vec![gather::scatter_add::<T>(op, call.operands)?],
        Op::Slice(op) => vec![shape::slice(op, call.take()?)?],
        Op::Split(op) => shape::split(op, call.take()?)?,
        Op::SoftmaxCrossEntropy(op) => loss::softmax_cross_entropy::<T>(op, call.take()?)?,
        Op::TopK(op) => vec![top_k::top_k::<T>(op, call.take()?)?],
        Op::TransData(_) => vec![shape::trans_data(call.take()?, call.operand_types, call.result_types)?],
        Op::Transpose(op) => vec![shape::transpose(op, call.take()?)?],
        Op::WeightedSum(op) => vec![arithmetic::weighted_sum::<T>(op, call.operands)?],
    })
}

/// The workspace of a node: products copy their operands into the required order, and convolutions lay out the input as
/// a matrix.
pub(crate) fn scratch(graph: &Graph, node: &Node) -> Bytes {
    let (operands, results) = (graph.types(&node.inputs), graph.types(&node.outputs));
    let Work::Product { product, .. } = node.op.rules().work(&operands, &results) else { return Bytes(0) };
    let matrix = match product {
        Product::Convolution(conv) => conv::matrix_elements(conv, operands[0], results[0]),
        Product::ConvolutionInput(conv) => conv::matrix_elements(conv, results[0], operands[0]),
        Product::ConvolutionFilter(conv) => conv::matrix_elements(conv, operands[0], operands[1]),
        Product::Matrices(_) | Product::Groups(_) | Product::GroupGradients(_) => 0,
    };
    let values: u64 = node.inputs.iter().chain(&node.outputs).map(|v| graph.ty(*v).bytes().0).sum();
    Bytes(values + matrix as u64 * operands[0].dtype.bytes().0)
}

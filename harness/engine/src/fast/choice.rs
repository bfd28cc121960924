//! The choice of a kernel for a node, shared by execution and memory forecast.

use super::{
    call::{Call, factors},
    conv, dense, elementwise, formula, gather, grouped, loss, matmul, norm, pool, routing, shape, transfer, update,
};
use crate::{KernelError, simulate::Range};
use zoo_graph::{Layout, Op, TensorType};
use zoo_kernels::{
    Isa,
    conv::{filter_workspace_len, forward_workspace_len, input_workspace_len},
    max_pool::MOST_TAPS,
};

/// Computes a node with these operands and results.
type Run<'a> = dyn FnOnce(Call<'_>) -> Result<(), KernelError> + 'a;

/// A fast kernel for a node.
pub(super) struct FastKernel<'a> {
    /// Number of elements that it needs in addition to operands and results.
    pub workspace: usize,
    /// Computes the node.
    pub run: Box<Run<'a>>,
}

impl FastKernel<'_> {
    fn with_workspace(self, workspace: usize) -> Self {
        Self { workspace, ..self }
    }
}

/// A kernel without workspace.
fn fast<'a>(run: impl FnOnce(Call<'_>) -> Result<(), KernelError> + 'a) -> FastKernel<'a> {
    FastKernel { workspace: 0, run: Box::new(run) }
}

/// The fast kernel of an operator for operands and results of these types. `None` if there is none; then the
/// reference kernel computes the operator on row-major copies.
pub(super) fn choose<'a>(
    isa: Isa,
    range: Option<Range>,
    op: &'a Op,
    operands: &[&TensorType],
    results: &[&TensorType],
) -> Option<FastKernel<'a>> {
    let factors = factors(isa, range, operands);
    let blocked = operands.first().is_some_and(|ty| ty.layout == Layout::Nc1hwc0);
    let is_packed = |ty: Option<&&TensorType>| ty.is_some_and(|ty| matches!(ty.layout, Layout::FractalZ { .. }));
    let if_blocked = |kernel: FastKernel<'a>| blocked.then_some(kernel);
    match op {
        Op::Conv2D(op) => is_packed(operands.get(1)).then(|| {
            let workspace = conv::workspace(forward_workspace_len, factors, op, [operands[0], operands[1]]);
            fast(|call| conv::forward(op, call)).with_workspace(workspace)
        }),
        Op::Conv2DBackpropFilter(op) => is_packed(results.first()).then(|| {
            let workspace = conv::workspace(filter_workspace_len, factors, &op.conv, [operands[0], results[0]]);
            fast(|call| conv::filter_gradient(op, call)).with_workspace(workspace)
        }),
        Op::Conv2DBackpropInput(op) => is_packed(operands.get(1)).then(|| {
            let workspace = conv::workspace(input_workspace_len, factors, &op.conv, [results[0], operands[1]]);
            fast(|call| conv::input_gradient(op, call)).with_workspace(workspace)
        }),
        Op::MatMul(op) => matmul::Kernel::of(op, operands).map(|kernel| {
            let workspace = kernel.workspace_len(factors);
            fast(move |call| kernel.run(op, call)).with_workspace(workspace)
        }),
        Op::Add(_) => Some(fast(elementwise::add)),
        Op::AllReduce(_) => Some(fast(transfer::all_reduce)),
        Op::GatherStatistics(_) => Some(fast(transfer::gather_statistics)),
        Op::Relu(op) => Some(fast(|call| elementwise::relu(op, call))),
        Op::ReluGrad(op) => Some(fast(|call| elementwise::relu_gradient(op, call))),
        Op::LossScale(op) => Some(fast(|call| elementwise::scale(op.factor(call.scalars.loss_scale), call))),
        Op::Scale(op) => Some(fast(|call| elementwise::scale(op.factor, call))),
        Op::ScaleBy(_) => Some(fast(elementwise::scale_by)),
        Op::Dropout(op) => Some(fast(|call| elementwise::dropout(op, call))),
        Op::BiasAdd(_) => if_blocked(fast(dense::bias_add)),
        Op::BiasAddGrad(_) => {
            let rows = operands.first().is_some_and(|ty| ty.shape.len() == 2);
            (blocked || rows).then(|| fast(norm::bias_gradient))
        }
        Op::BnTrainingReduce(_) => if_blocked(fast(norm::statistics)),
        Op::BnTrainingUpdate(op) => if_blocked(fast(|call| norm::normalise(op, call))),
        Op::BnTrainingUpdateGrad(op) => if_blocked(fast(|call| norm::gradient_sums(op, call))),
        Op::BnTrainingReduceGrad(op) => if_blocked(fast(|call| norm::input_gradient(op, call))),
        Op::BnTrainingGrad(op) => if_blocked(fast(|call| norm::gradient(op, call))),
        Op::BnInfer(op) => if_blocked(fast(|call| norm::infer(op, call))),
        Op::BnInferGrad(op) => if_blocked(fast(|call| norm::infer_gradient(op, call))),
        Op::BnRunningUpdate(op) => Some(fast(|call| norm::running(op, call))),
        Op::MaxPool(op) => if_blocked(fast(|call| pool::max(op, call))),
        Op::MaxPoolGrad(op) => {
            (blocked && op.window.taps() <= MOST_TAPS).then(|| fast(|call| pool::max_gradient(op, call)))
        }
        Op::AvgPool(op) => if_blocked(fast(|call| pool::average(op, call))),
        Op::AvgPoolGrad(op) => if_blocked(fast(|call| pool::average_gradient(op, call))),
        Op::AdaptiveAvgPool(op) => if_blocked(fast(|call| pool::adaptive(op, call))),
        Op::AdaptiveAvgPoolGrad(op) => if_blocked(fast(|call| pool::adaptive_gradient(op, call))),
        Op::Lrn(op) => if_blocked(fast(|call| pool::lrn(op, call))),
        Op::LrnGrad(op) => if_blocked(fast(|call| pool::lrn_gradient(op, call))),
        Op::Pad(op) if blocked => {
            let within = shape::within(&op.before, &op.after)?;
            Some(fast(move |call| shape::pad(within, call)))
        }
        Op::Pad(op) => Some(fast(|call| shape::pad_rows(op, call))),
        Op::Slice(op) if blocked => {
            let within = shape::within(&op.start, &shape::after(op, operands.first()?))?;
            Some(fast(move |call| shape::slice(within, call)))
        }
        Op::Slice(op) => Some(fast(|call| shape::slice_rows(op, call))),
        Op::Concat(op) if blocked => (op.axis == 1).then(|| fast(shape::concat)),
        Op::Concat(op) => Some(fast(|call| shape::concat_rows(op.axis, call))),
        Op::Split(op) if blocked => (op.axis == 1).then(|| fast(shape::split)),
        Op::Split(op) => Some(fast(|call| shape::split_rows(op.axis, call))),
        Op::Transpose(op) => Some(fast(|call| shape::transpose(op, call))),
        Op::Gather(op) => Some(fast(|call| gather::gather(op, call))),
        Op::ScatterAdd(op) => Some(fast(|call| gather::scatter_add(op, call))),
        Op::Cast(_) => Some(fast(elementwise::copy)),
        Op::Reshape(_) => Some(fast(shape::reshape)),
        Op::TransData(_) => Some(fast(shape::trans_data)),
        Op::Eye(op) => Some(fast(|call| elementwise::eye(op.size, call))),
        Op::Fill(op) => Some(fast(|call| elementwise::fill(op.value, call))),
        Op::L2Loss(_) => Some(fast(loss::l2)),
        Op::SoftmaxCrossEntropy(op) => Some(fast(|call| loss::softmax_cross_entropy(op, call))),
        Op::WeightedSum(op) => Some(fast(|call| loss::weighted_sum(&op.weights, call))),
        Op::Assign(op) => Some(fast(|call| formula::assign(op, call))),
        Op::ClipByValue(op) => Some(fast(|call| update::clip_by_value(op, call))),
        Op::ClipByGlobalNorm(op) => Some(fast(|call| dense::global_norm(op.bound, call))),
        Op::Resize(op) => if_blocked(fast(|call| dense::resize(op, call))),
        Op::ResizeGrad(op) => if_blocked(fast(|call| dense::resize_gradient(op, call))),
        Op::DepthwiseCorrelation(_) => if_blocked(fast(dense::correlation)),
        Op::DepthwiseCorrelationGrad(op) => if_blocked(fast(|call| dense::correlation_gradient(op, call))),
        Op::ExtractPatches(op) => Some(fast(|call| dense::patches(op, call))),
        Op::ExtractPatchesGrad(op) => Some(fast(|call| dense::patches_gradient(op, call))),
        Op::Map(op) => Some(fast(|call| formula::map(op, call))),
        Op::MaskSoftMargin(op) => Some(fast(|call| dense::mask_soft_margin(op, call))),
        Op::GroupedMatMul(op) => {
            let workspace = grouped::workspace(op, operands, factors);
            Some(fast(|call| grouped::product(op, call)).with_workspace(workspace))
        }
        Op::GroupedMatMulWeights(op) => {
            let workspace = grouped::weights_workspace(op, operands, factors);
            Some(fast(|call| grouped::weights(op, call)).with_workspace(workspace))
        }
        Op::Dispatch(op) => Some(fast(|call| routing::dispatch(op, call))),
        Op::Combine(op) => Some(fast(|call| routing::combine(op, call))),
        Op::CombineGrad(_) => Some(fast(routing::combine_gradient)),
        Op::BalancedBce(_) | Op::Collective(_) | Op::Cumsum(_) | Op::TopK(_) => None,
    }
}

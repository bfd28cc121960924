//! Work of the Vector units: instructions per element, by operator.
//!
//! Counts are those of a straight implementation (loads and stores are moved by other units): a normalisation's update
//! subtracts, multiplies, multiplies and adds; a window of `k x k` compares and selects at each tap. Normalisations and
//! everything behind a product compute in f32, whatever type they read.

use zoo_graph::{Graph, Node, Op, TensorType};

/// Instructions of a kernel, in bytes of operands that pass through the Vector units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VectorWork {
    /// Streams of whole tensors.
    pub streaming: f64,
    /// Overlapping windows.
    pub windows: f64,
}

impl VectorWork {
    fn of(elements: u64, instructions: u64, width: u64) -> Self {
        Self { streaming: (elements * instructions * width) as f64, windows: 0.0 }
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self { streaming: self.streaming + other.streaming, windows: self.windows + other.windows }
    }
}

/// Bytes of an f32.
const F32: u64 = 4;

/// The work of one node.
pub fn work(graph: &Graph, node: &Node) -> VectorWork {
    let ty = |v: &zoo_graph::ValueId| graph.ty(*v);
    let (Some(first), Some(result)) = (node.inputs.first().map(ty), node.outputs.first().map(ty)) else {
        return VectorWork::default();
    };
    let size = |ty: &TensorType| ty.stored_numel() as u64;
    let width = result.dtype.bytes().0;
    let window = |ty: &TensorType, instructions: usize| VectorWork {
        streaming: 0.0,
        windows: (size(ty) * instructions as u64 * width) as f64,
    };
    match &node.op {
        Op::Conv2D(conv) => {
            let bias = u64::from(node.inputs.len() == 3);
            let instructions = 1 + bias + u64::from(conv.relu) + 3 * u64::from(conv.statistics);
            VectorWork::of(size(result), instructions, F32)
        }
        Op::Conv2DBackpropInput(_) | Op::Conv2DBackpropFilter(_) => VectorWork::of(size(result), 1, F32),
        Op::MatMul(_) => VectorWork::of(size(result), 1 + u64::from(node.inputs.len() == 3), F32),
        Op::BnTrainingReduce(_) => VectorWork::of(size(first), 3, F32),
        Op::BnTrainingUpdate(op) => VectorWork::of(size(result), 4 + u64::from(op.residual) + u64::from(op.relu), F32),
        Op::BnTrainingUpdateGrad(_) | Op::BnTrainingReduceGrad(_) => VectorWork::of(size(first), 7, F32),
        Op::BnTrainingGrad(_) => VectorWork::of(size(first), 14, F32),
        Op::BnInfer(_) | Op::BnInferGrad(_) => VectorWork::of(size(result), 4, F32),
        Op::MaxPool(op) => window(result, 2 * op.window.taps()),
        Op::MaxPoolGrad(op) => window(ty(&node.inputs[2]), 4 * op.window.taps()),
        Op::AvgPool(op) => window(result, op.window.taps() + 1),
        Op::AvgPoolGrad(op) => window(first, 2 * op.pool.window.taps() + 1),
        Op::Relu(_) | Op::Dropout(_) | Op::Scale(_) | Op::ScaleBy(_) | Op::LossScale(_) | Op::Cast(_) => {
            VectorWork::of(size(result), 1, first.dtype.bytes().0.max(width))
        }
        Op::ReluGrad(_) => VectorWork::of(size(result), 2, width),
        Op::Add(_) => VectorWork::of(size(result), node.inputs.len() as u64 - 1, width),
        // These move data and compute nothing.
        Op::Concat(_) | Op::Slice(_) | Op::Pad(_) | Op::TransData(_) | Op::Transpose(_) | Op::Reshape(_) => {
            VectorWork::default()
        }
        // What has no count of its own: one instruction per operation that its rule counts.
        other => {
            let inputs: Vec<&TensorType> = node.inputs.iter().map(ty).collect();
            let outputs: Vec<&TensorType> = node.outputs.iter().map(ty).collect();
            let flop = other.cost(&inputs, &outputs).flop.0;
            VectorWork::of(flop.max(size(result)), 1, width.max(first.dtype.bytes().0))
        }
    }
}

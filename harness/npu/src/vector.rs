//! Work of the Vector units: instructions per element, by operator.
//!
//! Counts are those of a straight implementation (loads and stores are moved by other units): a normalisation's update
//! subtracts, multiplies, multiplies and adds. Normalisations and everything behind a product compute in f32, whatever type
//! they read. Pools work row by row: at each tap of the window one instruction takes a row of the output map (the width
//! times a block of channels), so that narrow maps pay the start of an instruction for few elements.

use zoo_graph::{C0, Graph, Layout, Node, Op, TensorType};

/// Instructions of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VectorWork {
    /// Bytes of operands that pass through the Vector units.
    pub bytes: f64,
    /// Instructions whose start is not hidden.
    pub starts: f64,
}

impl VectorWork {
    /// So many instructions per element of a stream.
    fn stream(elements: u64, instructions: u64, width: u64) -> Self {
        Self { bytes: (elements * instructions * width) as f64, starts: 0.0 }
    }

    /// So many instructions per row of a map.
    fn rows(ty: &TensorType, instructions: usize) -> Self {
        let Some([n, c, h, _]) = ty.shape.nchw() else { return Self::default() };
        let channels = if ty.layout == Layout::Nc1hwc0 { c.div_ceil(C0) } else { c };
        let starts = (n * channels * h * instructions) as f64;
        Self { bytes: ty.bytes().0 as f64 * instructions as f64, starts }
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, starts: self.starts + other.starts }
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
    match &node.op {
        Op::Conv2D(conv) => {
            let bias = u64::from(node.inputs.len() == 3);
            let instructions = 1 + bias + u64::from(conv.relu) + 3 * u64::from(conv.statistics);
            VectorWork::stream(size(result), instructions, F32)
        }
        Op::Conv2DBackpropInput(_) | Op::Conv2DBackpropFilter(_) => VectorWork::stream(size(result), 1, F32),
        Op::MatMul(_) => VectorWork::stream(size(result), 1 + u64::from(node.inputs.len() == 3), F32),
        Op::BnTrainingReduce(_) => VectorWork::stream(size(first), 3, F32),
        Op::BnTrainingUpdate(op) => {
            VectorWork::stream(size(result), 4 + u64::from(op.residual) + u64::from(op.relu), F32)
        }
        Op::BnTrainingUpdateGrad(_) | Op::BnTrainingReduceGrad(_) => VectorWork::stream(size(first), 7, F32),
        Op::BnTrainingGrad(_) => VectorWork::stream(size(first), 14, F32),
        Op::BnInfer(_) | Op::BnInferGrad(_) => VectorWork::stream(size(result), 4, F32),
        // Forward: compare, select. Backward: compare, select, convert, add to what overlaps.
        Op::MaxPool(op) => VectorWork::rows(result, 2 * op.window.taps()),
        Op::MaxPoolGrad(op) => VectorWork::rows(ty(&node.inputs[2]), 4 * op.window.taps()),
        Op::AvgPool(op) => VectorWork::rows(result, op.window.taps() + 1),
        Op::AvgPoolGrad(op) => VectorWork::rows(first, op.pool.window.taps() + 1),
        Op::Relu(_) | Op::Dropout(_) | Op::Scale(_) | Op::ScaleBy(_) | Op::LossScale(_) | Op::Cast(_) => {
            VectorWork::stream(size(result), 1, first.dtype.bytes().0.max(width))
        }
        Op::ReluGrad(_) => VectorWork::stream(size(result), 2, width),
        Op::Add(_) => VectorWork::stream(size(result), node.inputs.len() as u64 - 1, width),
        // These move data and compute nothing.
        Op::Concat(_) | Op::Slice(_) | Op::Pad(_) | Op::TransData(_) | Op::Transpose(_) | Op::Reshape(_) => {
            VectorWork::default()
        }
        // What has no count of its own: one instruction per operation that its rule counts.
        other => {
            let inputs: Vec<&TensorType> = node.inputs.iter().map(ty).collect();
            let outputs: Vec<&TensorType> = node.outputs.iter().map(ty).collect();
            let flop = other.cost(&inputs, &outputs).flop.0;
            VectorWork::stream(flop.max(size(result)), 1, width.max(first.dtype.bytes().0))
        }
    }
}

//! Time of the Vector units: the instructions that each operator says it takes ([`zoo_graph::ops::Work`]), as bytes
//! that pass through them and starts that are not hidden.

use crate::{device::Device, matrix::is_depthwise};
use zoo_graph::{C0, DType, Graph, Layout, Node, TensorType, ops::Work};

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
    fn rows(ty: &TensorType, instructions: u64) -> Self {
        let Some([n, c, h, _]) = ty.shape.nchw() else { return Self::default() };
        let channels = if ty.layout == Layout::Nc1hwc0 { c.div_ceil(C0) } else { c };
        let starts = ((n * channels * h) as u64 * instructions) as f64;
        Self { bytes: ty.bytes().0 as f64 * instructions as f64, starts }
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, starts: self.starts + other.starts }
    }
}

/// The work of one node.
pub fn work(graph: &Graph, node: &Node, device: &Device) -> VectorWork {
    let [inputs, outputs] = [&node.inputs, &node.outputs].map(|values| graph.types(values));
    match node.op.rules().work(&inputs, &outputs) {
        Work::Nothing | Work::Moves { .. } => VectorWork::default(),
        Work::Stream { elements, instructions, width } => VectorWork::stream(elements, instructions, width),
        Work::Rows { map, instructions } => VectorWork::rows(&map, instructions),
        Work::Product { instructions, .. } => {
            let elements = outputs.first().map_or(0, |result| result.stored_numel());
            let epilogue = VectorWork::stream(elements as u64, instructions, DType::F32.bytes().0);
            if !(device.matrix.depthwise_on_vector && is_depthwise(graph, node)) {
                return epilogue;
            }
            // A load and a multiplication with addition for each tap, in f32.
            let operations = node.op.cost(&inputs, &outputs).flop.0;
            epilogue.plus(VectorWork::stream(operations, 1, DType::F32.bytes().0))
        }
    }
}

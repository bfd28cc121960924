//! Sums the gradient of a bias on the matrix engine.
//!
//! What: the `BiasAddGrad` of a feature map becomes the filter gradient of a 1x1 convolution over a map of ones,
//! which is the same sum; that of a matrix becomes the product with a row of ones. Why: if the Vector cores are the
//! bottleneck and the matrix engine is idle, a product with ones is free (the Gaudi guide's "replace some TPC
//! operations with their MME equivalents"). When not: layouts other than row-major. If the matrix engine is the
//! bottleneck, this costs time.

use super::{Pass, Patch, patch::Draft};
use crate::{
    error::GraphError,
    graph::{Graph, Scope},
    ops::{Conv2D, Conv2DBackpropFilter, Fill, MatMul, Op, Reshape, Window},
    tensor::{Layout, TensorType},
};

/// See the module's documentation. Runs before [`super::BlockedLayout`].
pub struct ReduceOnMatrix;

impl Pass for ReduceOnMatrix {
    fn name(&self) -> &'static str {
        "reduce_on_matrix"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let mut draft = Draft::new(graph);
        let mut count = 0;
        for (n, node) in graph.nodes.iter().enumerate().filter(|(_, node)| matches!(node.op, Op::BiasAddGrad(_))) {
            let (dy, ty) = (node.inputs[0], graph.ty(node.inputs[0]));
            let (Layout::Plain, Some((&images, rest))) = (ty.layout, ty.shape.split_first()) else { continue };
            let scope = Scope { phase: node.phase, origin: node.origin.clone() };
            let ones = |shape: Vec<usize>| Fill { value: 1.0, ty: TensorType::plain(shape, ty.dtype) };
            let name = |suffix: &str| format!("{}/{suffix}", node.name);
            let sum = match *rest {
                [_] => {
                    let row = draft.add(n, &scope, name("ones"), ones(vec![1, images]), &[])?;
                    let op = MatMul { transpose_a: false, transpose_b: false };
                    draft.add(n, &scope, name("product"), op, &[row, dy])?
                }
                [channels, h, w] => {
                    let map = draft.add(n, &scope, name("ones"), ones(vec![images, 1, h, w]), &[])?;
                    let conv = Conv2D::new(Window::new([1; 2], [1; 2]), 1);
                    let op = Conv2DBackpropFilter { conv, filter: [channels, 1, 1, 1].into() };
                    draft.add(n, &scope, name("product"), op, &[map, dy])?
                }
                _ => continue,
            };
            let op = Reshape { shape: graph.ty(node.outputs[0]).shape.clone() };
            draft.replace(n, crate::Node { op: op.into(), inputs: vec![sum], ..node.clone() });
            count += 1;
        }
        Ok(draft.finish(format!("{count} sums")))
    }
}

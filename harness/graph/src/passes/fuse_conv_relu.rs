//! Fuses a ReLU into the convolution before it.
//!
//! What: `Conv2D -> Relu` becomes one `Conv2D` with `relu`. Why: the feature map is written once instead of twice,
//! and read once less. When not: the activation is `Relu6`, or the output of the convolution has other readers, such
//! as a normalisation.

use super::{NewNode, Pass, Patch, readers};
use crate::{
    error::GraphError,
    graph::{Graph, Node, NodeId, Source},
    ops::{Conv2D, Op, Rectifier, Relu},
};

/// See the module's documentation.
pub struct FuseConvRelu;

impl Pass for FuseConvRelu {
    fn name(&self) -> &'static str {
        "fuse_conv_relu"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let readers = readers(graph);
        let relus = graph.nodes.iter().enumerate().filter(|(_, n)| n.op == Relu { rectifier: Rectifier::Relu }.into());
        Ok(relus.filter_map(|(n, relu)| fuse(graph, &readers, n, relu)).collect())
    }
}

fn fuse(graph: &Graph, readers: &[Vec<usize>], n: usize, relu: &Node) -> Option<Patch> {
    let input = relu.inputs[0];
    let Source::Node(NodeId(place), 0) = graph.value(input).source else { return None };
    let conv = &graph.nodes[place];
    let Op::Conv2D(op) = &conv.op else { return None };
    if op.statistics || op.relu || readers[input.0].len() != 1 {
        return None;
    }
    let node = Node { op: Conv2D { relu: true, ..op.clone() }.into(), outputs: relu.outputs.clone(), ..conv.clone() };
    Some(Patch {
        label: format!("{} into {}", relu.name, conv.name),
        remove: vec![NodeId(place), NodeId(n)],
        insert: vec![NewNode { node, near: place }],
        ..Patch::default()
    })
}

//! Fuses the statistics of a normalisation into the convolution before it.
//!
//! What: `Conv2D -> BNTrainingReduce` becomes one `Conv2D` with `statistics`. Why: each result of the convolution is
//! in a register when it is computed; a separate reduction would read all of them from memory. When not: the input of
//! the normalisation is not the output of a convolution.

use super::{NewNode, Pass, Patch};
use crate::{
    error::GraphError,
    graph::{Graph, Node, NodeId, Source},
    ops::{Conv2D, Op},
};
use std::collections::HashSet;

/// See the module's documentation.
pub struct FuseConvStatistics;

impl Pass for FuseConvStatistics {
    fn name(&self) -> &'static str {
        "fuse_conv_statistics"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        // A second normalisation of the same map keeps its own reduction.
        let mut taken = HashSet::new();
        let reductions = graph.nodes.iter().enumerate().filter(|(_, n)| matches!(n.op, Op::BnTrainingReduce(_)));
        Ok(reductions.filter_map(|(n, reduce)| fuse(graph, &mut taken, n, reduce)).collect())
    }
}

fn fuse(graph: &Graph, taken: &mut HashSet<usize>, n: usize, reduce: &Node) -> Option<Patch> {
    let Source::Node(NodeId(place), 0) = graph.value(reduce.inputs[0]).source else { return None };
    let conv = &graph.nodes[place];
    let Op::Conv2D(op) = &conv.op else { return None };
    if op.statistics || op.relu || !taken.insert(place) {
        return None;
    }
    let outputs = [conv.outputs[0], reduce.outputs[0], reduce.outputs[1]].to_vec();
    let node = Node { op: Conv2D { statistics: true, ..op.clone() }.into(), outputs, ..conv.clone() };
    Some(Patch {
        label: format!("{} into {}", reduce.name, conv.name),
        remove: vec![NodeId(place), NodeId(n)],
        insert: vec![NewNode { node, near: place }],
        ..Patch::default()
    })
}

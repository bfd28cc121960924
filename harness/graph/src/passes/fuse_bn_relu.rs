//! Fuses normalisation, residual addition and ReLU of the forward pass into one operator.
//!
//! What: `BNTrainingUpdate -> Relu` and `BNTrainingUpdate -> AddN -> Relu` become one `BNTrainingUpdate` with `relu`,
//! and the residual as its last operand. Why: each of them reads and writes the feature map in memory; after fusion,
//! it is read and written once. When not: another operator reads an intermediate value, or the sum has more than two
//! summands. If two normalisations are added (a projection shortcut), the one computed last is fused.

use super::{NewNode, Pass, Patch, readers};
use crate::{
    error::GraphError,
    graph::{Graph, Node, NodeId, Source, ValueId},
    ops::{BnTrainingUpdate, Op},
};

/// See the module's documentation.
pub struct FuseBnRelu;

impl Pass for FuseBnRelu {
    fn name(&self) -> &'static str {
        "fuse_bn_relu"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let readers = readers(graph);
        let fused = graph.nodes.iter().enumerate().filter_map(|(n, relu)| fuse(graph, &readers, n, relu));
        Ok(fused.collect())
    }
}

/// The patch for the ReLU at index `n`, if it ends a pattern.
fn fuse(graph: &Graph, readers: &[Vec<usize>], n: usize, relu: &Node) -> Option<Patch> {
    let Op::Relu(rectifier) = &relu.op else { return None };
    let normalisation = |v: ValueId| -> Option<(usize, &BnTrainingUpdate)> {
        let Source::Node(NodeId(b), _) = graph.value(v).source else { return None };
        let Op::BnTrainingUpdate(op) = &graph.nodes[b].op else { return None };
        (op.relu.is_none() && !op.residual && readers[v.0].len() == 1).then_some((b, op))
    };
    let input = relu.inputs[0];
    let (bn, op, add) = match (graph.value(input).source, normalisation(input)) {
        (_, Some((bn, op))) => (bn, op, None),
        (Source::Node(NodeId(a), _), None) => {
            let add = &graph.nodes[a];
            let ([left, right], true) = (&add.inputs[..], matches!(add.op, Op::Add(_))) else { return None };
            if readers[input.0].len() != 1 || left == right {
                return None;
            }
            let candidates = [normalisation(*left).map(|b| (b, *right)), normalisation(*right).map(|b| (b, *left))];
            let ((bn, op), residual) = candidates.into_iter().flatten().max_by_key(|((bn, _), _)| *bn)?;
            (bn, op, Some((a, residual)))
        }
        _ => return None,
    };
    let mut inputs = graph.nodes[bn].inputs.clone();
    let mut remove = vec![NodeId(bn), NodeId(n)];
    if let Some((add, residual)) = add {
        inputs.push(residual);
        remove.push(NodeId(add));
    }
    let fused = BnTrainingUpdate {
        eps: op.eps,
        residual: add.is_some(),
        relu: Some(rectifier.rectifier),
        ranks: op.ranks.clone(),
    };
    let node = Node {
        name: graph.nodes[bn].name.clone(),
        op: fused.into(),
        inputs,
        outputs: relu.outputs.clone(),
        phase: relu.phase,
        origin: graph.nodes[bn].origin.clone(),
        place: relu.place,
    };
    let label = format!("{} + {}", node.name, relu.name);
    Some(Patch { label, remove, insert: vec![NewNode { node, near: n }], ..Patch::default() })
}

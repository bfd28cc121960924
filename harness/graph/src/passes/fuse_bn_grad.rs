//! Fuses the gradients of a normalisation and of the following ReLU into one operator.
//!
//! What: `BNTrainingUpdateGrad` and `BNTrainingReduceGrad` of one normalisation become one `BNTrainingGrad`. A
//! `ReluGrad` that feeds them is fused too. If its result has no other readers, the input of the ReLU is recomputed
//! from the input of the normalisation; if a residual reads it, it becomes an additional result of the fused
//! operator. Why: each of the three reads whole feature maps from memory; after fusion, the second reading comes from
//! the cache. When not: the input gradient is not needed (then there is only one operator). If two normalisations
//! share the gradient of a residual (a projection shortcut), the first one is fused with the `ReluGrad`, and the
//! other reads its result.

use super::{NewNode, Pass, Patch, readers};
use crate::{
    error::GraphError,
    graph::{Graph, Node, NodeId, Source, ValueId},
    ops::{BnTrainingGrad, GradRelu, Op, Rectifier},
};
use std::collections::HashSet;

/// See the module's documentation. Runs before [`super::FuseBnRelu`], whose fused operator hides the pattern.
pub struct FuseBnGrad;

impl Pass for FuseBnGrad {
    fn name(&self) -> &'static str {
        "fuse_bn_grad"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let readers = readers(graph);
        let mut taken = HashSet::new();
        let sums = graph.nodes.iter().enumerate().filter(|(_, n)| matches!(n.op, Op::BnTrainingUpdateGrad(_)));
        Ok(sums.filter_map(|(n, sums)| fuse(graph, &readers, &mut taken, n, sums)).collect())
    }
}

/// The patch for the `BNTrainingUpdateGrad` at index `n`. `taken` are the `ReluGrad`s that other patches remove.
fn fuse(graph: &Graph, readers: &[Vec<usize>], taken: &mut HashSet<usize>, n: usize, sums: &Node) -> Option<Patch> {
    let Op::BnTrainingUpdateGrad(op) = &sums.op else { return None };
    let [dy, x, mean, var] = sums.inputs[..] else { return None };
    let (r, reduce) = readers[sums.outputs[0].0].iter().find_map(|&r| {
        let node = graph.nodes.get(r)?;
        let same = matches!(node.op, Op::BnTrainingReduceGrad(_))
            && node.inputs[..4] == [dy, x, mean, var]
            && node.inputs[5..] == sums.outputs[..];
        same.then_some((r, node))
    })?;
    let gamma = reduce.inputs[4];
    let mut patch = Patch { remove: vec![NodeId(n), NodeId(r)], ..Patch::default() };
    let (relu, mut inputs) = (GradRelu::Absent, vec![dy, x, mean, var, gamma]);
    let mut outputs = vec![reduce.outputs[0], sums.outputs[0], sums.outputs[1]];
    let relu = match relu_before(graph, dy, taken) {
        Some((place, relu_grad, rectifier)) => {
            let only_ours = readers[dy.0].iter().all(|reader| *reader == n || *reader == r);
            let own_beta = only_ours.then(|| own_beta(graph, relu_grad, [x, mean, var, gamma])).flatten();
            let kind = match own_beta {
                Some(beta) => {
                    inputs.push(beta);
                    GradRelu::Recomputed(rectifier)
                }
                None => {
                    inputs.push(relu_grad.inputs[1]);
                    outputs.push(dy);
                    GradRelu::Output(rectifier)
                }
            };
            inputs[0] = relu_grad.inputs[0];
            taken.insert(place);
            patch.remove.push(NodeId(place));
            patch.label = format!("{} with {}", sums.name, relu_grad.name);
            kind
        }
        None => {
            patch.label = sums.name.clone();
            relu
        }
    };
    let op = BnTrainingGrad { eps: op.eps, relu }.into();
    let node = Node { op, inputs, outputs, name: reduce.name.clone(), ..sums.clone() };
    patch.insert.push(NewNode { node, near: n });
    Some(patch)
}

/// The `ReluGrad` that computes `dy`, unless another patch removes it.
fn relu_before<'g>(graph: &'g Graph, dy: ValueId, taken: &HashSet<usize>) -> Option<(usize, &'g Node, Rectifier)> {
    let Source::Node(NodeId(place), _) = graph.value(dy).source else { return None };
    let node = &graph.nodes[place];
    let Op::ReluGrad(op) = &node.op else { return None };
    (!taken.contains(&place)).then_some((place, node, op.rectifier))
}

/// The shift of the normalisation, if the ReLU of `relu_grad` directly reads its output.
fn own_beta(graph: &Graph, relu_grad: &Node, operands: [ValueId; 4]) -> Option<ValueId> {
    let relu = graph.producer(relu_grad.inputs[1]).filter(|r| matches!(r.op, Op::Relu(_)))?;
    let bn = graph.producer(relu.inputs[0])?;
    let (Op::BnTrainingUpdate(op), [own @ .., beta]) = (&bn.op, &bn.inputs[..]) else { return None };
    (op.relu.is_none() && !op.residual && *own == operands).then_some(*beta)
}

//! Fuses the gradient of a ReLU into the gradients of the normalisation before it.
//!
//! What: `ReluGrad -> BNTrainingUpdateGrad, BNTrainingReduceGrad` loses the `ReluGrad`; both gradients mask the
//! incoming gradient themselves, by recomputing the sign of the normalised value from input, statistics, scale and shift.
//! Why: the masked gradient would be written once and read twice, and the ReLU's output read once.
//! When not: somebody else reads the masked gradient, such as the shortcut of a residual block.

use super::{NewNode, Pass, Patch, readers};
use crate::{
    error::GraphError,
    graph::{Graph, Node, NodeId, Source},
    ops::{BnTrainingReduceGrad, BnTrainingUpdateGrad, Op},
};

/// See the module's documentation. Runs before [`super::FuseBnRelu`], whose fused operator hides the pattern.
pub struct FuseBnReluGrad;

impl Pass for FuseBnReluGrad {
    fn name(&self) -> &'static str {
        "fuse_bn_relu_grad"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let readers = readers(graph);
        let fused = graph.nodes.iter().enumerate().filter_map(|(n, grad)| fuse(graph, &readers, n, grad));
        Ok(fused.collect())
    }
}

/// The patch for the `ReluGrad` at place `n`, if only a normalisation's gradients read it.
fn fuse(graph: &Graph, readers: &[Vec<usize>], n: usize, grad: &Node) -> Option<Patch> {
    let Op::ReluGrad(_) = grad.op else { return None };
    let (dy, masked) = (grad.inputs[0], grad.outputs[0]);
    // The ReLU's operand must be the normalisation's own output, or the recomputed sign would be another's.
    let relu = graph.producer(grad.inputs[1]).filter(|r| matches!(r.op, Op::Relu(_)))?;
    let bn = graph.producer(relu.inputs[0])?;
    let Op::BnTrainingUpdate(update) = &bn.op else { return None };
    if update.relu || update.residual {
        return None;
    }
    let [x, mean, var, gamma, beta] = bn.inputs[..] else { return None };
    let &[first, second] = readers[masked.0].as_slice() else { return None };
    let mut patch = Patch { remove: vec![NodeId(n)], ..Patch::default() };
    for reader in [first, second] {
        let old = graph.nodes.get(reader)?;
        let (op, mut inputs): (Op, _) = match &old.op {
            Op::BnTrainingUpdateGrad(g) if !g.relu && old.inputs[..] == [masked, x, mean, var] => {
                (BnTrainingUpdateGrad { relu: true, ..g.clone() }.into(), vec![dy, x, mean, var, gamma])
            }
            Op::BnTrainingReduceGrad(g) if !g.relu && old.inputs[..5] == [masked, x, mean, var, gamma] => {
                let inputs = vec![dy, x, mean, var, gamma, old.inputs[5], old.inputs[6]];
                (BnTrainingReduceGrad { relu: true, ..g.clone() }.into(), inputs)
            }
            _ => return None,
        };
        inputs.push(beta);
        patch.remove.push(NodeId(reader));
        patch.insert.push(NewNode { node: Node { op, inputs, ..old.clone() }, near: reader });
    }
    debug_assert!(matches!(graph.value(masked).source, Source::Node(..)));
    patch.label = format!("{} into {}", grad.name, bn.name);
    Some(patch)
}

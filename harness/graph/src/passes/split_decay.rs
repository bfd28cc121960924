//! Takes weight decay out of the optimizer's operator.
//!
//! What: `ApplyMomentum` or `ApplyAdam` with decay becomes `Muls` of the parameter, `AddN` to the gradient, and the
//! operator without decay.
//! Why: the device's optimizer operators do not decay; frameworks on it add the term by operators of their own, which
//! stream every parameter twice more (MindSpore's `nn.Optimizer.decay_weight`).
//! When not: parameters that do not decay.

use super::{Pass, Patch, patch::Draft};
use crate::{
    error::GraphError,
    graph::{Graph, Node, Phase, Scope},
    ops::{Add, ApplyAdam, ApplyMomentum, Op, Scale},
};

/// See the module's documentation.
pub struct SplitDecay;

impl Pass for SplitDecay {
    fn name(&self) -> &'static str {
        "split_decay"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let mut draft = Draft::new(graph);
        let mut count = 0;
        for (n, node) in graph.nodes.iter().enumerate() {
            let (decay, op): (f64, Op) = match &node.op {
                Op::ApplyMomentum(op) => (op.weight_decay, ApplyMomentum { weight_decay: 0.0, ..op.clone() }.into()),
                Op::ApplyAdam(op) => (op.weight_decay, ApplyAdam { weight_decay: 0.0, ..op.clone() }.into()),
                _ => continue,
            };
            let (Some((gradient, kept)), false) = (node.inputs.split_last(), decay == 0.0) else { continue };
            let scope = Scope { phase: Phase::Update, origin: node.origin.clone() };
            let term = draft.add(n, &scope, format!("{}/decay", node.name), Scale { factor: decay }, &[kept[0]])?;
            let sum = draft.add(n, &scope, format!("{}/decayed", node.name), Add, &[*gradient, term])?;
            let inputs = kept.iter().copied().chain([sum]).collect();
            draft.replace(n, Node { op, inputs, ..node.clone() });
            count += 1;
        }
        Ok(draft.finish(format!("{count} parameters")))
    }
}

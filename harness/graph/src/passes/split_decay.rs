//! Separates weight decay from the optimizer's operator.
//!
//! What: an optimizer that adds its decay to the gradient becomes `Muls` of the parameter, `AddN` to the gradient,
//! and the optimizer without decay. Why: the optimizer operators of the device have no decay; frameworks add the term
//! with separate operators, which read and write every parameter twice more (MindSpore's
//! `nn.Optimizer.decay_weight`). When not: parameters without decay; optimizers with decay in their own rule.

use super::{Pass, Patch, patch::Draft, without_group};
use crate::{
    error::GraphError,
    graph::{Graph, Node, Phase, Scope},
    ops::{Add, DecayTerm, Scale, Update},
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
            let Some(Update::Optimizer { group, decay: DecayTerm::InGradient, .. }) = node.op.update() else {
                continue;
            };
            let (Some((gradient, kept)), false) = (node.inputs.split_last(), group.weight_decay == 0.0) else {
                continue;
            };
            let scope = Scope { phase: Phase::Update, origin: node.origin.clone() };
            let term = draft.add(
                n,
                &scope,
                format!("{}/decay", node.name),
                Scale { factor: group.weight_decay },
                &[kept[0]],
            )?;
            let sum = draft.add(n, &scope, format!("{}/decayed", node.name), Add, &[*gradient, term])?;
            let inputs = kept.iter().copied().chain([sum]).collect();
            let mut op = node.op.clone();
            op.group().ok_or_else(|| without_group(node))?.weight_decay = 0.0;
            draft.replace(n, Node { op, inputs, ..node.clone() });
            count += 1;
        }
        Ok(draft.finish(format!("{count} parameters")))
    }
}

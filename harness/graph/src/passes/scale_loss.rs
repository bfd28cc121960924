//! Scales the loss, and the gradients back.
//!
//! What: the gradient of the loss by itself is multiplied by the step's loss scale, and each parameter's gradient is
//! divided by it before anything else is done with it (clipping, decay, update).
//! Why: gradients below the smallest number of the half-precision type would vanish (arXiv 1710.03740).
//! When not: an evaluation, which has no gradients.

use super::{Pass, Patch, patch::Draft};
use crate::{
    error::GraphError,
    graph::{Graph, Node, Phase, Scope, Source, ValueId},
    ops::{LossScale, Op},
};
use std::collections::HashMap;

/// See the module's documentation. Runs after [`super::PlaceCasts`], so that gradients are scaled back in f32.
pub struct ScaleLoss;

impl Pass for ScaleLoss {
    fn name(&self) -> &'static str {
        "scale_loss"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let mut draft = Draft::new(graph);
        let mut scaled: HashMap<ValueId, ValueId> = HashMap::new();
        for (n, node) in graph.nodes.iter().enumerate() {
            let seed = matches!(node.op, Op::Fill(_)) && node.phase == Phase::Backward && node.name == "loss/seed";
            if let (true, [seed]) = (seed, node.outputs.as_slice()) {
                let scope = Scope { phase: Phase::Backward, origin: node.origin.clone() };
                let result = draft.add(n, &scope, "loss/scale".into(), LossScale { inverse: false }, &[*seed])?;
                scaled.insert(*seed, result);
            }
        }
        if scaled.is_empty() {
            return Ok(Vec::new());
        }
        let mut unscaled: HashMap<ValueId, ValueId> = HashMap::new();
        for (id, gradient) in &graph.gradients {
            let near = match graph.value(*gradient).source {
                Source::Node(n, _) => n.0,
                Source::Input(_) | Source::Variable(_) => 0,
            };
            let variable = graph.variable(*id);
            let scope = Scope { phase: Phase::Backward, origin: variable.origin.clone() };
            let name = format!("{}/unscale", variable.name);
            let result = draft.add(near, &scope, name, LossScale { inverse: true }, &[*gradient])?;
            draft.patch.redirect.push((*gradient, result));
            unscaled.insert(*gradient, result);
        }
        for (n, node) in graph.nodes.iter().enumerate() {
            let moved = if node.phase == Phase::Update { &unscaled } else { &scaled };
            let inputs: Vec<_> = node.inputs.iter().map(|v| *moved.get(v).unwrap_or(v)).collect();
            if inputs != node.inputs {
                draft.replace(n, Node { inputs, ..node.clone() });
            }
        }
        Ok(draft.finish("the loss is scaled".into()))
    }
}

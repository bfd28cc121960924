//! Scales the loss, and the gradients back.
//!
//! What: the gradient of the loss by itself becomes `scale` instead of 1, and each parameter's gradient is multiplied by
//! `1 / scale` before the update.
//! Why: gradients below the smallest number of the half-precision type would vanish (arXiv 1710.03740).
//! When not: an evaluation, which has no gradients.

use super::{Pass, Patch, patch::Draft};
use crate::{
    error::GraphError,
    graph::{Graph, Node, Phase, Scope, Source},
    ops::{Fill, Op, Scale},
};
use std::collections::HashMap;

/// See the module's documentation. Runs after [`super::PlaceCasts`], so that gradients are scaled back in f32.
pub struct ScaleLoss {
    /// The factor.
    pub scale: f64,
}

impl Pass for ScaleLoss {
    fn name(&self) -> &'static str {
        "scale_loss"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let mut draft = Draft::new(graph);
        for (n, node) in graph.nodes.iter().enumerate() {
            let Op::Fill(seed) = &node.op else { continue };
            if node.phase == Phase::Backward && node.inputs.is_empty() && node.name == "loss/seed" {
                let op = Fill { value: seed.value * self.scale, ty: seed.ty.clone() };
                draft.replace(n, Node { op: op.into(), ..node.clone() });
            }
        }
        let mut unscaled = HashMap::new();
        for (id, gradient) in &graph.gradients {
            let near = match graph.value(*gradient).source {
                Source::Node(n, _) => n.0,
                Source::Input(_) | Source::Variable(_) => 0,
            };
            let variable = graph.variable(*id);
            let scope = Scope { phase: Phase::Backward, origin: variable.origin.clone() };
            let op = Scale { factor: 1.0 / self.scale };
            let result = draft.add(near, &scope, format!("{}/unscale", variable.name), op, &[*gradient])?;
            draft.patch.redirect.push((*gradient, result));
            unscaled.insert(*gradient, result);
        }
        for (n, node) in graph.nodes.iter().enumerate().filter(|(_, node)| node.phase == Phase::Update) {
            let inputs: Vec<_> = node.inputs.iter().map(|v| *unscaled.get(v).unwrap_or(v)).collect();
            if inputs != node.inputs {
                draft.replace(n, Node { inputs, ..node.clone() });
            }
        }
        Ok(draft.finish(format!("loss times {}", self.scale)))
    }
}

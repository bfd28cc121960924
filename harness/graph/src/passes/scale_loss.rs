//! Scales the loss, and divides the gradients by the scale.
//!
//! What: the seed of the backward pass is multiplied by the loss scale of the step, and each parameter's gradient is
//! divided by it before all other uses (clipping, decay, update). If the recipe clips scaled gradients
//! ([`ScaleLoss::clips_scaled`]), they are divided after clipping, and before decay and update. Why: gradients below
//! the smallest number of the half-precision type would become zero (arXiv 1710.03740). When not: evaluations, which
//! have no gradients.

use super::{Pass, Patch, patch::Draft};
use crate::{
    error::GraphError,
    graph::{Graph, Node, Phase, Scope, Source, ValueId, VariableId},
    ops::LossScale,
};
use std::collections::HashMap;

/// See the module's documentation. Runs after [`super::PlaceCasts`], so that gradients are scaled back in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScaleLoss {
    /// Whether gradients are clipped while they are scaled: `gradients.clip_scaled` of the recipe.
    pub clips_scaled: bool,
}

impl Pass for ScaleLoss {
    fn name(&self) -> &'static str {
        "scale_loss"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let Some(seed) = graph.seed else { return Ok(Vec::new()) };
        let Source::Node(near, _) = graph.value(seed).source else { return Ok(Vec::new()) };
        let mut draft = Draft::new(graph);
        let scope = Scope { phase: Phase::Backward, origin: graph.node(near).origin.clone() };
        let scale = draft.add(near.0, &scope, "loss/scale".into(), LossScale { inverse: false }, &[seed])?;
        let scaled = HashMap::from([(seed, scale)]);
        let mut unscaled: HashMap<ValueId, ValueId> = HashMap::new();
        for (variable, gradient, near) in self.divided(graph) {
            let variable = graph.variable(variable);
            let phase = if self.clips_scaled { Phase::Update } else { Phase::Backward };
            let scope = Scope { phase, origin: variable.origin.clone() };
            let name = format!("{}/unscale", variable.name);
            let result = draft.add(near, &scope, name, LossScale { inverse: true }, &[gradient])?;
            if !self.clips_scaled {
                draft.patch.redirect.push((gradient, result));
            }
            unscaled.insert(gradient, result);
        }
        let clips = |node: &Node| self.clips_scaled && graph.optimized(node).is_none();
        draft.reread(|node, v| {
            let moved = if node.phase == Phase::Update && !clips(node) { &unscaled } else { &scaled };
            *moved.get(&v).unwrap_or(&v)
        });
        Ok(draft.finish("the loss is scaled".into()))
    }
}

impl ScaleLoss {
    /// The values that are divided by the scale (for each parameter its gradient, or the clipped gradient), and the
    /// places of the divisions.
    fn divided(&self, graph: &Graph) -> Vec<(VariableId, ValueId, usize)> {
        if !self.clips_scaled {
            let place = |gradient: ValueId| match graph.value(gradient).source {
                Source::Node(n, _) => n.0,
                Source::Input(_) | Source::Variable(_) => 0,
            };
            return graph.gradients.iter().map(|(id, gradient)| (*id, *gradient, place(*gradient))).collect();
        }
        let updates = graph.nodes.iter().enumerate().filter_map(|(n, node)| {
            let optimized = graph.optimized(node)?;
            Some((optimized.parameter, optimized.gradient, n))
        });
        updates.collect()
    }
}

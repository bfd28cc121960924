//! The `optimizer` section: one update per parameter that has a gradient.

use super::section;
use crate::{
    error::GraphError,
    graph::{Graph, Phase, VariableId, VariableRole},
    ops::{ApplyAdam, ApplyMomentum, Op},
};
use zoo_recipe::{
    Recipe,
    schema::{DecayGroup, Init, Optimizer},
};

/// Adds slots and updates. A parameter without a gradient is left alone entirely: no decay, no momentum.
pub(super) fn lower(graph: &mut Graph, recipe: &Recipe) -> Result<(), GraphError> {
    for (parameter, gradient) in graph.gradients.clone() {
        let weight_decay = weight_decay(&recipe.optimizer, &graph.variable(parameter).role);
        let (op, slots, path): (Op, &[&'static str], _) = match &recipe.optimizer {
            Optimizer::Sgd(sgd) => {
                let op = ApplyMomentum { momentum: sgd.momentum, nesterov: sgd.nesterov, weight_decay, lr_scale: 1.0 };
                (op.into(), &["momentum_buffer"], "optimizer.sgd")
            }
            Optimizer::Adam(adam) => {
                let op = ApplyAdam { beta1: adam.beta1, beta2: adam.beta2, eps: adam.eps, weight_decay, lr_scale: 1.0 };
                (op.into(), &["exp_avg", "exp_avg_sq"], "optimizer.adam")
            }
        };
        let scope = section(recipe, path, Phase::Update);
        let variable = graph.variable(parameter).clone();
        let slots: Vec<VariableId> = slots
            .iter()
            .map(|slot| {
                let role = VariableRole::Slot { parameter, slot };
                let ty = graph.ty(variable.value).clone();
                let name = format!("{}/{slot}", variable.name);
                graph.add_variable(name, role, ty, Init::Constant(0.0), variable.origin.clone())
            })
            .collect();
        let mut operands = vec![variable.value];
        operands.extend(slots.iter().map(|s| graph.variable(*s).value));
        operands.push(gradient);
        let next = graph.add_node(&scope, format!("{}/update", variable.name), op, &operands)?;
        for (id, value) in std::iter::once(parameter).chain(slots).zip(next) {
            graph.variables[id.0].next = Some(value);
        }
    }
    Ok(())
}

/// The decay that a parameter gets from the optimizer.
fn weight_decay(optimizer: &Optimizer, role: &VariableRole) -> f64 {
    let (decay, exempt) = optimizer.decay();
    let group = match role {
        VariableRole::NormWeight | VariableRole::NormBias => Some(DecayGroup::Bn),
        VariableRole::Bias => Some(DecayGroup::Bias),
        VariableRole::Weight | VariableRole::RunningMean | VariableRole::RunningVar | VariableRole::Slot { .. } => None,
    };
    if group.is_some_and(|g| exempt.contains(&g)) { 0.0 } else { decay }
}

//! From gradients to new parameters: the `gradients` and `optimizer` sections, and the moving average.

use super::section;
use crate::{
    Recipe,
    schema::{Clip, DecayGroup, Init, Optimizer, Training},
};
use zoo_graph::{
    EMA, Graph, GraphError, Op, Phase, ValueId, VariableId, VariableRole,
    ops::{Add, ApplyAdam, ApplyEma, ApplyMomentum, ClipByGlobalNorm, ClipByValue, ScaleBy},
};

/// Name of the slot that sums the gradients of a parameter that is not trained and yet counted.
const LEAKED: &str = "leaked_grad";

/// Adds slots and updates. A parameter without a gradient is left alone entirely: no decay, no momentum.
pub(super) fn lower(graph: &mut Graph, recipe: &Recipe, training: &dyn Fn(&str) -> Training) -> Result<(), GraphError> {
    let mut gradients = graph.gradients.clone();
    let leaks = leak(graph, recipe, training, &mut gradients)?;
    clip(graph, recipe, &mut gradients)?;
    for (slot, place) in leaks {
        graph.variables[slot.0].next = Some(gradients[place].1);
    }
    for (parameter, gradient) in gradients {
        let Training { trained, lr, .. } = training(&graph.variable(parameter).name);
        if trained {
            update(graph, recipe, parameter, gradient, lr)?;
        }
    }
    Ok(())
}

/// Adds to the gradients of leaking parameters what earlier steps have left. Returns the slots, each with its place
/// among the gradients.
fn leak(
    graph: &mut Graph,
    recipe: &Recipe,
    training: &dyn Fn(&str) -> Training,
    gradients: &mut [(VariableId, ValueId)],
) -> Result<Vec<(VariableId, usize)>, GraphError> {
    let scope = section(recipe, "train.parts", Phase::Update);
    let mut slots = Vec::new();
    for (place, (parameter, gradient)) in gradients.iter_mut().enumerate() {
        if !training(&graph.variable(*parameter).name).leaks {
            continue;
        }
        let role = VariableRole::Slot { parameter: *parameter, slot: LEAKED };
        let slot = beside(graph, *parameter, LEAKED, role, Init::Constant(0.0));
        let operands = [graph.variable(slot).value, *gradient];
        let name = format!("{}/leak", graph.variable(*parameter).name);
        *gradient = graph.add(&scope, name, Add, &operands)?;
        slots.push((slot, place));
    }
    Ok(slots)
}

/// Bounds the gradients, in the recipe's order.
fn clip(graph: &mut Graph, recipe: &Recipe, gradients: &mut [(VariableId, ValueId)]) -> Result<(), GraphError> {
    for (n, clip) in recipe.gradients.clip.iter().enumerate() {
        let scope = section(recipe, &format!("gradients.clip[{n}]"), Phase::Update);
        let factor = match clip {
            Clip::Norm(bound) if !gradients.is_empty() => {
                let all: Vec<ValueId> = gradients.iter().map(|g| g.1).collect();
                let results = graph.add_node(&scope, "gradients/norm", ClipByGlobalNorm { bound: *bound }, &all)?;
                graph.metrics.push(("grad_norm".into(), results[0]));
                graph.metrics.push(("clip_coef".into(), results[1]));
                Some(results[1])
            }
            Clip::Norm(_) | Clip::Value(_) => None,
        };
        for (parameter, gradient) in gradients.iter_mut() {
            let name = format!("{}/clip", graph.variable(*parameter).name);
            *gradient = match (clip, factor) {
                (_, Some(factor)) => graph.add(&scope, name, ScaleBy, &[*gradient, factor])?,
                (Clip::Value(bound), None) => graph.add(&scope, name, ClipByValue { bound: *bound }, &[*gradient])?,
                (Clip::Norm(_), None) => *gradient,
            };
        }
    }
    Ok(())
}

/// Adds the update of one parameter.
fn update(
    graph: &mut Graph,
    recipe: &Recipe,
    parameter: VariableId,
    gradient: ValueId,
    lr_scale: f64,
) -> Result<(), GraphError> {
    let weight_decay = weight_decay(&recipe.optimizer, &graph.variable(parameter).role);
    let (op, slots, path): (Op, &[&'static str], _) = match &recipe.optimizer {
        Optimizer::Sgd(sgd) => {
            let op = ApplyMomentum { momentum: sgd.momentum, nesterov: sgd.nesterov, weight_decay, lr_scale };
            (op.into(), &["momentum_buffer"], "optimizer.sgd")
        }
        Optimizer::Adam(adam) => {
            let op = ApplyAdam { beta1: adam.beta1, beta2: adam.beta2, eps: adam.eps, weight_decay, lr_scale };
            (op.into(), &["exp_avg", "exp_avg_sq"], "optimizer.adam")
        }
    };
    let scope = section(recipe, path, Phase::Update);
    let slot = |name: &&'static str| {
        let role = VariableRole::Slot { parameter, slot: name };
        beside(graph, parameter, name, role, Init::Constant(0.0))
    };
    let slots: Vec<VariableId> = slots.iter().map(slot).collect();
    let variable = graph.variable(parameter).clone();
    let mut operands = vec![variable.value];
    operands.extend(slots.iter().map(|s| graph.variable(*s).value));
    operands.push(gradient);
    let next = graph.add_node(&scope, format!("{}/update", variable.name), op, &operands)?;
    if let Some(decay) = recipe.train.ema {
        let scope = section(recipe, "train.ema", Phase::Update);
        let average = beside(graph, parameter, EMA, VariableRole::Average { parameter }, variable.init.clone());
        let operands = [graph.variable(average).value, next[0]];
        let after = graph.add(&scope, format!("{}/{EMA}", variable.name), ApplyEma { decay }, &operands)?;
        graph.variables[average.0].next = Some(after);
    }
    for (id, value) in std::iter::once(parameter).chain(slots).zip(next) {
        graph.variables[id.0].next = Some(value);
    }
    Ok(())
}

/// A variable that is kept beside a parameter, named `PARAMETER/name`.
fn beside(graph: &mut Graph, parameter: VariableId, name: &str, role: VariableRole, init: Init) -> VariableId {
    let variable = graph.variable(parameter).clone();
    let ty = graph.ty(variable.value).clone();
    graph.add_variable(format!("{}/{name}", variable.name), role, ty, init, variable.origin)
}

/// The decay that a parameter gets from the optimizer.
fn weight_decay(optimizer: &Optimizer, role: &VariableRole) -> f64 {
    let (decay, exempt) = optimizer.decay();
    let group = match role {
        VariableRole::NormWeight | VariableRole::NormBias => Some(DecayGroup::Bn),
        VariableRole::Bias => Some(DecayGroup::Bias),
        VariableRole::Weight
        | VariableRole::RunningMean
        | VariableRole::RunningVar
        | VariableRole::Slot { .. }
        | VariableRole::Average { .. } => None,
    };
    if group.is_some_and(|g| exempt.contains(&g)) { 0.0 } else { decay }
}

//! From gradients to new parameters: the `gradients` and `optimizer` sections, and the moving average.

use super::{
    section,
    split::{Share, Shares},
};
use crate::{
    Recipe, did_you_mean,
    optimizer::Slot,
    schema::Clip,
    values::{Init, Training, matches},
};
use std::collections::{BTreeMap, BTreeSet};
use zoo_graph::{
    EMA, Graph, GraphError, Phase, Scope, ValueId, Variable, VariableId, VariableRole,
    formula::Formula,
    ops::{Add, Assign, ClipByGlobalNorm, ClipByValue, Collective, Exchange, Group, Map, ScaleBy},
    parallel::{MeshAxis, Part},
};

/// What the ranks have of each parameter.
type Divided = BTreeMap<VariableId, Share>;

/// Name of the slot that sums the gradients of a parameter that is not trained and yet counted.
const LEAKED: &str = "leaked_grad";

/// Adds slots and updates. A parameter without a gradient is left alone entirely: no decay, no momentum.
pub(super) fn lower(
    graph: &mut Graph,
    recipe: &Recipe,
    training: &dyn Fn(&str) -> Training,
    shares: &Shares,
) -> Result<(), GraphError> {
    refuse_idle_groups(graph, recipe)?;
    let mut gradients = graph.gradients.clone();
    let leaks = leak(graph, recipe, training, &mut gradients)?;
    clip(graph, recipe, &mut gradients, shares)?;
    for (slot, place) in leaks {
        graph.variables[slot.0].next = Some(gradients[place].1);
    }
    for (parameter, gradient) in gradients {
        let variable = graph.variable(parameter);
        let Training { trained, lr, .. } = training(&variable.name);
        if trained {
            let group = group(recipe, variable);
            let group = Group { lr_scale: lr * group.lr_scale, ..group };
            update(graph, recipe, (parameter, gradient), group, shares)?;
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
fn clip(
    graph: &mut Graph,
    recipe: &Recipe,
    gradients: &mut [(VariableId, ValueId)],
    shares: &Shares,
) -> Result<(), GraphError> {
    for (n, clip) in recipe.gradients.clip.iter().enumerate() {
        let scope = section(recipe, &format!("gradients.clip[{n}]"), Phase::Update);
        let factor = match clip {
            Clip::Norm(bound) if !gradients.is_empty() => {
                let all = counted_once(graph, &scope, gradients, &shares.divided)?;
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

/// The gradients whose squares are summed for the norm: those that every rank has whole, and for each set of axes along
/// which others are divided, the norm of all of those.
fn counted_once(
    graph: &mut Graph,
    scope: &Scope,
    gradients: &[(VariableId, ValueId)],
    divided: &Divided,
) -> Result<Vec<ValueId>, GraphError> {
    let whole = Share::default();
    let share = |id: &VariableId| divided.get(id).unwrap_or(&whole);
    let mut all: Vec<ValueId> = gradients.iter().filter(|(id, _)| share(id).is_whole()).map(|(_, v)| *v).collect();
    let divided = |id: &VariableId| Some(share(id)).filter(|share| !share.is_whole());
    let sets: BTreeSet<_> = gradients.iter().filter_map(|(id, _)| divided(id)).map(Share::summed).collect();
    for set in sets {
        let of_set = |id: &VariableId| divided(id).is_some_and(|share| share.summed() == set);
        let own: Vec<ValueId> = gradients.iter().filter(|(id, _)| of_set(id)).map(|(_, v)| *v).collect();
        let stages = gradients.iter().find(|(id, _)| of_set(id)).map_or(1, |(id, _)| share(id).stages);
        let (axes, holders) = &set;
        let names = axes.iter().map(|(axis, _)| axis.to_string());
        let of: Vec<String> = names.chain(holders.iter().map(|place| format!("stage{place}"))).collect();
        let of = of.join("_");
        let name = |part: &str| format!("gradients/{of}_{part}");
        let norm = graph.add_node(scope, name("norm"), ClipByGlobalNorm { bound: f64::INFINITY }, &own)?[0];
        let map = |graph: &Graph, formula, operand| {
            let over = Map::over(formula, &graph.types(&[operand]));
            over.map_err(|source| GraphError::Shape { name: name("map"), origin: scope.origin.clone(), source })
        };
        // The gradient of a parameter that stages share is a sum over the pipeline, which all places get.
        let once = if holders.len() > 1 { 1.0 / stages as f64 } else { 1.0 };
        let square = map(graph, Formula::define(0, |[x]| [x.square() * once]), norm)?;
        let mut sum = graph.add(scope, name("square"), square, &[norm])?;
        let pipeline = (!holders.is_empty()).then_some((MeshAxis::Pipeline, stages));
        for (over, ranks) in axes.iter().copied().chain(pipeline) {
            let op = Collective { exchange: Exchange::Sum, over, ranks };
            sum = graph.add(scope, format!("gradients/{over}_sum"), op, &[sum])?;
        }
        let root = map(graph, Formula::define(0, |[x]| [x.sqrt()]), sum)?;
        all.push(graph.add(scope, name("whole"), root, &[sum])?);
    }
    Ok(all)
}

/// Adds the update of one parameter.
fn update(
    graph: &mut Graph,
    recipe: &Recipe,
    (parameter, gradient): (VariableId, ValueId),
    group: Group,
    shares: &Shares,
) -> Result<(), GraphError> {
    let scope = section(recipe, &format!("optimizer.{}", recipe.optimizer.tag()), Phase::Update);
    let slot = |slot: Slot| {
        let role = VariableRole::Slot { parameter, slot: slot.name };
        let id = beside(graph, parameter, slot.name, role, Init::Constant(slot.start));
        if let Some(part) = shares.slots.get(&parameter) {
            let value = graph.variable(id).value;
            let ty = graph.ty(value).with_shape(part.local(&graph.ty(value).shape, shares.ranks));
            graph.values[value.0].ty = ty;
        }
        id
    };
    let slots: Vec<VariableId> = recipe.optimizer.slots().into_iter().map(slot).collect();
    let variable = graph.variable(parameter).clone();
    let operator = recipe.optimizer.operator(group);
    let mut operands = vec![variable.value];
    operands.extend(slots.iter().map(|s| graph.variable(*s).value));
    operands.push(gradient);
    let name = format!("{}/update", variable.name);
    let next = if operator.formula.rows() > 0 {
        // A rule with norms of whole tensors: each rank computes all of it, and keeps its part.
        let parts = shares.divided.get(&parameter).map_or(&[][..], |share| &share.parts);
        whole_update(graph, &scope, (&name, operator), &operands, parts)?
    } else {
        part_of_update(graph, &scope, (&name, operator), &operands, shares.slots.get(&parameter), shares.ranks)?
    };
    if let Some(decay) = recipe.train.ema {
        let scope = section(recipe, "train.ema", Phase::Update);
        let average = beside(graph, parameter, EMA, VariableRole::Average { parameter }, variable.init.clone());
        let operands = [graph.variable(average).value, next[0]];
        let rule = if recipe.train.ema_warmup { Assign::average_with_warmup(decay, 0) } else { Assign::average(decay) };
        let after = graph.add(&scope, format!("{}/{EMA}", variable.name), rule, &operands)?;
        graph.variables[average.0].next = Some(after);
    }
    for (id, value) in std::iter::once(parameter).chain(slots).zip(next) {
        graph.variables[id.0].next = Some(value);
    }
    Ok(())
}

/// An update of which each data rank computes a part: of the parameter, and of the gradient. The slots are that part.
fn part_of_update(
    graph: &mut Graph,
    scope: &Scope,
    (name, operator): (&str, Assign),
    operands: &[ValueId],
    part: Option<&Part>,
    ranks: usize,
) -> Result<Vec<ValueId>, GraphError> {
    let Some(part) = part else { return graph.add_node(scope, name, operator, operands) };
    let exchange = |exchange| Collective { exchange, over: MeshAxis::Data, ranks };
    let mut own = operands.to_vec();
    for n in [0, operands.len() - 1] {
        let op = exchange(Exchange::Own(part.clone()));
        own[n] = graph.add(scope, format!("{name}/own{n}"), op, &[operands[n]])?;
    }
    let mut next = graph.add_node(scope, name, operator, &own)?;
    next[0] = graph.add(scope, format!("{name}/gather"), exchange(Exchange::Gather(part.clone())), &[next[0]])?;
    Ok(next)
}

/// An update of a whole tensor by each of the ranks that have parts of it.
fn whole_update(
    graph: &mut Graph,
    scope: &Scope,
    (name, operator): (&str, Assign),
    operands: &[ValueId],
    parts: &[(MeshAxis, usize, Part)],
) -> Result<Vec<ValueId>, GraphError> {
    let mut whole = operands.to_vec();
    for (over, ranks, part) in parts.iter().rev() {
        for (n, value) in whole.iter_mut().enumerate() {
            let op = Collective { exchange: Exchange::Gather(part.clone()), over: *over, ranks: *ranks };
            *value = graph.add(scope, format!("{name}/{over}_gather{n}"), op, &[*value])?;
        }
    }
    let mut next = graph.add_node(scope, name, operator, &whole)?;
    for (over, ranks, part) in parts {
        for (n, value) in next.iter_mut().enumerate() {
            let op = Collective { exchange: Exchange::Own(part.clone()), over: *over, ranks: *ranks };
            *value = graph.add(scope, format!("{name}/{over}_own{n}"), op, &[*value])?;
        }
    }
    Ok(next)
}

/// A variable that belongs to a parameter, named `PARAMETER/name`.
fn beside(graph: &mut Graph, parameter: VariableId, name: &str, role: VariableRole, init: Init) -> VariableId {
    let variable = graph.variable(parameter).clone();
    let ty = graph.ty(variable.value).clone();
    graph.add_variable(format!("{}/{name}", variable.name), role, ty, init, variable.origin)
}

/// Decay and learning rate of a parameter: those of its group, or the optimizer's own.
fn group(recipe: &Recipe, variable: &Variable) -> Group {
    let (decay, spared, groups) = recipe.optimizer.decay();
    let spared = spared.iter().any(|group| group.has(&variable.role));
    let own = groups.iter().find(|group| group.patterns.all().iter().any(|pattern| matches(pattern, &variable.name)));
    let weight_decay = own.and_then(|group| group.weight_decay).unwrap_or(if spared { 0.0 } else { decay });
    Group { weight_decay, lr_scale: own.and_then(|group| group.lr).map_or(1.0, |lr| lr.0) }
}

/// An error if a pattern of a group is for no parameter, or groups before it have all of its parameters.
fn refuse_idle_groups(graph: &Graph, recipe: &Recipe) -> Result<(), GraphError> {
    let (_, _, groups) = recipe.optimizer.decay();
    let names: Vec<&str> = graph.parameters().map(|(_, variable)| variable.name.as_str()).collect();
    let mut taken: Vec<&str> = Vec::new();
    for (n, group) in groups.iter().enumerate() {
        let path = format!("optimizer.{}.groups[{n}].match", recipe.optimizer.tag());
        let error = |message| Err(GraphError::Model { origin: section(recipe, &path, Phase::Update).origin, message });
        let before = taken.clone();
        for pattern in group.patterns.all() {
            let own: Vec<&str> = names.iter().copied().filter(|name| matches(pattern, name)).collect();
            if own.is_empty() {
                let hint = did_you_mean(pattern, names.iter().copied());
                let hint = hint.map(|name| format!(": did you mean `{name}`?")).unwrap_or_default();
                return error(format!("no parameter matches `{pattern}`{hint}"));
            }
            if own.iter().all(|name| before.contains(name)) {
                return error(format!("all parameters that match `{pattern}` belong to earlier groups"));
            }
            taken.extend(own);
        }
    }
    Ok(())
}

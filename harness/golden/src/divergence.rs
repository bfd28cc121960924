//! Finds the first divergence of a check, and the layer that causes the error of a tensor.

use crate::{
    bound::Bound,
    compare::{Distance, LOSS_FLOOR},
    golden::Golden,
    manifest::TensorFacts,
    report::{Divergence, Item, Report, Stage, StageReport, Verdict},
    run::Run,
};
use std::collections::{BTreeMap, HashSet};
use zoo_graph::{Graph, GraphError, NodeId, Phase, Source, ValueId};
use zoo_recipe::Recipe;

/// Most suspects in a report.
const MOST_SUSPECTS: usize = 12;

/// Part of the updates that rounding changes, from which a report says so.
const MUCH: f64 = 0.25;

/// Report if layers do not fit each other: nothing can be computed, so the forward pass fails.
pub(crate) fn impossible(mut report: Report, error: GraphError) -> Report {
    let (tensor, line) = match &error {
        GraphError::Shape { name, origin, .. } => (name.clone(), origin.as_ref().map(|o| o.span.to_string())),
        GraphError::Model { origin, .. } => ("model".into(), origin.as_ref().map(|o| o.span.to_string())),
        GraphError::Invariant { .. } => ("graph".into(), None),
    };
    let message = error.to_string();
    let item = Item::wrong(&tensor, &message);
    report.stages.push(StageReport::of(Stage::Forward, vec![item], 1.0, None));
    report.verdict = Verdict::Fail;
    let (node, hints) = (Some(tensor.clone()), vec![message]);
    let suspects = vec![tensor.clone()];
    report.first_divergence =
        Some(Divergence { stage: Stage::Forward, tensor, node, local: None, suspects, line, hints });
    report
}

/// Where a recipe, as written, first differs from the golden: in the first stage that fails.
pub(crate) fn first_divergence(report: &Report, recipe: &Recipe, bound: &Bound, run: &Run<'_>) -> Option<Divergence> {
    let (golden, graph) = (&bound.golden, &bound.graph);
    let stage = report.stages.iter().find(|s| s.verdict == Verdict::Fail)?;
    let item = stage.failed.first().or(stage.worst.as_ref())?;
    let mut divergence = Divergence {
        stage: stage.stage,
        tensor: item.name.clone(),
        node: None,
        local: None,
        suspects: Vec::new(),
        line: None,
        hints: item.note.iter().cloned().collect(),
    };
    match stage.stage {
        Stage::Conditions => {
            divergence.line = report.conditions_differ.iter().find(|d| d.path == item.name).map(|d| d.line.clone());
        }
        Stage::Preprocess => divergence.line = Some(recipe.span_of_change("preprocess.eval").to_string()),
        Stage::Schedule => {
            let path = if item.name.starts_with("train.") { item.name.as_str() } else { "schedule" };
            divergence.line = Some(recipe.span_of_change(path).to_string());
        }
        Stage::Init => {
            let name = item.name.strip_prefix("initialiser of ").unwrap_or(&item.name);
            let variable = graph.find_variable(name).map(|id| graph.variable(id));
            divergence.line = variable.and_then(|v| v.origin.as_ref()).map(|o| o.span.to_string());
        }
        Stage::Kernels => {
            let first = run.items.get(&Stage::Kernels).and_then(|items| items.iter().find(|item| item.ratio > 1.0));
            let node = first.and_then(|item| run.step.graph().nodes.iter().find(|node| node.name == item.name));
            divergence.node = node.map(|node| node.name.clone());
            divergence.line = node.and_then(|node| node.origin.as_ref()).map(|o| o.span.to_string());
            divergence.local = Some(true);
        }
        Stage::Forward
        | Stage::Loss
        | Stage::Backward
        | Stage::Update
        | Stage::Trajectory
        | Stage::Lifted
        | Stage::Variants => {
            locate_in_step(&mut divergence, run, graph);
        }
    }
    if divergence.stage == Stage::Loss {
        divergence.hints.extend(loss_hints(run.first_loss, golden));
    }
    if divergence.stage == Stage::Trajectory {
        let hint = "the first step is right and later ones are not: look at momentum, and at what the first step leaves \
                    behind (optimizer slots, running statistics)";
        divergence.hints.push(hint.into());
        divergence.hints.extend(rounding_hint(&golden.manifest.tensors));
    }
    Some(divergence)
}

/// Said where rounding changes the reference's own updates by much: then three steps prove little.
fn rounding_hint(tensors: &BTreeMap<String, TensorFacts>) -> Option<String> {
    let updates = tensors.iter().filter(|(key, _)| key.starts_with("param3/"));
    let mut errors: Vec<f64> = updates.filter_map(|(_, facts)| facts.delta_f32_rel).collect();
    errors.sort_by(f64::total_cmp);
    let median = errors.get(errors.len() / 2).copied().filter(|median| *median >= MUCH)?;
    Some(format!(
        "rounding alone changes the reference's updates of three steps by {:.0} % (median), as where a normalisation \
         has few values for each mean: record the golden again with a larger batch or larger inputs",
        100.0 * median
    ))
}

/// Finds the node, the line of the recipe and the suspects of a divergence in the step.
fn locate_in_step(divergence: &mut Divergence, run: &Run<'_>, graph: &Graph) {
    let key = (divergence.stage, divergence.tensor.clone());
    let Some(value) = run.values.get(&key).copied() else { return };
    let stages = [Stage::Forward, Stage::Loss, Stage::Backward, Stage::Update];
    let proven: HashSet<ValueId> = run
        .values
        .iter()
        .filter(|((stage, name), _)| stages.contains(stage) && run.passed(*stage, name))
        .map(|(_, v)| *v)
        .collect();
    locate(divergence, graph, value, &proven);
}

/// Finds node, line of the recipe and suspects of a divergence at `value`. For `proven`, see [`suspects`].
pub fn locate(divergence: &mut Divergence, graph: &Graph, value: ValueId, proven: &HashSet<ValueId>) {
    let suspects = suspects(graph, value, proven);
    if matches!(divergence.stage, Stage::Forward | Stage::Loss | Stage::Backward | Stage::Update) {
        divergence.local = is_local(graph, &suspects);
    }
    if let Some(node) = graph.producer(value) {
        divergence.node = Some(node.name.clone());
        divergence.line = node.origin.as_ref().map(|o| o.span.to_string());
    }
    divergence.suspects = suspects.iter().take(MOST_SUSPECTS).map(|n| graph.node(*n).name.clone()).collect();
}

/// Nodes that may cause a wrong `value`, nearest first: everything that it depends on, back to proven values.
///
/// `proven` contains the values that the golden covers and that pass. In the backward pass, the operands of a proven
/// gradient count as proven too: if the incoming gradient were wrong, the gradient computed from it would be wrong
/// too.
pub fn suspects(graph: &Graph, value: ValueId, proven: &HashSet<ValueId>) -> Vec<NodeId> {
    let mut trusted = proven.clone();
    for node in &graph.nodes {
        if node.phase == Phase::Backward && node.outputs.iter().any(|v| proven.contains(v)) {
            trusted.extend(&node.inputs);
        }
    }
    trusted.remove(&value);
    let (mut stack, mut seen) = (vec![value], HashSet::new());
    while let Some(v) = stack.pop() {
        let Source::Node(node, _) = graph.value(v).source else { continue };
        if trusted.contains(&v) || !seen.insert(node) {
            continue;
        }
        stack.extend(&graph.node(node).inputs);
    }
    let mut nodes: Vec<NodeId> = seen.into_iter().collect();
    nodes.sort_unstable_by(|a, b| b.cmp(a));
    nodes
}

/// Whether the fault is in the layer that computes `value`: true if all suspects belong to it, and unknown otherwise.
/// It is never false, because the first divergence has no failing ancestor.
pub fn is_local(graph: &Graph, suspects: &[NodeId]) -> Option<bool> {
    let layer = |n: &NodeId| {
        let name = &graph.node(*n).name;
        name.split('/').next().unwrap_or(name).to_string()
    };
    let mut layers = suspects.iter().map(layer);
    let first = layers.next()?;
    layers.all(|l| l == first).then_some(true)
}

/// Known mistakes that would give exactly this loss.
pub(crate) fn loss_hints(found: Option<f64>, golden: &Golden) -> Vec<String> {
    let (Some(found), Some(losses)) = (found, golden.manifest.losses_f64.first()) else { return Vec::new() };
    let same = |truth: f64| Distance::new((found - truth).abs() / truth.abs(), LOSS_FLOOR / 4.0).ratio() <= 1.0;
    let alternatives = losses.iter().filter(|(name, _)| name.starts_with("loss_"));
    alternatives
        .filter(|(_, truth)| same(**truth))
        .map(|(name, _)| format!("the loss found is the reference's `{name}`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Updates of three steps that rounding changes by these parts of them.
    fn updates(errors: &[f64]) -> BTreeMap<String, TensorFacts> {
        let facts = |error: &f64| {
            let text = format!(
                r#"{{"shape": [1], "mean": 1.0, "std": 0.0, "absmax": 1.0, "l2": 1.0, "delta_f32_rel": {error}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        errors.iter().enumerate().map(|(i, error)| (format!("param3/{i}"), facts(error))).collect()
    }

    #[test]
    fn updates_that_are_rounding_are_said_to_be() {
        let hint = rounding_hint(&updates(&[0.01, 0.89, 0.9])).unwrap();
        assert!(hint.starts_with("rounding alone changes the reference's updates of three steps by 89 % (median)"));
        assert_eq!(rounding_hint(&updates(&[0.01, 0.02, 0.9])), None);
        assert_eq!(rounding_hint(&updates(&[])), None);
    }
}

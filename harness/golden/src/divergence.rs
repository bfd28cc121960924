//! Finds the layer that causes the error of a tensor.

use crate::report::{Divergence, Stage};
use std::collections::HashSet;
use zoo_graph::{Graph, NodeId, Phase, Source, ValueId};

/// Most suspects in a report.
const MOST_SUSPECTS: usize = 12;

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

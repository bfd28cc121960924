//! From a tensor that is off to the layer that is wrong.

use crate::report::{Divergence, Stage};
use std::collections::HashSet;
use zoo_graph::{Graph, NodeId, Phase, Source, ValueId};

/// Suspects that a report lists.
const MOST_SUSPECTS: usize = 12;

/// Finds node, recipe line and suspects of a divergence at `value`; `proven` as for [`suspects`].
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

/// Nodes that may be at fault for a wrong `value`, nearest first: everything it depends on, up to values that are
/// proven.
///
/// `proven` are values that the golden covers and that pass. In the backward pass the operands of a proven gradient
/// count as proven too: had the gradient that flowed into it been wrong, so would be what was computed from it.
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

/// Whether the fault lies in the layer that computes `value`: yes if all suspects belong to it, unknown otherwise.
/// Never "no": the first divergence has no failing ancestor.
pub fn is_local(graph: &Graph, suspects: &[NodeId]) -> Option<bool> {
    let layer = |n: &NodeId| {
        let name = &graph.node(*n).name;
        name.split('/').next().unwrap_or(name).to_string()
    };
    let mut layers = suspects.iter().map(layer);
    let first = layers.next()?;
    layers.all(|l| l == first).then_some(true)
}

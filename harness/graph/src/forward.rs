//! The forward pass of a step.

use crate::graph::{Graph, NodeId, Phase, Source, TapState};

impl Graph {
    /// The step up to its losses, without backward pass and update, so that no variable changes. Values keep their
    /// ids; values that are no longer computed stay as entries without a source.
    #[must_use]
    pub fn forward(&self) -> Self {
        let mut graph = self.clone();
        graph.nodes.retain(|node| matches!(node.phase, Phase::Forward | Phase::Loss));
        let mut defined = vec![false; graph.values.len()];
        let given = graph.inputs.iter().map(|i| i.value).chain(graph.variables.iter().map(|v| v.value));
        given.for_each(|v| defined[v.0] = true);
        for (n, node) in graph.nodes.iter().enumerate() {
            for (i, v) in node.outputs.iter().enumerate() {
                graph.values[v.0].source = Source::Node(NodeId(n), i);
                defined[v.0] = true;
            }
        }
        graph.seed = None;
        graph.gradients.clear();
        graph.metrics.retain(|(_, v)| defined[v.0]);
        graph.taps.retain(|tap| !matches!(tap.state, TapState::Value(v) if !defined[v.0]));
        for variable in &mut graph.variables {
            variable.next = variable.next.filter(|next| defined[next.0]);
        }
        graph
    }
}

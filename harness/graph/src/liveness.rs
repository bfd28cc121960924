//! Liveness: the last use of each value, after which its memory can be reused.

use crate::graph::{Graph, NodeId, ValueId};

/// For each node, the values that no later node reads.
#[derive(Clone, Debug)]
pub struct Liveness {
    dies_after: Vec<Vec<ValueId>>,
}

impl Liveness {
    /// Computes it for `graph`. Results of the graph and `keep` never die.
    pub fn of(graph: &Graph, keep: &[ValueId]) -> Self {
        let mut last_use: Vec<Option<usize>> = vec![None; graph.values.len()];
        for (i, node) in graph.nodes.iter().enumerate() {
            for v in node.outputs.iter().chain(&node.inputs) {
                last_use[v.0] = Some(i);
            }
        }
        for v in graph.results().chain(keep.iter().copied()) {
            last_use[v.0] = None;
        }
        let mut dies_after = vec![Vec::new(); graph.nodes.len()];
        for (v, last) in last_use.iter().enumerate() {
            if let Some(node) = last {
                dies_after[*node].push(ValueId(v));
            }
        }
        Self { dies_after }
    }

    /// Values whose last use is this node (including its own unused outputs).
    pub fn dies_after(&self, node: NodeId) -> &[ValueId] {
        &self.dies_after[node.0]
    }
}

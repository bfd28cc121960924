//! Names for the values of a graph that are valid in every graph of the same step.

use std::collections::HashMap;
use zoo_graph::{Graph, Node, Op, Source, ValueId};

/// Names of the values of one graph.
pub(super) struct Names {
    /// The own name of each value.
    own: Vec<String>,
    /// The name in the exact step, which has no casts, layouts or loss scale.
    exact: Vec<String>,
}

impl Names {
    /// Names of the values of this graph.
    pub(super) fn of(graph: &Graph) -> Self {
        // Layers without names have the name of their line, so calls are numbered.
        let mut calls: HashMap<&str, usize> = HashMap::new();
        let mut call = Vec::new();
        for node in &graph.nodes {
            let count = calls.entry(&node.name).or_default();
            call.push(*count);
            *count += 1;
        }
        let own = |v: ValueId| match graph.value(v).source {
            Source::Node(n, i) => format!("{}#{}.{i}", graph.node(n).name, call[n.0]),
            Source::Variable(id) => format!("variable {}", graph.variable(id).name),
            Source::Input(i) => format!("input {}", graph.inputs[i].name),
        };
        let own: Vec<String> = (0..graph.values.len()).map(|v| own(ValueId(v))).collect();
        let exact = |mut v: ValueId| {
            while let Some(node) = graph.producer(v).filter(|node| converts(node)) {
                v = node.inputs[0];
            }
            own[v.0].clone()
        };
        let exact = (0..graph.values.len()).map(|v| exact(ValueId(v))).collect();
        Self { own, exact }
    }

    /// The own name of a value.
    pub(super) fn own(&self, v: ValueId) -> &str {
        &self.own[v.0]
    }

    /// The name of the same value in the exact step.
    pub(super) fn exact(&self, v: ValueId) -> &str {
        &self.exact[v.0]
    }
}

/// Whether a node only converts its operand.
pub(super) fn converts(node: &Node) -> bool {
    matches!(node.op, Op::Cast(_) | Op::TransData(_) | Op::LossScale(_))
}

//! Places operators that the device lacks on the host.
//!
//! What: nodes with a listed operator run on the host's processor; their operands and results are copied over the
//! host link. [`crossings`] lists the copied values. Why: frameworks fall back to the host silently, and users then
//! search for the cause of the slow kernel and the copies. When not: the device has a kernel for the operator;
//! scalars and class indices that are on the host anyway.

use super::{NewNode, Pass, Patch};
use crate::{
    error::GraphError,
    graph::{Graph, Node, NodeId, Place, Source, ValueId},
};
use std::collections::BTreeSet;

/// See the module's documentation.
pub struct HostPlacement {
    /// Operators (device names) that run on the host.
    pub operators: BTreeSet<String>,
}

impl Pass for HostPlacement {
    fn name(&self) -> &'static str {
        "host_placement"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let listed = graph.nodes.iter().enumerate().filter(|(_, node)| self.operators.contains(node.op.name()));
        let moved = listed.filter(|(_, node)| node.place == Place::Device).map(|(n, node)| Patch {
            label: node.name.clone(),
            remove: vec![NodeId(n)],
            insert: vec![NewNode { node: Node { place: Place::Host, ..node.clone() }, near: n }],
            ..Patch::default()
        });
        Ok(moved.collect())
    }
}

/// Values that are read on another machine than the one that computes them, with the reading machine; each once per
/// machine.
pub fn crossings(graph: &Graph) -> Vec<(ValueId, Place)> {
    let made_on = |v: ValueId| match graph.value(v).source {
        Source::Node(n, _) => graph.node(n).place,
        Source::Input(_) | Source::Variable(_) => Place::Device,
    };
    let read = graph.nodes.iter().flat_map(|node| node.inputs.iter().map(|v| (*v, node.place)));
    let crossing: BTreeSet<(ValueId, Place)> = read.filter(|(v, place)| made_on(*v) != *place).collect();
    crossing.into_iter().collect()
}

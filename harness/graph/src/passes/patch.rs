//! The changes of a pass, and their application.

use crate::{
    error::GraphError,
    graph::{Graph, Node, NodeId, Place, Scope, Source, TapState, Value, ValueId},
    ops::Op,
    tensor::TensorType,
};
use std::collections::BinaryHeap;

/// A labelled change: removed and inserted nodes.
#[derive(Clone, Debug, Default)]
pub struct Patch {
    /// A readable description.
    pub label: String,
    /// Removed nodes.
    pub remove: Vec<NodeId>,
    /// Inserted nodes. They may define the values of removed nodes again, or new ones.
    pub insert: Vec<NewNode>,
    /// Types of the values that the patch adds. Their ids are `graph.values.len() + i` before any patch of the pass
    /// is applied; values of earlier patches are added to this.
    pub values: Vec<TensorType>,
    /// Types that change, such as layouts.
    pub retype: Vec<(ValueId, TensorType)>,
    /// Taps, results and gradients that are moved from one value to another.
    pub redirect: Vec<(ValueId, ValueId)>,
    /// Components of the loss that are no longer computed.
    pub drop_losses: Vec<ValueId>,
}

/// A node that a patch inserts.
#[derive(Clone, Debug)]
pub struct NewNode {
    /// The node, with its inputs and outputs.
    pub node: Node,
    /// The index in the old order near which it should run; data dependencies take precedence.
    pub near: usize,
}

/// A patch under construction: assigns ids and types to new values, and results to nodes.
pub(super) struct Draft<'g> {
    graph: &'g Graph,
    /// The changes so far.
    pub(super) patch: Patch,
}

impl<'g> Draft<'g> {
    pub(super) fn new(graph: &'g Graph) -> Self {
        Self { graph, patch: Patch::default() }
    }

    /// Type of a value of the graph or of this patch.
    pub(super) fn ty(&self, v: ValueId) -> &TensorType {
        match v.0.checked_sub(self.graph.values.len()) {
            Some(fresh) => &self.patch.values[fresh],
            None => self.graph.ty(v),
        }
    }

    /// Adds a node with one result near index `near`, in the phase and with the origin of `like`.
    ///
    /// # Errors
    /// Operands that do not fit the operator.
    pub(super) fn add(
        &mut self,
        near: usize,
        like: &Scope,
        name: String,
        op: impl Into<Op>,
        inputs: &[ValueId],
    ) -> Result<ValueId, GraphError> {
        let op = op.into();
        let types: Vec<TensorType> = inputs.iter().map(|v| self.ty(*v).clone()).collect();
        let result = op.infer(&types.iter().collect::<Vec<_>>()).map_err(|source| GraphError::Shape {
            name: name.clone(),
            origin: like.origin.clone(),
            source,
        })?;
        let Ok([ty]) = <[TensorType; 1]>::try_from(result) else {
            return Err(GraphError::Invariant { after: None, message: format!("`{name}` was to have one result") });
        };
        Ok(self.add_typed(near, like, name, op, inputs.to_vec(), ty))
    }

    /// Adds a node with one result of a known type.
    pub(super) fn add_typed(
        &mut self,
        near: usize,
        like: &Scope,
        name: String,
        op: Op,
        inputs: Vec<ValueId>,
        ty: TensorType,
    ) -> ValueId {
        let result = self.value(ty);
        let (phase, origin) = (like.phase, like.origin.clone());
        let node = Node { name, op, inputs, outputs: vec![result], phase, origin, place: Place::Device };
        self.patch.insert.push(NewNode { node, near });
        result
    }

    /// A new value that a node of this patch must define.
    pub(super) fn value(&mut self, ty: TensorType) -> ValueId {
        self.patch.values.push(ty);
        ValueId(self.graph.values.len() + self.patch.values.len() - 1)
    }

    /// Replaces the node at index `n` by `node`.
    pub(super) fn replace(&mut self, n: usize, node: Node) {
        self.patch.remove.push(NodeId(n));
        self.patch.insert.push(NewNode { node, near: n });
    }

    /// Lets each node read `to(node, operand)` in place of each of its operands.
    pub(super) fn reread(&mut self, to: impl Fn(&Node, ValueId) -> ValueId) {
        for (n, node) in self.graph.nodes.iter().enumerate() {
            let inputs: Vec<_> = node.inputs.iter().map(|v| to(node, *v)).collect();
            if inputs != node.inputs {
                self.replace(n, Node { inputs, ..node.clone() });
            }
        }
    }

    /// The patch as a list; empty if it changes nothing.
    pub(super) fn finish(self, label: String) -> Vec<Patch> {
        if self.patch.insert.is_empty() && self.patch.remove.is_empty() {
            return Vec::new();
        }
        vec![Patch { label, ..self.patch }]
    }
}

/// Applies the patches of one pass and sorts the nodes.
///
/// Taps on values that are no longer defined become `Fused`.
///
/// # Errors
/// There is a cycle: patches of one pass contradict each other.
pub(super) fn apply(graph: &mut Graph, pass: &'static str, patches: Vec<Patch>) -> Result<(), GraphError> {
    if patches.is_empty() {
        return Ok(());
    }
    let mut removed = vec![false; graph.nodes.len()];
    let mut fresh: Vec<NewNode> = Vec::new();
    for patch in patches {
        for n in patch.remove {
            removed[n.0] = true;
        }
        for ty in patch.values {
            // The source is set when the nodes are ordered.
            graph.values.push(Value { ty, source: Source::Node(NodeId(usize::MAX), 0) });
        }
        for (v, ty) in patch.retype {
            graph.values[v.0].ty = ty;
        }
        for (from, to) in patch.redirect {
            redirect(graph, from, to);
        }
        graph.losses.retain(|(_, v)| !patch.drop_losses.contains(v));
        fresh.extend(patch.insert);
    }
    let old = std::mem::take(&mut graph.nodes);
    let kept = old.into_iter().enumerate().filter(|(i, _)| !removed[*i]).map(|(near, node)| NewNode { node, near });
    let mut nodes: Vec<NewNode> = kept.chain(fresh).collect();
    // Stable: of nodes with the same index, the inserted ones come after the kept one.
    nodes.sort_by_key(|n| n.near);
    graph.nodes = order(graph, nodes, pass)?;
    let mut defined = vec![false; graph.values.len()];
    for input in &graph.inputs {
        defined[input.value.0] = true;
    }
    for variable in &graph.variables {
        defined[variable.value.0] = true;
    }
    for (n, node) in graph.nodes.iter().enumerate() {
        for (i, v) in node.outputs.iter().enumerate() {
            graph.values[v.0].source = Source::Node(NodeId(n), i);
            defined[v.0] = true;
        }
    }
    for tap in &mut graph.taps {
        if matches!(tap.state, TapState::Value(v) if !defined[v.0]) {
            tap.state = TapState::Fused(pass);
        }
    }
    Ok(())
}

/// Replaces `from` by `to` in the results of the graph.
fn redirect(graph: &mut Graph, from: ValueId, to: ValueId) {
    let losses = graph.losses.iter_mut().chain(&mut graph.metrics).map(|l| &mut l.1);
    let outputs = graph.outputs.iter_mut().map(|o| &mut o.1);
    let gradients = graph.gradients.iter_mut().map(|g| &mut g.1);
    let next = graph.variables.iter_mut().filter_map(|v| v.next.as_mut());
    for v in losses.chain(outputs).chain(graph.seed.as_mut()).chain(gradients).chain(next) {
        if *v == from {
            *v = to;
        }
    }
    for tap in &mut graph.taps {
        if tap.state == TapState::Value(from) {
            tap.state = TapState::Value(to);
        }
    }
}

/// Topological order that keeps the given order where possible.
fn order(graph: &Graph, nodes: Vec<NewNode>, pass: &'static str) -> Result<Vec<Node>, GraphError> {
    let mut producer = vec![None; graph.values.len()];
    for (i, n) in nodes.iter().enumerate() {
        for v in &n.node.outputs {
            producer[v.0] = Some(i);
        }
    }
    let mut waits = vec![0usize; nodes.len()];
    let mut feeds: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (i, n) in nodes.iter().enumerate() {
        for p in n.node.inputs.iter().filter_map(|v| producer[v.0]) {
            waits[i] += 1;
            feeds[p].push(i);
        }
    }
    let mut ready: BinaryHeap<std::cmp::Reverse<usize>> =
        waits.iter().enumerate().filter(|(_, w)| **w == 0).map(|(i, _)| std::cmp::Reverse(i)).collect();
    let mut nodes: Vec<Option<Node>> = nodes.into_iter().map(|n| Some(n.node)).collect();
    let mut ordered = Vec::with_capacity(nodes.len());
    while let Some(std::cmp::Reverse(i)) = ready.pop() {
        ordered.extend(nodes[i].take());
        for &next in &feeds[i] {
            waits[next] -= 1;
            if waits[next] == 0 {
                ready.push(std::cmp::Reverse(next));
            }
        }
    }
    if ordered.len() < nodes.len() {
        let message = "its patches leave nodes that wait for each other".into();
        return Err(GraphError::Invariant { after: Some(pass), message });
    }
    Ok(ordered)
}

//! Determines which operators the device runs as one kernel.
//!
//! In addition to the fused operators that passes place in the graph, a kernel may append element-wise operators to a
//! product, because its results pass through the Vector unit anyway (CANN's buffer fusion). Values inside a kernel
//! are never in memory.

use zoo_graph::{
    Graph, Op, Phase, Place, Shape, Source, ValueId,
    attention::attentions,
    ops::{Kind, Transpose, Work},
};

/// Nodes that run as one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Indices of the nodes, in order; the first one names the kernel. Never empty.
    pub nodes: Vec<usize>,
    /// Where it runs.
    pub place: Place,
    /// Part of the step.
    pub phase: Phase,
}

/// Which operators are appended to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Riding<'d> {
    /// Element-wise operators are appended to products.
    pub elementwise: bool,
    /// Sums for the gradient of a normalisation are appended to the product that computes their operand.
    pub sums: bool,
    /// Each attention is one kernel, and so is its gradient.
    pub attention: bool,
    /// Operators that only read their operand in another way; the operators that read their result do this instead.
    pub views: &'d [String],
}

/// Groups the nodes of a graph. A kernel takes the position of its last node. Nodes without cost are in no kernel.
pub fn kernels(graph: &Graph, riding: Riding<'_>) -> Vec<Kernel> {
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.values.len()];
    for (n, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|v| readers[v.0].push(n));
    }
    for v in graph.results() {
        readers[v.0].push(usize::MAX);
    }
    // The first node of the kernel to which each node is appended; its own number if it is not appended.
    let mut head: Vec<usize> = (0..graph.nodes.len()).collect();
    if riding.elementwise {
        for (n, node) in graph.nodes.iter().enumerate() {
            if let Some(carrier) = carrier(graph, &readers, n, riding, &head) {
                head[n] = head[carrier];
            }
            debug_assert!(head[n] <= n, "{} rides on what comes later", node.name);
        }
    }
    for group in if riding.attention { fused_attentions(graph) } else { Vec::new() } {
        let first = group[0];
        head.iter_mut().filter(|head| group.contains(head)).for_each(|head| *head = first);
        group.into_iter().for_each(|n| head[n] = first);
    }
    let mut last: Vec<usize> = (0..graph.nodes.len()).collect();
    for n in 0..graph.nodes.len() {
        last[head[n]] = n;
    }
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes.len()];
    let constant = constants(graph);
    let paid = (0..graph.nodes.len()).filter(|n| !constant[*n] && !is_free(graph, *n, riding));
    paid.for_each(|n| members[last[head[n]]].push(n));
    let kernel = |nodes: Vec<usize>| {
        let first = &graph.nodes[nodes[0]];
        Kernel { place: first.place, phase: first.phase, nodes }
    };
    members.into_iter().filter(|nodes| !nodes.is_empty()).map(kernel).collect()
}

/// Attentions that can run as one kernel, because no other operator reads their values before the last node.
pub fn fused_attentions(graph: &Graph) -> Vec<Vec<usize>> {
    let alone = |group: &Vec<usize>| {
        let Some((first, last)) = group.first().zip(group.last()) else { return false };
        let made: Vec<ValueId> = group.iter().flat_map(|n| &graph.nodes[*n].outputs).copied().collect();
        let others = (*first..*last).filter(|n| !group.contains(n));
        others.flat_map(|n| &graph.nodes[n].inputs).all(|v| !made.contains(v))
    };
    attentions(graph).into_iter().map(|attention| attention.nodes).filter(alone).collect()
}

/// The node to which node `n` can be appended: the one that computes its operand last, if this is a product or is
/// itself appended to one. `head` is known of the nodes before it.
fn carrier(graph: &Graph, readers: &[Vec<usize>], n: usize, riding: Riding<'_>, head: &[usize]) -> Option<usize> {
    let node = &graph.nodes[n];
    if node.phase == Phase::Update || node.place == Place::Host {
        return None;
    }
    let kind = node.op.rules().kind();
    let data: &[ValueId] = match kind {
        Kind::Sum => &node.inputs,
        Kind::Activation | Kind::Elementwise => &node.inputs[..1],
        Kind::Statistics if riding.sums => &node.inputs[..1],
        Kind::Statistics | Kind::Product | Kind::Normalisation | Kind::Update(_) | Kind::Other => return None,
    };
    let made_by = |v: &ValueId| match graph.value(*v).source {
        Source::Node(by, _) => Some((by.0, *v)),
        Source::Input(_) | Source::Variable(_) => None,
    };
    let (by, value) = data.iter().filter_map(made_by).max()?;
    let alone = readers[value.0].len() == 1;
    let maker = &graph.nodes[by];
    let carries = match maker.op.rules().kind() {
        Kind::Product => true,
        Kind::Normalisation => kind == Kind::Activation,
        Kind::Sum | Kind::Activation | Kind::Elementwise => head[by] != by,
        Kind::Statistics | Kind::Update(_) | Kind::Other => false,
    };
    // Sums only read the values that pass through the kernel; other operators must be the only reader.
    (carries && maker.place == Place::Device && (alone || kind == Kind::Statistics)).then_some(by)
}

/// Whether a node that is not constant has no cost: it moves no data, is left to the operators that read its result,
/// computes scalars, or is part of another operator on the device (running statistics are updated inside
/// `BNTrainingUpdate`).
fn is_free(graph: &Graph, n: usize, riding: Riding<'_>) -> bool {
    let node = &graph.nodes[n];
    if node.place == Place::Host {
        return false;
    }
    let scalar = |v: &ValueId| graph.ty(*v).shape == Shape::scalar();
    let work = node.op.rules().work(&graph.types(&node.inputs), &graph.types(&node.outputs));
    work == Work::Nothing
        || matches!(work, Work::Views { .. }) && is_view(&node.op, riding)
        || node.inputs.iter().chain(&node.outputs).all(scalar)
}

/// Whether an operator only reads its operand in another way and is left to those that read its result.
fn is_view(op: &Op, riding: Riding<'_>) -> bool {
    // A fused attention accepts matrices whose rows are not adjacent, like those of heads.
    let of_heads = |op: &Transpose| matches!(op.permutation[..], [.., a, b, _] if a == b + 1);
    riding.views.iter().any(|name| name == op.name())
        || riding.attention && matches!(op, Op::Transpose(transpose) if of_heads(transpose))
}

/// For each node, whether its results are known before the first step, so that it costs nothing on the device.
fn constants(graph: &Graph) -> Vec<bool> {
    let mut constant = vec![false; graph.nodes.len()];
    for (n, node) in graph.nodes.iter().enumerate() {
        constant[n] = node.inputs.iter().all(|v| match graph.value(*v).source {
            Source::Node(by, _) => constant[by.0],
            Source::Input(_) | Source::Variable(_) => false,
        });
    }
    for (n, node) in graph.nodes.iter().enumerate() {
        constant[n] &= node.place != Place::Host;
    }
    constant
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_graph::{
        DType, Scope, TensorType,
        ops::{Fill, MatMul, Rectifier, Relu},
    };

    /// As many operators in a row as would overflow the stack of a function that follows them.
    const DEEP: usize = 200_000;

    #[test]
    fn a_long_row_of_operators_needs_no_deep_stack() {
        let mut graph = Graph::default();
        let scope = Scope { phase: Phase::Forward, origin: None };
        let ty = TensorType::plain([4, 4], DType::F32);
        let operands = ["x", "w"].map(|name| graph.add_input(name, ty.clone()));
        let product = MatMul { transpose_a: false, transpose_b: false };
        let mut value = graph.add(&scope, "product".to_owned(), product, &operands).unwrap();
        let mut constant = graph.add(&scope, "constant".to_owned(), Fill { value: 1.0, ty }, &[]).unwrap();
        for n in 0..DEEP {
            let relu = || Relu { rectifier: Rectifier::Relu };
            value = graph.add(&scope, format!("relu{n}"), relu(), &[value]).unwrap();
            constant = graph.add(&scope, format!("constant{n}"), relu(), &[constant]).unwrap();
        }
        graph.outputs.extend([("y".to_owned(), value), ("constant".to_owned(), constant)]);
        let riding = Riding { elementwise: true, sums: false, attention: false, views: &[] };
        let kernels = kernels(&graph, riding);
        assert_eq!(kernels.iter().map(|kernel| kernel.nodes.len()).collect::<Vec<_>>(), [DEEP + 1]);
    }
}

//! Divides a forward pass into stages, each of which is on ranks of its own.
//!
//! A rank computes what it has the operands for. So it is enough that each rank has the parameters of its own stages, and
//! that activations are sent from stage to stage; the gradients come back along the same way.

use super::{Distributed, MeshAxis, Placement};
use crate::{
    error::GraphError,
    graph::{Graph, Node, Phase, Scope, Source, ValueId, VariableId},
    ops::{Collective, Exchange, Op},
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Stages on ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages {
    /// Ranks along the pipeline.
    pub ranks: usize,
    /// Stages of each rank: stage `n` is on rank `n % ranks`.
    pub interleave: usize,
}

/// A graph in stages.
#[derive(Clone, Debug)]
pub struct Pipelined {
    /// The graph of all ranks.
    pub distributed: Distributed,
    /// The places along the pipeline that have each variable.
    pub holders: BTreeMap<VariableId, BTreeSet<usize>>,
}

/// Divides a graph without gradients into stages of about equal work. A stage ends where a single activation leads on;
/// terms of the loss that belong to a layer are sent to the last stage.
///
/// # Errors
/// A network with fewer places to divide it, with their number.
pub fn pipeline(graph: &Graph, stages: Stages) -> Result<Pipelined, GraphError> {
    let stored = depends_on_variables(graph);
    let cuts = cuts(graph, &stored, stages)?;
    let stage_of = |n: usize| cuts.iter().filter(|cut| **cut <= n).count();
    let place_of = |stage: usize| stage % stages.ranks;
    let mut holders: BTreeMap<VariableId, BTreeSet<usize>> = BTreeMap::new();
    for (n, node) in graph.nodes.iter().enumerate() {
        for value in &node.inputs {
            if let Source::Variable(id) = graph.value(*value).source {
                holders.entry(id).or_default().insert(place_of(stage_of(n)));
            }
        }
    }
    let mut own = Graph::default();
    let mut places: Vec<Option<ValueId>> = vec![None; graph.values.len()];
    for input in &graph.inputs {
        places[input.value.0] = Some(own.add_input(&input.name, graph.ty(input.value).clone()));
    }
    for variable in &graph.variables {
        let (name, role, ty) = (variable.name.clone(), variable.role.clone(), graph.ty(variable.value).clone());
        let id = own.add_variable(name, role, ty, variable.init.clone(), variable.origin.clone());
        places[variable.value.0] = Some(own.variable(id).value);
    }
    let mut made: HashMap<(ValueId, usize, usize), ValueId> = HashMap::new();
    for (n, node) in graph.nodes.iter().enumerate() {
        let to = place_of(stage_of(n));
        let mut operands = Vec::new();
        for value in &node.inputs {
            let missing = || GraphError::Invariant { after: None, message: format!("value {} has no place", value.0) };
            let here = places[value.0].ok_or_else(missing)?;
            let (from, exchange, by) = match graph.value(*value).source {
                Source::Variable(id) if holders[&id].len() > 1 => {
                    (to, Exchange::CopyAt(to), graph.variable(id).name.clone())
                }
                Source::Node(by, _) if stored[value.0] && place_of(stage_of(by.0)) != to => {
                    let from = place_of(stage_of(by.0));
                    (from, Exchange::Send { from, to }, graph.node(by).name.clone())
                }
                Source::Node(..) | Source::Variable(_) | Source::Input(_) => {
                    operands.push(here);
                    continue;
                }
            };
            let key = (*value, from, to);
            if let Some(known) = made.get(&key) {
                operands.push(*known);
                continue;
            }
            let name = format!("{by}/pipeline_{}{to}", exchange.word());
            let op = Collective { exchange, over: MeshAxis::Pipeline, ranks: stages.ranks };
            let scope = Scope { phase: node.phase, origin: node.origin.clone() };
            let sent = own.add(&scope, name, op, &[here])?;
            made.insert(key, sent);
            operands.push(sent);
        }
        let scope = Scope { phase: node.phase, origin: node.origin.clone() };
        let results = own.add_node(&scope, &node.name, node.op.clone(), &operands)?;
        node.outputs.iter().zip(results).for_each(|(old, new)| places[old.0] = Some(new));
    }
    let places: Vec<_> = places.into_iter().map(|place| Some((place?, Placement::Whole))).collect();
    own.carry_over(graph, |value| places[value.0].as_ref().map(|(value, _)| *value))?;
    Ok(Pipelined { distributed: Distributed { graph: own, places }, holders })
}

/// Whether each value depends on a variable. Any rank can compute one that does not.
fn depends_on_variables(graph: &Graph) -> Vec<bool> {
    let mut depends = vec![false; graph.values.len()];
    graph.variables.iter().for_each(|variable| depends[variable.value.0] = true);
    for node in &graph.nodes {
        let of_operands = node.inputs.iter().any(|value| depends[value.0]);
        node.outputs.iter().for_each(|value| depends[value.0] = of_operands);
    }
    depends
}

/// The nodes with which the second and further stages begin.
fn cuts(graph: &Graph, stored: &[bool], stages: Stages) -> Result<Vec<usize>, GraphError> {
    let count = stages.ranks * stages.interleave;
    // The last reader of each activation before the loss.
    let mut until = vec![0; graph.values.len()];
    for (n, node) in graph.nodes.iter().enumerate().filter(|(_, node)| node.phase == Phase::Forward) {
        node.inputs.iter().for_each(|value| until[value.0] = n);
    }
    let work = |node: &Node| {
        let flop = node.op.rules().flop(&graph.types(&node.inputs), &graph.types(&node.outputs)).0;
        if matches!(node.op, Op::MatMul(_) | Op::Conv2D(_) | Op::GroupedMatMul(_)) { flop } else { 0 }
    };
    let total: u64 = graph.nodes.iter().map(work).sum();
    let (mut open, mut done) = (BTreeSet::new(), 0);
    let mut possible: Vec<(usize, u64)> = Vec::new();
    for (n, node) in graph.nodes.iter().enumerate().filter(|(_, node)| node.phase == Phase::Forward) {
        if open.len() == 1 && done > 0 && done < total {
            possible.push((n, done));
        }
        done += work(node);
        open.extend(node.outputs.iter().filter(|value| stored[value.0] && until[value.0] > n).copied());
        open.retain(|value: &ValueId| until[value.0] > n);
    }
    let mut cuts: Vec<usize> = Vec::new();
    for stage in 1..count {
        let wanted = total * stage as u64 / count as u64;
        let after = cuts.last().copied().unwrap_or(0);
        // Enough places have to remain for the stages behind.
        let room = possible.len().saturating_sub(count - 1 - stage);
        let free = possible[..room].iter().filter(|(n, done)| *n > after && !is_taken(&possible, &cuts, *done));
        let Some((cut, _)) = free.min_by_key(|(_, done)| done.abs_diff(wanted)) else {
            let distinct: BTreeSet<u64> = possible.iter().map(|(_, done)| *done).collect();
            let message = format!(
                "{count} stages of a pipeline need {} places to divide the network, and there are {}: a stage ends where \
                 one activation leads on",
                count - 1,
                distinct.len()
            );
            return Err(GraphError::Model { origin: None, message });
        };
        cuts.push(*cut);
    }
    Ok(cuts)
}

/// Whether a stage would have no work of its own.
fn is_taken(possible: &[(usize, u64)], cuts: &[usize], done: u64) -> bool {
    possible.iter().any(|(n, before)| cuts.contains(n) && *before == done)
}

//! Runs the graph of a split step on all its ranks in one process, node by node, so that a collective sees what every
//! rank gives to it. A rank computes what it has the operands for: the stages of a pipeline differ in the variables
//! that they have, and in what is sent to them.

use crate::{
    EngineError, KernelError, Scalars, candle_dtype,
    reference::{Call, compute},
};
use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;
use std::collections::BTreeMap;
use zoo_graph::{
    Graph, Node, NodeId, Op, TensorType, ValueId, VariableId,
    liveness::Liveness,
    ops::{Collective, Exchange},
    parallel::{Mesh, Part},
    verify,
};
use zoo_ranks::Ranks;

/// Sees values of all ranks as soon as they exist.
pub trait RanksObserver {
    /// Whether it wants to see this value.
    fn wants(&self, value: ValueId) -> bool;

    /// Receives a requested value: a row-major tensor of each rank that computes it.
    ///
    /// # Errors
    /// An error of candle.
    fn observe(&mut self, value: ValueId, ranks: &Ranked) -> candle_core::Result<()>;
}

/// A disturbance of a node: what ranks compute instead of it. For planted faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// All ranks take the part of the first one.
    FirstPart,
    /// The result is zero.
    Zero,
    /// The result is that of the step before.
    Stale,
    /// Each rank draws its own random numbers.
    OwnSeed,
    /// The number of updates is one too large.
    NextStep,
    /// A sum begins with the last rank. This changes the rounding alone.
    OtherOrder,
    /// A sum has the term of the last rank alone.
    LastTerm,
    /// Each rank has its own term of a sum alone.
    OwnTerm,
}

/// A tensor of each rank that has it.
pub type Ranked = Vec<Option<Tensor>>;

/// A graph that all ranks of a mesh run, with the variables of each.
pub struct LockStep {
    graph: Graph,
    mesh: Mesh,
    liveness: Liveness,
    /// By variable and rank.
    variables: Vec<Ranked>,
    /// By node.
    disturbed: BTreeMap<NodeId, Disturbance>,
    /// The results of disturbed nodes in the last step.
    before: BTreeMap<NodeId, Vec<Ranked>>,
}

impl LockStep {
    /// Prepares a row-major graph. All variables are zero.
    ///
    /// # Errors
    /// An invalid graph.
    pub fn new(graph: Graph, mesh: Mesh) -> Result<Self, EngineError> {
        verify(&graph, None)?;
        let zeros = |ty: &TensorType| Tensor::zeros(&ty.shape[..], candle_dtype(ty.dtype), &Device::Cpu);
        let types = graph.variables.iter().map(|variable| graph.ty(variable.value));
        let variables = types.map(|ty| Ok(vec![Some(zeros(ty)?); mesh.ranks()])).collect::<Result<_, EngineError>>()?;
        let liveness = Liveness::of(&graph, &[]);
        let (disturbed, before) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { graph, mesh, liveness, variables, disturbed, before })
    }

    /// Disturbs a node from now on.
    pub fn disturb(&mut self, node: NodeId, disturbance: Disturbance) {
        self.disturbed.insert(node, disturbance);
    }

    /// The graph of each rank.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The ranks.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Sets a variable of each rank.
    pub fn set_variable(&mut self, id: VariableId, ranks: Ranked) {
        self.variables[id.0] = ranks;
    }

    /// A variable of each rank.
    pub fn variable(&self, id: VariableId) -> &Ranked {
        &self.variables[id.0]
    }

    /// Runs the step once. `inputs` are in the order of the graph, each with the tensor of each rank. Returns the losses
    /// and metrics in the order of the graph, each with the ranks that compute it.
    ///
    /// # Errors
    /// A node that cannot be computed; variables are then unchanged.
    pub fn run(
        &mut self,
        inputs: &[Ranked],
        scalars: Scalars,
        observer: &mut dyn RanksObserver,
    ) -> Result<Vec<Vec<(usize, f64)>>, EngineError> {
        let graph = &self.graph;
        let mut live = Live { values: vec![None; graph.values.len()], observer };
        for (input, ranks) in graph.inputs.iter().zip(inputs) {
            live.put(input.value, ranks.clone())?;
        }
        for (variable, ranks) in graph.variables.iter().zip(&self.variables) {
            live.put(variable.value, ranks.clone())?;
        }
        for (n, node) in graph.nodes.iter().enumerate() {
            let in_node = |source| EngineError::Node { name: node.name.clone(), op: node.op.name(), source };
            let operands = node.inputs.iter().map(|v| live.get(*v)).collect::<candle_core::Result<Vec<_>>>()?;
            let disturbed = self.disturbed.get(&NodeId(n)).copied();
            let mut results = if let Op::Collective(op) = &node.op {
                let ranks = exchange(op, operands[0], &self.mesh, disturbed);
                vec![ranks.map_err(KernelError::from).map_err(in_node)?]
            } else {
                self.each(node, &operands, live.loss(graph), (scalars, disturbed)).map_err(in_node)?
            };
            match disturbed {
                Some(Disturbance::Zero) => {
                    for tensor in results.iter_mut().flatten().flatten() {
                        *tensor = tensor.zeros_like()?;
                    }
                }
                Some(Disturbance::Stale) => {
                    if let Some(old) = self.before.insert(NodeId(n), results.clone()) {
                        results = old;
                    }
                }
                Some(Disturbance::FirstPart | Disturbance::OwnSeed | Disturbance::NextStep) | None => {}
                Some(Disturbance::OtherOrder | Disturbance::LastTerm | Disturbance::OwnTerm) => {}
            }
            for (value, ranks) in node.outputs.iter().zip(results) {
                live.put(*value, ranks)?;
            }
            for value in self.liveness.dies_after(NodeId(n)) {
                live.values[value.0] = None;
            }
        }
        let scalar = |tensor: &Tensor| tensor.to_dtype(DType::F64)?.to_scalar::<f64>();
        let of = |value: ValueId| -> candle_core::Result<Vec<(usize, f64)>> {
            let ranks = live.get(value)?.iter().enumerate();
            ranks
                .filter_map(|(rank, tensor)| Some((rank, tensor.as_ref()?)))
                .map(|(n, x)| Ok((n, scalar(x)?)))
                .collect()
        };
        let scalars = graph.losses.iter().chain(&graph.metrics).map(|(_, value)| of(*value));
        let scalars = scalars.collect::<candle_core::Result<_>>()?;
        let next = graph.variables.iter().zip(&self.variables).map(|(variable, now)| match variable.next {
            Some(next) => live.get(next).cloned(),
            None => Ok(now.clone()),
        });
        self.variables = next.collect::<candle_core::Result<_>>()?;
        Ok(scalars)
    }

    /// The results of a node, each with the tensor of each rank that has the operands.
    fn each(
        &self,
        node: &Node,
        operands: &[&Ranked],
        losses: Option<Vec<Option<f64>>>,
        (scalars, disturbed): (Scalars, Option<Disturbance>),
    ) -> Result<Vec<Ranked>, KernelError> {
        let graph = &self.graph;
        let (operand_types, result_types) = (graph.types(&node.inputs), graph.types(&node.outputs));
        let alone = Ranks::alone();
        let of_rank = |rank: usize| {
            let given = operands.iter().map(|ranks| ranks[rank].clone());
            let is_sum = matches!(node.op, Op::Add(_));
            // Summands that are on other ranks are no summands here.
            let operands: Option<Vec<Tensor>> = if is_sum { Some(given.flatten().collect()) } else { given.collect() };
            let Some(operands) = operands else { return Ok(None) };
            if is_sum && operands.len() < 2 {
                return Ok((!operands.is_empty()).then_some(operands));
            }
            let loss = losses.as_ref().and_then(|losses| losses[rank]);
            if let Some(count) = graph.keeps(&node.op, loss, false) {
                return Ok(Some(operands[..count].to_vec()));
            }
            let scalars = match disturbed {
                Some(Disturbance::OwnSeed) => Scalars { seed: scalars.seed + rank as u64, ..scalars },
                Some(Disturbance::NextStep) => Scalars { step: scalars.step + 1, ..scalars },
                Some(Disturbance::FirstPart | Disturbance::Zero | Disturbance::Stale) | None => scalars,
                Some(Disturbance::OtherOrder | Disturbance::LastTerm | Disturbance::OwnTerm) => scalars,
            };
            let (operand_types, result_types) = (&operand_types[..operands.len()], &result_types[..]);
            let call = Call { operands: &operands, operand_types, result_types, scalars, ranks: &alone };
            compute(&node.op, &call).map(Some)
        };
        let ranks = (0..self.mesh.ranks()).into_par_iter().map(of_rank).collect::<Result<Vec<_>, _>>()?;
        let mut results: Vec<Ranked> = vec![vec![None; ranks.len()]; node.outputs.len()];
        for (rank, tensors) in ranks.into_iter().enumerate() {
            let tensors = tensors.into_iter().flatten();
            results.iter_mut().zip(tensors).for_each(|(result, tensor)| result[rank] = Some(tensor));
        }
        Ok(results)
    }
}

/// What each rank gets. Ranks that have nothing take no part, and get what the others have together.
fn exchange(
    op: &Collective,
    given: &Ranked,
    mesh: &Mesh,
    disturbed: Option<Disturbance>,
) -> candle_core::Result<Ranked> {
    let mut got = given.clone();
    for group in mesh.groups(op.over) {
        if let Exchange::Send { from, to } = op.exchange {
            group.iter().for_each(|rank| got[*rank] = None);
            got[group[to]].clone_from(&given[group[from]]);
            continue;
        }
        if let Exchange::CopyAt(at) = op.exchange {
            group.iter().filter(|rank| **rank != group[at]).for_each(|rank| got[*rank] = None);
            continue;
        }
        let mut parts: Vec<&Tensor> = group.iter().filter_map(|rank| given[*rank].as_ref()).collect();
        match disturbed {
            Some(Disturbance::OtherOrder) => parts.reverse(),
            Some(Disturbance::LastTerm) => drop(parts.drain(..parts.len().saturating_sub(1))),
            Some(Disturbance::OwnTerm) => {
                if let Some(other) = parts.first() {
                    let none = other.zeros_like()?;
                    group.iter().for_each(|rank| got[*rank] = got[*rank].take().or_else(|| Some(none.clone())));
                }
                continue;
            }
            Some(Disturbance::FirstPart | Disturbance::Zero | Disturbance::Stale) | None => {}
            Some(Disturbance::OwnSeed | Disturbance::NextStep) => {}
        }
        if parts.is_empty() {
            continue;
        }
        let ranks: Vec<Tensor> = match &op.exchange {
            Exchange::Copy | Exchange::CopyAt(_) | Exchange::Send { .. } => continue,
            Exchange::Sum => vec![sum(&parts)?; group.len()],
            Exchange::Gather(part) | Exchange::GatherCopy(part) => vec![joined(&parts, part)?; group.len()],
            Exchange::SumPart(part) => own(&vec![&sum(&parts)?; group.len()], part)?,
            Exchange::Own(part) => own(&parts, part)?,
            Exchange::Spread(part) => spread(&parts, part)?,
            Exchange::Swap { from, to } => {
                let whole = joined(&parts, from)?;
                own(&vec![&whole; group.len()], to)?
            }
        };
        for (place, rank) in group.iter().enumerate() {
            let place = if disturbed == Some(Disturbance::FirstPart) { 0 } else { place };
            got[*rank] = ranks.get(place).cloned();
        }
    }
    Ok(got)
}

/// The sum of the tensors, in the order of the ranks.
fn sum(parts: &[&Tensor]) -> candle_core::Result<Tensor> {
    parts[1..].iter().try_fold(parts[0].clone(), |sum, part| sum.add(part))
}

/// The part of each rank of what it has whole.
fn own(wholes: &[&Tensor], part: &Part) -> candle_core::Result<Vec<Tensor>> {
    let of_rank = |(place, whole): (usize, &&Tensor)| part_of(whole, part, place, wholes.len());
    wholes.iter().enumerate().map(of_rank).collect()
}

/// The part of the rank at a place.
///
/// # Errors
/// A tensor that is not divided in this way.
pub fn part_of(whole: &Tensor, part: &Part, place: usize, ranks: usize) -> candle_core::Result<Tensor> {
    let runs = part.ranges(place, ranks).map(|range| whole.narrow(part.axis, range.start, range.len()));
    Tensor::cat(&runs.collect::<candle_core::Result<Vec<_>>>()?, part.axis)?.contiguous()
}

/// The whole tensor, from the parts of all ranks.
///
/// # Errors
/// Tensors that are not such parts.
pub fn joined(parts: &[&Tensor], part: &Part) -> candle_core::Result<Tensor> {
    // One run is divided in the order of the ranks, and, where another program divided it, perhaps unequally.
    if part.runs.len() == 1 {
        return Tensor::cat(parts, part.axis)?.contiguous();
    }
    let mut pieces = Vec::new();
    let mut start = 0;
    for run in &part.runs {
        let own = run / parts.len();
        for rank in parts {
            pieces.push(rank.narrow(part.axis, start, own)?);
        }
        start += own;
    }
    Tensor::cat(&pieces, part.axis)?.contiguous()
}

/// The part of each rank with zeros where the parts of others are.
fn spread(parts: &[&Tensor], part: &Part) -> candle_core::Result<Vec<Tensor>> {
    let zeros = parts.iter().map(|part| part.zeros_like()).collect::<candle_core::Result<Vec<_>>>()?;
    let of_rank = |place: usize| {
        let at = |n: usize| if n == place { parts[n] } else { &zeros[n] };
        joined(&(0..parts.len()).map(at).collect::<Vec<_>>(), part)
    };
    (0..parts.len()).map(of_rank).collect()
}

/// The live values of all ranks.
struct Live<'a> {
    values: Vec<Option<Ranked>>,
    observer: &'a mut dyn RanksObserver,
}

impl Live<'_> {
    fn get(&self, value: ValueId) -> candle_core::Result<&Ranked> {
        let missing = || candle_core::Error::Msg(format!("value {} does not live here", value.0));
        self.values[value.0].as_ref().ok_or_else(missing)
    }

    fn put(&mut self, value: ValueId, ranks: Ranked) -> candle_core::Result<()> {
        if self.observer.wants(value) {
            self.observer.observe(value, &ranks)?;
        }
        self.values[value.0] = Some(ranks);
        Ok(())
    }

    /// The total loss of each rank, if it determines whether the update is skipped.
    fn loss(&self, graph: &Graph) -> Option<Vec<Option<f64>>> {
        let value = graph.loss().filter(|_| graph.skip_loss_above.is_some())?;
        let ranks = self.values[value.0].as_ref()?;
        let scalar = |tensor: &Tensor| tensor.to_dtype(DType::F64).ok()?.to_scalar().ok();
        Some(ranks.iter().map(|tensor| scalar(tensor.as_ref()?)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_graph::parallel::MeshAxis;

    fn row(values: &[f64]) -> Tensor {
        Tensor::new(values, &Device::Cpu).unwrap()
    }

    fn exchanged(exchange: Exchange, given: &[&[f64]]) -> Vec<Vec<f64>> {
        let mesh = Mesh::new(|axis| if axis == MeshAxis::Tensor { given.len() } else { 1 });
        let op = Collective { exchange, over: MeshAxis::Tensor, ranks: given.len() };
        let given: Ranked = given.iter().map(|values| Some(row(values))).collect();
        let got = super::exchange(&op, &given, &mesh, None).unwrap();
        got.iter().map(|tensor| tensor.as_ref().unwrap().to_vec1().unwrap()).collect()
    }

    #[test]
    fn every_exchange_by_hand() {
        let runs = Part { axis: 0, runs: vec![4, 2] };
        let whole: &[f64] = &[1., 2., 3., 4., 5., 6.];
        let parts: [&[f64]; 2] = [&[1., 2., 5.], &[3., 4., 6.]];
        assert_eq!(exchanged(Exchange::Own(runs.clone()), &[whole, whole]), parts);
        assert_eq!(exchanged(Exchange::Gather(runs.clone()), &parts), [whole, whole]);
        assert_eq!(exchanged(Exchange::GatherCopy(runs.clone()), &parts), [whole, whole]);
        let spread: [&[f64]; 2] = [&[1., 2., 0., 0., 5., 0.], &[0., 0., 3., 4., 0., 6.]];
        assert_eq!(exchanged(Exchange::Spread(runs.clone()), &parts), spread);
        assert_eq!(exchanged(Exchange::Sum, &spread), [whole, whole]);
        assert_eq!(exchanged(Exchange::SumPart(runs.clone()), &spread), parts);
        assert_eq!(exchanged(Exchange::Copy, &parts), parts);
        let one = Part { axis: 0, runs: vec![6] };
        let halves: [&[f64]; 2] = [&[1., 2., 3.], &[4., 5., 6.]];
        assert_eq!(exchanged(Exchange::Swap { from: runs, to: one }, &parts), halves);
    }
}

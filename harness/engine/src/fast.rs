//! Fast kernels: a graph in blocked layouts in one arena of f32.
//!
//! Values lie where a [`MemoryPlan`] places them. While a node runs, the arena is split into its results and what lies
//! between them, so that its operands can be borrowed at the same time without copies. The kernel of a node is chosen
//! in one place ([`choice`]).

mod arena;
mod call;
mod choice;
mod conv;
mod dense;
mod elementwise;
mod fallback;
mod formula;
mod gather;
mod grouped;
mod loss;
mod matmul;
mod norm;
mod plain;
mod pool;
mod routing;
mod shape;
mod transfer;
mod update;

use crate::{
    EngineError, KernelError, Observer,
    elements::Elements,
    run::{Outcome, Scalars},
    simulate::{Findings, Held, Range, Simulation},
};
use arena::Arena;
use call::{Call, Operand};
use candle_core::{DType, Device, Tensor};
use choice::choose;
use rayon::prelude::*;
use std::{collections::HashMap, ops, time::Instant};
use transfer::{Travelling, UnderWay};
use zoo_graph::{Bytes, Graph, MemoryPlan, Node, NodeId, Op, Source, TensorType, ValueId, VariableId};
use zoo_kernels::{AlignedBuf, Isa};
use zoo_ranks::{Ranks, RanksError};

pub(crate) use plain::{from_plain, to_plain};

/// Row-major tensors that an observer saw and that one of the [`NEXT`] nodes also reads.
type Plain = HashMap<ValueId, Tensor>;

/// Number of nodes for which a row-major tensor is kept.
const NEXT: usize = 4;

/// The memory of a graph, with its variables.
pub(crate) struct Executor {
    plan: MemoryPlan,
    arena: Arena,
    /// Place of each variable: after a step, that of its next value.
    variables: Vec<ops::Range<usize>>,
    /// Class indices, by input.
    indices: Vec<Vec<u32>>,
    workspace: AlignedBuf,
    isa: Isa,
    /// Seconds that each node took in the last step.
    node_seconds: Vec<f64>,
    /// The simulated device, and the overflow state of its last step.
    simulated: Option<(Simulation, Findings)>,
    ranks: Ranks,
    /// Whether a value is read: the memory of an unread value is reused immediately.
    read: Vec<bool>,
    /// Pending transfers of the current step.
    under_way: Vec<UnderWay>,
}

impl Executor {
    /// Plans and allocates. All variables are zero.
    ///
    /// # Errors
    /// A graph that computes in another type than f32 and, on a simulated device, half precision.
    pub fn new(graph: &Graph, isa: Isa, simulation: Option<Simulation>) -> Result<Self, EngineError> {
        let computes = |dtype: zoo_graph::DType| match dtype {
            zoo_graph::DType::F32 | zoo_graph::DType::U32 => true,
            zoo_graph::DType::F16 | zoo_graph::DType::Bf16 => simulation.is_some(),
            zoo_graph::DType::F64 => false,
        };
        if let Some(dtype) = graph.values.iter().map(|v| v.ty.dtype).find(|dtype| !computes(*dtype)) {
            return Err(EngineError::FastDType(dtype));
        }
        let plan = plan(graph);
        Ok(Self {
            variables: graph.variables.iter().map(|v| place(&plan, v.value).unwrap_or_default()).collect(),
            arena: Arena::of(plan.bytes()),
            plan,
            indices: vec![Vec::new(); graph.inputs.len()],
            workspace: AlignedBuf::zeroed(workspace(graph, isa, simulation.as_ref().map(Simulation::range))),
            isa,
            node_seconds: vec![0.0; graph.nodes.len()],
            simulated: simulation.map(|simulation| (simulation, Findings::default())),
            ranks: Ranks::alone(),
            read: read(graph),
            under_way: Vec::new(),
        })
    }

    /// Makes this the executor of one of several ranks.
    pub fn join(&mut self, ranks: Ranks) {
        self.ranks = ranks;
    }

    /// Memory of the arena and of the kernels' workspace.
    pub fn memory(&self) -> Bytes {
        self.plan.bytes() + Bytes(4 * self.workspace.len() as u64)
    }

    /// Seconds that each node took in the last step.
    pub fn node_seconds(&self) -> &[f64] {
        &self.node_seconds
    }

    /// Sets a variable to a row-major tensor of its shape.
    pub fn set_variable(&mut self, graph: &Graph, id: VariableId, tensor: &Tensor) -> Result<(), EngineError> {
        let ty = graph.ty(graph.variable(id).value);
        let tensor = tensor.flatten_all()?;
        let values = Elements::of(&tensor)?;
        from_plain(self.isa, ty, values.slice()?, self.arena.at_mut(&self.variables[id.0]));
        Ok(())
    }

    /// Current value of a variable, row-major.
    pub fn variable(&self, graph: &Graph, id: VariableId) -> Result<Tensor, EngineError> {
        let ty = graph.ty(graph.variable(id).value);
        tensor(self.isa, ty, self.arena.at(&self.variables[id.0]))
    }

    /// Whether all elements of a variable are finite.
    pub fn is_finite(&self, id: VariableId) -> bool {
        const PIECE: usize = 1 << 16;
        let values = self.arena.at(&self.variables[id.0]);
        // Without an early exit within a piece, the compiler vectorises the loop.
        let finite = |piece: &[f32]| piece.iter().fold(true, |all, value| all & value.is_finite());
        values.par_chunks(PIECE).all(|piece| self.isa.run(|| finite(piece)))
    }

    /// Runs the graph once.
    ///
    /// # Errors
    /// A node that cannot be computed. Some variables may then have changed already.
    pub fn run(
        &mut self,
        graph: &Graph,
        inputs: &[Tensor],
        scalars: Scalars,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, EngineError> {
        for (variable, at) in graph.variables.iter().zip(&mut self.variables) {
            if let Some(planned) = place(&self.plan, variable.value).filter(|planned| planned != at) {
                self.arena.copy(at, &planned);
                *at = planned;
            }
        }
        for (i, (input, tensor)) in graph.inputs.iter().zip(inputs).enumerate() {
            match (place(&self.plan, input.value), tensor.dtype()) {
                (Some(place), DType::F32) => {
                    let values: Vec<f32> = tensor.flatten_all()?.to_vec1()?;
                    self.arena.at_mut(&place)[..values.len()].copy_from_slice(&values);
                }
                _ => self.indices[i] = tensor.flatten_all()?.to_dtype(DType::U32)?.to_vec1()?,
            }
            self.show(graph, input.value, &Plain::default(), observer)?;
        }
        for variable in &graph.variables {
            self.show(graph, variable.value, &Plain::default(), observer)?;
        }
        if let Some((_, findings)) = &mut self.simulated {
            *findings = Findings::of(graph);
        }
        self.under_way.clear(); // pending transfers of a failed step
        let mut agreed = false;
        let mut plain = Plain::default();
        for (n, node) in graph.nodes.iter().enumerate() {
            let started = Instant::now();
            let in_node =
                |source: KernelError| EngineError::Node { name: node.name.clone(), op: node.op.name(), source };
            if node.op.is_skipped() && !agreed {
                // All ranks together decide whether this step is skipped.
                if let Some((simulation, findings)) = &mut self.simulated {
                    simulation.agree(&self.ranks, findings)?;
                }
                agreed = true;
            }
            self.settle(|v| node.inputs.contains(&v) || heeded_loss(graph, node) == Some(v))?;
            let kept = self.kept(graph, node);
            let followed = kept.is_none() && observer.follows(NodeId(n));
            // Results may overwrite operands.
            let operands = if followed { self.operands(graph, node, &mut plain)? } else { Vec::new() };
            let seen = kept.is_none() && observer.sees_rounding(NodeId(n));
            let held = self.node(graph, n, node, kept, scalars, seen).map_err(in_node)?;
            // Values that are observed or rounded must have arrived.
            if self.simulated.is_some() || followed || node.outputs.iter().any(|v| observer.wants(*v)) {
                self.settle(|v| node.outputs.contains(&v))?;
            }
            self.round(n, node, held, graph, observer)?;
            self.node_seconds[n] = started.elapsed().as_secs_f64();
            if followed {
                let result = |v: &ValueId| self.plain_of(graph, *v, &mut plain);
                let results = node.outputs.iter().map(result).collect::<Result<Vec<_>, _>>()?;
                observer.follow(NodeId(n), &operands, &results);
            }
            for v in &node.outputs {
                self.show(graph, *v, &plain, observer)?;
            }
            let next = graph.nodes.iter().skip(n + 1).take(NEXT);
            plain.retain(|v, _| next.clone().any(|node| node.inputs.contains(v)));
        }
        self.settle(|_| true)?;
        let scalar = |v: &ValueId| self.scalar(*v).unwrap_or(f64::NAN);
        let losses = graph.losses.iter().map(|(_, v)| scalar(v)).collect();
        let metrics = graph.metrics.iter().map(|(_, v)| scalar(v)).collect();
        let outputs = graph.outputs.iter().map(|(_, v)| self.tensor_of(graph, *v)).collect::<Result<_, _>>()?;
        for (variable, at) in graph.variables.iter().zip(&mut self.variables) {
            if let Some(next) = variable.next.and_then(|next| place(&self.plan, next)) {
                *at = next;
            }
        }
        Ok(Outcome { losses, metrics, outputs })
    }

    /// Waits for pending transfers of the `wanted` results.
    fn settle(&mut self, wanted: impl Fn(ValueId) -> bool) -> Result<(), RanksError> {
        let mut n = 0;
        while n < self.under_way.len() {
            if !self.under_way[n].places.iter().any(|(v, _)| wanted(*v)) {
                n += 1;
                continue;
            }
            let UnderWay { places, means } = self.under_way.remove(n);
            for ((_, place), mean) in places.iter().zip(means.wait()?) {
                if let Some(place) = place {
                    self.arena.at_mut(place).copy_from_slice(&mean);
                }
            }
        }
        Ok(())
    }

    /// Overflow and underflow in the last step, on a simulated device.
    pub fn findings(&self) -> Option<&Findings> {
        self.simulated.as_ref().map(|(_, findings)| findings)
    }

    /// Rounds the results of a node that its kernel has not rounded.
    fn round(
        &mut self,
        n: usize,
        node: &Node,
        held: Vec<Option<Held>>,
        graph: &Graph,
        observer: &mut dyn Observer,
    ) -> Result<(), EngineError> {
        for (r, (held, v)) in held.into_iter().zip(&node.outputs).enumerate() {
            let Some((held, place)) = held.zip(place(&self.plan, *v)) else { continue };
            let computed = if held.seen() { Some(self.tensor_of(graph, *v)?) } else { None };
            let tally = held.finish(self.arena.at_mut(&place));
            if let Some((simulation, findings)) = &mut self.simulated {
                simulation.note(n, tally, findings);
            }
            if let Some(computed) = computed {
                observer.rounded(NodeId(n), r, &computed, &self.tensor_of(graph, *v)?);
            }
        }
        Ok(())
    }

    fn show(&self, graph: &Graph, v: ValueId, plain: &Plain, observer: &mut dyn Observer) -> Result<(), EngineError> {
        if observer.wants(v) && graph.ty(v).dtype.is_float() {
            match plain.get(&v) {
                Some(tensor) => observer.observe(v, tensor),
                None => observer.observe(v, &self.tensor_of(graph, v)?),
            }
        }
        Ok(())
    }

    /// The row-major tensor of a value, taken from `plain` or added to it.
    fn plain_of(&self, graph: &Graph, v: ValueId, plain: &mut Plain) -> Result<Tensor, EngineError> {
        if let Some(tensor) = plain.get(&v) {
            return Ok(tensor.clone());
        }
        let tensor = self.tensor_of(graph, v)?;
        plain.insert(v, tensor.clone());
        Ok(tensor)
    }

    fn tensor_of(&self, graph: &Graph, v: ValueId) -> Result<Tensor, EngineError> {
        match place(&self.plan, v) {
            Some(place) => tensor(self.isa, graph.ty(v), self.arena.at(&place)),
            None => Err(candle_core::Error::Msg(format!("value {} has no memory", v.0)).into()),
        }
    }

    /// The first element of a value.
    fn scalar(&self, v: ValueId) -> Option<f64> {
        self.arena.at(&place(&self.plan, v)?).first().map(|value| f64::from(*value))
    }

    /// Number of operands that a node passes on as its results, if this step skips it.
    fn kept(&self, graph: &Graph, node: &Node) -> Option<usize> {
        let loss = heeded_loss(graph, node).and_then(|v| self.scalar(v));
        let overflowed = self.findings().is_some_and(|findings| findings.skipped);
        graph.keeps(&node.op, loss, overflowed)
    }

    /// The operands of a node, row-major.
    fn operands(&self, graph: &Graph, node: &Node, plain: &mut Plain) -> Result<Vec<Tensor>, EngineError> {
        let operand = |v: &ValueId| match graph.value(*v).source {
            Source::Input(n) if !graph.ty(*v).dtype.is_float() => {
                Ok(Tensor::from_slice(&self.indices[n], graph.ty(*v).shape.to_vec(), &Device::Cpu)?)
            }
            Source::Input(_) | Source::Variable(_) | Source::Node(..) => self.plain_of(graph, *v, plain),
        };
        node.inputs.iter().map(operand).collect()
    }

    /// Computes the results of a node. Returns the types in which a simulated device stores them; they may still have
    /// to be rounded.
    fn node(
        &mut self,
        graph: &Graph,
        n: usize,
        node: &Node,
        kept: Option<usize>,
        scalars: Scalars,
        seen: bool,
    ) -> Result<Vec<Option<Held>>, KernelError> {
        let (operand_types, result_types) = (graph.types(&node.inputs), graph.types(&node.outputs));
        let result = |(r, v): (usize, &ValueId)| {
            place(&self.plan, *v).ok_or(KernelError::Result { place: r, expected: "in the arena" })
        };
        let places = node.outputs.iter().enumerate().map(result).collect::<Result<Vec<_>, _>>()?;
        let (results, others) = self.arena.split(&places)?;
        let overwritten: Vec<Option<usize>> = (0..places.len()).map(|r| self.plan.overwrites(n, r)).collect();
        let operand = |(i, v): (usize, &ValueId)| {
            if let Some(result) = overwritten.iter().position(|o| *o == Some(i)) {
                return Ok(Operand::Overwritten { result });
            }
            match (place(&self.plan, *v), graph.value(*v).source) {
                (Some(place), _) => others.at(&place).map(Operand::Float),
                (None, Source::Input(n)) => Some(Operand::Index(&self.indices[n])),
                (None, _) => None,
            }
            .ok_or(KernelError::Operand { place: i, expected: "in the arena, beside the results" })
        };
        let operands = node.inputs.iter().enumerate().map(operand).collect::<Result<Vec<_>, _>>()?;
        let simulation = self.simulated.as_ref().map(|(simulation, _)| simulation);
        let held = |r| simulation.and_then(|simulation| simulation.held(self.isa, graph, node, r, seen));
        let held: Vec<Option<Held>> = (0..node.outputs.len()).map(held).collect();
        let (isa, ranks) = (self.isa, &self.ranks);
        let range = simulation.map(Simulation::range);
        let kernel = choose(isa, range, &node.op, &operand_types, &result_types);
        let workspace = &mut self.workspace[..kernel.as_ref().map_or(0, |kernel| kernel.workspace)];
        let call =
            Call { isa, scalars, operands, operand_types, results, result_types, range, held: &held, workspace, ranks };
        match kept {
            Some(count) => update::keep(call, count),
            None => match kernel {
                Some(kernel) => (kernel.run)(call)?,
                None => fallback::run(&node.op, call)?,
            },
        }
        if matches!(node.op, Op::AllReduce(_)) {
            self.send(node, places);
        }
        Ok(held)
    }

    /// Sends copies of the results of a node to be averaged over the ranks. The mean of an unread result is dropped,
    /// because its memory is reused immediately.
    fn send(&mut self, node: &Node, places: Vec<ops::Range<usize>>) {
        let travelling = places.iter().map(|place| Travelling(AlignedBuf::from_slice(self.arena.at(place)))).collect();
        let come_back = node.outputs.iter().zip(places).map(|(v, place)| (*v, self.read[v.0].then_some(place)));
        self.under_way.push(UnderWay { places: come_back.collect(), means: self.ranks.mean(travelling) });
    }
}

/// The elements of the arena in which a value is stored.
fn place(plan: &MemoryPlan, v: ValueId) -> Option<ops::Range<usize>> {
    plan.place(v).map(|bytes| bytes.start / size_of::<f32>()..bytes.end / size_of::<f32>())
}

/// The loss, if a node depends on it; for other nodes it may still be in transfer.
fn heeded_loss(graph: &Graph, node: &Node) -> Option<ValueId> {
    graph.loss().filter(|_| graph.skip_loss_above.is_some() && node.op.update().is_some())
}

/// The memory of a graph after the passes.
pub(crate) fn plan(graph: &Graph) -> MemoryPlan {
    MemoryPlan::of(&held(graph))
}

/// Memory of a step with these instructions and exponents of half precision, in addition to the arena: the workspace,
/// and the largest row-major copies for a reference kernel.
pub(crate) fn scratch(graph: &Graph, isa: Isa, range: Option<Range>) -> Bytes {
    let copies = graph.nodes.iter().map(|node| {
        let (operands, results) = (graph.types(&node.inputs), graph.types(&node.outputs));
        let kernel = choose(isa, range, &node.op, &operands, &results);
        kernel.map_or_else(|| fallback::copies(&operands, &results), |_| 0)
    });
    Bytes(4 * (workspace(graph, isa, range) + copies.max().unwrap_or(0)) as u64)
}

/// The largest number of elements that a kernel needs in addition to operands and results.
fn workspace(graph: &Graph, isa: Isa, range: Option<Range>) -> usize {
    let of_node = |node: &Node| {
        let (operands, results) = (graph.types(&node.inputs), graph.types(&node.outputs));
        choose(isa, range, &node.op, &operands, &results).map_or(0, |kernel| kernel.workspace)
    };
    graph.nodes.iter().map(of_node).max().unwrap_or(0)
}

/// Copies of values that are sent to other ranks, if all of them are on the way at once.
pub(crate) fn travelling(graph: &Graph) -> Bytes {
    let sent = graph.nodes.iter().filter(|node| matches!(node.op, Op::AllReduce(_)));
    Bytes(sent.flat_map(|node| &node.outputs).map(|v| 4 * graph.ty(*v).stored_numel() as u64).sum())
}

/// Values that are read by a node or are results of the graph.
fn read(graph: &Graph) -> Vec<bool> {
    let mut read = vec![false; graph.values.len()];
    graph
        .nodes
        .iter()
        .flat_map(|node| node.inputs.iter().copied())
        .chain(graph.results())
        .for_each(|v| read[v.0] = true);
    read
}

/// The graph with the types in which values are stored: f32 for half precision.
fn held(graph: &Graph) -> Graph {
    let mut held = graph.clone();
    for value in held.values.iter_mut().filter(|v| v.ty.dtype.is_float()) {
        value.ty.dtype = zoo_graph::DType::F32;
    }
    held
}

/// A stored value as a row-major tensor.
fn tensor(isa: Isa, ty: &TensorType, stored: &[f32]) -> Result<Tensor, EngineError> {
    let mut values = vec![0.0; ty.shape.numel()];
    to_plain(isa, ty, &stored[..ty.stored_numel()], &mut values);
    Ok(Tensor::from_vec(values, ty.shape.to_vec(), &Device::Cpu)?)
}

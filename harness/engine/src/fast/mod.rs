//! Fast kernels: a graph in blocked layouts on planned buffers of f32.
//!
//! Values are stored in the buffers of a [`MemoryPlan`]. The results of a node are removed from the table while it
//! runs, so that its operands can be borrowed at the same time without copies. The kernel of a node is chosen in one
//! place ([`choice`]).

mod call;
mod choice;
mod conv;
mod dense;
mod elementwise;
mod fallback;
mod formula;
mod gather;
mod loss;
mod matmul;
mod norm;
mod plain;
mod pool;
mod shape;
mod transfer;
mod update;

use crate::{
    EngineError, KernelError, Observer,
    elements::Elements,
    simulate::{Findings, Held, Simulation},
    step::{Outcome, Scalars},
};
use call::{Call, Operand};
use candle_core::{DType, Device, Tensor};
use choice::choose;
use rayon::prelude::*;
use std::{collections::HashMap, time::Instant};
use transfer::{Travelling, UnderWay};
use zoo_graph::{BufferId, Bytes, Graph, MemoryPlan, Node, NodeId, Op, Source, TensorType, ValueId, VariableId};
use zoo_kernels::{AlignedBuf, Isa};
use zoo_ranks::{Ranks, RanksError};

pub(crate) use plain::{from_plain, to_plain};

/// Row-major tensors that an observer saw and that one of the [`NEXT`] nodes also reads.
type Plain = HashMap<ValueId, Tensor>;

/// Number of nodes for which a row-major tensor is kept.
const NEXT: usize = 4;

/// The buffers of a graph, with its variables.
pub(crate) struct Executor {
    plan: MemoryPlan,
    buffers: Vec<AlignedBuf>,
    /// Buffer of each variable at the start of a step.
    variables: Vec<BufferId>,
    /// Class indices, by input.
    indices: Vec<Vec<u32>>,
    workspace: AlignedBuf,
    isa: Isa,
    /// Seconds that each node took in the last step.
    node_seconds: Vec<f64>,
    /// The simulated device, and the overflow state of its last step.
    simulated: Option<(Simulation, Findings)>,
    ranks: Ranks,
    /// Whether a value is read: the buffer of an unread value is reused immediately.
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
        let buffers = plan.sizes().par_iter().map(|n| AlignedBuf::zeroed(*n)).collect();
        let variable = |v: &zoo_graph::Variable| plan.buffer(v.value).unwrap_or(BufferId(usize::MAX));
        Ok(Self {
            variables: graph.variables.iter().map(variable).collect(),
            buffers,
            plan,
            indices: vec![Vec::new(); graph.inputs.len()],
            workspace: AlignedBuf::default(),
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

    /// Memory of all buffers and of the kernels' workspace.
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
        from_plain(self.isa, ty, values.slice()?, &mut self.buffers[self.variables[id.0].0][..ty.stored_numel()]);
        Ok(())
    }

    /// Current value of a variable, row-major.
    pub fn variable(&self, graph: &Graph, id: VariableId) -> Result<Tensor, EngineError> {
        let ty = graph.ty(graph.variable(id).value);
        tensor(self.isa, ty, &self.buffers[self.variables[id.0].0])
    }

    /// Whether all elements of a variable are finite.
    pub fn is_finite(&self, graph: &Graph, id: VariableId) -> bool {
        const PIECE: usize = 1 << 16;
        let len = graph.ty(graph.variable(id).value).stored_numel();
        let values = &self.buffers[self.variables[id.0].0][..len];
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
        // A previous step may have left variables in other buffers than their initial ones. Those also serve values
        // of other sizes, so the elements are copied and the buffers stay.
        for (variable, buffer) in graph.variables.iter().zip(&mut self.variables) {
            if let Some(planned) = self.plan.buffer(variable.value).filter(|planned| planned != buffer) {
                let len = graph.ty(variable.value).stored_numel();
                if let Ok([to, from]) = self.buffers.get_disjoint_mut([planned.0, buffer.0]) {
                    to[..len].copy_from_slice(&from[..len]);
                }
                *buffer = planned;
            }
        }
        for (i, (input, tensor)) in graph.inputs.iter().zip(inputs).enumerate() {
            match (self.plan.buffer(input.value), tensor.dtype()) {
                (Some(buffer), DType::F32) => {
                    let values: Vec<f32> = tensor.flatten_all()?.to_vec1()?;
                    self.buffers[buffer.0][..values.len()].copy_from_slice(&values);
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
        // Pending transfers of a failed step.
        for UnderWay { places, .. } in std::mem::take(&mut self.under_way) {
            self.replace(&places);
        }
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
        let scalar = |v: &ValueId| self.plan.buffer(*v).map_or(f64::NAN, |b| f64::from(self.buffers[b.0][0]));
        let losses = graph.losses.iter().map(|(_, v)| scalar(v)).collect();
        let metrics = graph.metrics.iter().map(|(_, v)| scalar(v)).collect();
        let outputs = graph.outputs.iter().map(|(_, v)| self.tensor_of(graph, *v)).collect::<Result<_, _>>()?;
        for (variable, buffer) in graph.variables.iter().zip(&mut self.variables) {
            if let Some(next) = variable.next.and_then(|next| self.plan.buffer(next)) {
                *buffer = next;
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
            let means = means.wait().inspect_err(|_| self.replace(&places))?;
            for ((_, place), mean) in places.into_iter().zip(means) {
                if let Some(place) = place {
                    self.buffers[place.0] = mean.buffer;
                }
            }
        }
        Ok(())
    }

    /// Replaces buffers that will not be returned.
    fn replace(&mut self, places: &[(ValueId, Option<BufferId>)]) {
        for lost in places.iter().filter_map(|(_, place)| *place) {
            self.buffers[lost.0] = AlignedBuf::zeroed(self.plan.sizes()[lost.0]);
        }
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
            let Some((held, buffer)) = held.zip(self.plan.buffer(*v)) else { continue };
            let computed = if held.seen() { Some(self.tensor_of(graph, *v)?) } else { None };
            let tally = held.finish(&mut self.buffers[buffer.0][..graph.ty(*v).stored_numel()]);
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
        match self.plan.buffer(v) {
            Some(buffer) => tensor(self.isa, graph.ty(v), &self.buffers[buffer.0]),
            None => Err(candle_core::Error::Msg(format!("value {} has no buffer", v.0)).into()),
        }
    }

    /// Number of operands that a node passes on as its results, if this step skips it.
    fn kept(&self, graph: &Graph, node: &Node) -> Option<usize> {
        let loss = heeded_loss(graph, node);
        let loss = loss.and_then(|v| self.plan.buffer(v)).map(|b| f64::from(self.buffers[b.0][0]));
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
        let place = |(place, v): (usize, &ValueId)| {
            self.plan.buffer(*v).ok_or(KernelError::Result { place, expected: "in a buffer" })
        };
        let places = node.outputs.iter().enumerate().map(place).collect::<Result<Vec<_>, _>>()?;
        let mut taken: Vec<AlignedBuf> = places.iter().map(|b| std::mem::take(&mut self.buffers[b.0])).collect();
        let overwritten: Vec<Option<usize>> = (0..taken.len()).map(|r| self.plan.overwrites(n, r)).collect();
        let operand = |(i, v): (usize, &ValueId)| {
            if let Some(result) = overwritten.iter().position(|o| *o == Some(i)) {
                return Ok(Operand::Overwritten { result });
            }
            match (self.plan.buffer(*v), graph.value(*v).source) {
                (Some(b), _) => Ok(Operand::Float(&self.buffers[b.0][..graph.ty(*v).stored_numel()])),
                (None, Source::Input(n)) => Ok(Operand::Index(&self.indices[n])),
                (None, _) => Err(KernelError::Operand { place: i, expected: "in a buffer" }),
            }
        };
        let operands = node.inputs.iter().enumerate().map(operand).collect::<Result<Vec<_>, _>>();
        let simulation = self.simulated.as_ref().map(|(simulation, _)| simulation);
        let held = |r| simulation.and_then(|simulation| simulation.held(self.isa, graph, node, r, seen));
        let held: Vec<Option<Held>> = (0..node.outputs.len()).map(held).collect();
        let done = operands.and_then(|operands| {
            let results = taken.iter_mut().zip(&result_types).map(|(b, ty)| &mut b[..ty.stored_numel()]).collect();
            let workspace = &mut self.workspace;
            let (isa, held, ranks) = (self.isa, &held[..], &self.ranks);
            let call = Call { isa, scalars, operands, operand_types, results, result_types, held, workspace, ranks };
            match kept {
                Some(count) => {
                    update::keep(call, count);
                    Ok(())
                }
                None => match choose(&node.op, &call.operand_types, &call.result_types) {
                    Some(kernel) => (kernel.run)(call),
                    None => fallback::run(&node.op, call),
                },
            }
        });
        if matches!(node.op, Op::AllReduce(_)) && done.is_ok() {
            self.send(graph, node, &places, taken);
        } else {
            places.iter().zip(taken).for_each(|(place, buffer)| self.buffers[place.0] = buffer);
        }
        done.map(|()| held)
    }

    /// Sends the results of a node to be averaged over the ranks. Their buffers are handed over and returned; for an
    /// unread result a copy is sent, because its buffer is reused immediately.
    fn send(&mut self, graph: &Graph, node: &Node, places: &[BufferId], taken: Vec<AlignedBuf>) {
        let (mut come_back, mut travelling) = (Vec::new(), Vec::new());
        for ((v, place), buffer) in node.outputs.iter().zip(places).zip(taken) {
            let len = graph.ty(*v).stored_numel();
            if self.read[v.0] {
                come_back.push((*v, Some(*place)));
                travelling.push(Travelling { buffer, len });
            } else {
                come_back.push((*v, None));
                travelling.push(Travelling { buffer: AlignedBuf::from_slice(&buffer[..len]), len });
                self.buffers[place.0] = buffer;
            }
        }
        self.under_way.push(UnderWay { places: come_back, means: self.ranks.mean(travelling) });
    }
}

/// The loss, if a node depends on it; for other nodes it may still be in transfer.
fn heeded_loss(graph: &Graph, node: &Node) -> Option<ValueId> {
    graph.loss().filter(|_| graph.skip_loss_above.is_some() && node.op.update().is_some())
}

/// The buffers of a graph after the passes.
pub(crate) fn plan(graph: &Graph) -> MemoryPlan {
    MemoryPlan::of(&held(graph))
}

/// The largest workspace of a node, in addition to the buffers.
pub(crate) fn scratch(graph: &Graph) -> Bytes {
    let elements = graph.nodes.iter().map(|node| {
        let (operands, results) = (graph.types(&node.inputs), graph.types(&node.outputs));
        match choose(&node.op, &operands, &results) {
            Some(kernel) => kernel.workspace,
            None => fallback::copies(&operands, &results),
        }
    });
    Bytes(4 * elements.max().unwrap_or(0) as u64)
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

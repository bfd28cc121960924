//! Runs a row-major graph node by node.

use super::{Call, compute};
use crate::{
    EngineError, KernelError, Observer, Scalars, candle_dtype,
    footprint::Footprint,
    layout::{stored_dims, to_plain, to_stored},
    run::Outcome,
    simulate::{Findings, Simulation},
};
use candle_core::{DType, Device, Tensor};
use std::time::Instant;
use zoo_graph::{Bytes, Graph, Layout, Node, NodeId, Op, TensorType, ValueId, VariableId, liveness::Liveness};
use zoo_kernels::Isa;
use zoo_ranks::Ranks;

/// Stores the variables, and the last use of each value of its graph.
pub(crate) struct Executor {
    liveness: Liveness,
    /// As stored, indexed by [`VariableId`].
    variables: Vec<Tensor>,
    /// Of the last step.
    peak: Bytes,
    /// Of the last step, by node.
    node_seconds: Vec<f64>,
    /// The simulated device, and the overflow state of its last step.
    simulated: Option<(Simulation, Findings)>,
    ranks: Ranks,
}

impl Executor {
    /// Prepares to run `graph`. All variables are zero.
    ///
    /// # Errors
    /// An operator other than `TransData` has a value in a blocked layout.
    pub fn new(graph: &Graph, simulation: Option<Simulation>) -> Result<Self, EngineError> {
        for node in graph.nodes.iter().filter(|node| !matches!(node.op, Op::TransData(_))) {
            let values = node.inputs.iter().chain(&node.outputs);
            if let Some(layout) = values.map(|v| graph.ty(*v).layout).find(|layout| *layout != Layout::Plain) {
                return Err(in_node(node)(KernelError::Layout(layout)));
            }
        }
        let types = graph.variables.iter().map(|v| graph.ty(v.value));
        let zeros = types.map(|ty| Tensor::zeros(stored_dims(ty), candle_dtype(ty.dtype), &Device::Cpu));
        let variables = zeros.collect::<candle_core::Result<_>>()?;
        let node_seconds = vec![0.0; graph.nodes.len()];
        let simulated = simulation.map(|simulation| (simulation, Findings::default()));
        let (liveness, ranks) = (Liveness::of(graph, &[]), Ranks::alone());
        Ok(Self { liveness, variables, peak: Bytes(0), node_seconds, simulated, ranks })
    }

    /// Makes this the executor of one of several ranks.
    pub fn join(&mut self, ranks: Ranks) {
        self.ranks = ranks;
    }

    /// Current value of a variable, row-major.
    pub fn variable(&self, graph: &Graph, id: VariableId) -> Result<Tensor, EngineError> {
        Ok(to_plain(&self.variables[id.0], graph.ty(graph.variable(id).value))?)
    }

    /// Sets a variable to a row-major tensor of its shape.
    pub fn set_variable(&mut self, graph: &Graph, id: VariableId, tensor: &Tensor) -> Result<(), EngineError> {
        self.variables[id.0] = to_stored(tensor, graph.ty(graph.variable(id).value))?;
        Ok(())
    }

    /// Whether all elements of a variable are finite.
    pub fn is_finite(&self, id: VariableId) -> Result<bool, EngineError> {
        let tensor = &self.variables[id.0];
        // x - x is zero for every number, and NaN for infinities and NaN.
        let zeros = tensor.sub(tensor)?.to_dtype(DType::F64)?.sum_all()?;
        Ok(zeros.to_scalar::<f64>()? == 0.0)
    }

    /// Peak memory of live tensors in the last step, without the kernels' workspace.
    pub fn memory(&self) -> Bytes {
        self.peak
    }

    /// Overflow and underflow in the last step, on a simulated device.
    pub fn findings(&self) -> Option<&Findings> {
        self.simulated.as_ref().map(|(_, findings)| findings)
    }

    /// Seconds that each node took in the last step.
    pub fn node_seconds(&self) -> &[f64] {
        &self.node_seconds
    }

    /// Computes all nodes in order, and releases each value after its last use. Variables only change if all nodes
    /// succeed.
    ///
    /// # Errors
    /// A node that cannot be computed.
    pub fn run(
        &mut self,
        graph: &Graph,
        inputs: &[Tensor],
        scalars: Scalars,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, EngineError> {
        let values = vec![None; graph.values.len()];
        let mut live = Live { graph, values, footprint: Footprint::default(), observer };
        // Inputs and variables have other holders until the end of the step.
        inputs.iter().chain(&self.variables).for_each(|tensor| live.footprint.hold(tensor));
        for (input, tensor) in graph.inputs.iter().zip(inputs) {
            live.put(input.value, tensor.clone())?;
        }
        for (variable, tensor) in graph.variables.iter().zip(&self.variables) {
            live.put(variable.value, tensor.clone())?;
        }
        if let Some((_, findings)) = &mut self.simulated {
            *findings = Findings::of(graph);
        }
        let (ranks, mut agreed) = (&self.ranks, false);
        for (n, node) in graph.nodes.iter().enumerate() {
            let started = Instant::now();
            if node.op.is_skipped() && !agreed {
                if let Some((simulation, findings)) = &mut self.simulated {
                    simulation.agree(ranks, findings)?;
                }
                agreed = true;
            }
            let overflowed = self.simulated.as_ref().is_some_and(|(_, findings)| findings.skipped);
            let operands = node.inputs.iter().map(|v| live.get(*v)).collect::<candle_core::Result<Vec<_>>>();
            let operands = operands.map_err(KernelError::from).map_err(in_node(node))?;
            let kept = graph.keeps(&node.op, live.loss(), overflowed);
            let mut results = {
                let operand_types: Vec<&TensorType> = node.inputs.iter().map(|v| graph.ty(*v)).collect();
                let result_types: Vec<&TensorType> = node.outputs.iter().map(|v| graph.ty(*v)).collect();
                let (operand_types, result_types) = (&operand_types[..], &result_types[..]);
                let call = Call { operands: &operands, operand_types, result_types, scalars, ranks };
                match kept {
                    Some(count) => operands[..count].to_vec(),
                    None => compute(&node.op, &call).map_err(in_node(node))?,
                }
            };
            if let Some((simulation, findings)) = &mut self.simulated {
                let seen = kept.is_none() && live.observer.sees_rounding(NodeId(n));
                for (r, tensor) in results.iter_mut().enumerate() {
                    if let Some(held) = simulation.held(Isa::best(), graph, node, r, seen) {
                        let mut values: Vec<f32> = tensor.flatten_all()?.to_vec1()?;
                        simulation.note(n, held.finish(&mut values), findings);
                        let computed =
                            std::mem::replace(tensor, Tensor::from_vec(values, tensor.dims(), &Device::Cpu)?);
                        if seen {
                            let ty = graph.ty(node.outputs[r]);
                            live.observer.rounded(NodeId(n), r, &to_plain(&computed, ty)?, &to_plain(tensor, ty)?);
                        }
                    }
                }
            }
            self.node_seconds[n] = started.elapsed().as_secs_f64();
            if kept.is_none() && live.observer.follows(NodeId(n)) {
                let plain = |(v, tensor): (&ValueId, &Tensor)| to_plain(tensor, graph.ty(*v));
                let each = |values: &[ValueId], tensors: &[Tensor]| {
                    values.iter().zip(tensors).map(plain).collect::<candle_core::Result<Vec<_>>>()
                };
                let (operands, results) = (each(&node.inputs, &operands)?, each(&node.outputs, &results)?);
                live.observer.follow(NodeId(n), &operands, &results);
            }
            drop(operands);
            for (value, tensor) in node.outputs.iter().zip(results) {
                live.put(*value, tensor)?;
            }
            for value in self.liveness.dies_after(NodeId(n)) {
                live.drop(*value);
            }
        }
        let loss = |(_, v): &(String, ValueId)| live.get(*v)?.to_dtype(DType::F64)?.to_scalar();
        let losses = graph.losses.iter().map(loss).collect::<candle_core::Result<_>>()?;
        let metrics = graph.metrics.iter().map(loss).collect::<candle_core::Result<_>>()?;
        let output = |(_, v): &(String, ValueId)| to_plain(&live.get(*v)?, graph.ty(*v));
        let outputs = graph.outputs.iter().map(output).collect::<candle_core::Result<_>>()?;
        let next = graph.variables.iter().zip(&self.variables).map(|(variable, now)| match variable.next {
            Some(next) => live.get(next),
            None => Ok(now.clone()),
        });
        self.variables = next.collect::<candle_core::Result<_>>()?;
        self.peak = live.footprint.worst();
        Ok(Outcome { losses, metrics, outputs })
    }
}

/// Adds the name of a node to the error of its kernel.
fn in_node(node: &Node) -> impl Fn(KernelError) -> EngineError {
    |source| EngineError::Node { name: node.name.clone(), op: node.op.name(), source }
}

/// The live values.
struct Live<'a> {
    graph: &'a Graph,
    values: Vec<Option<Tensor>>,
    footprint: Footprint,
    observer: &'a mut dyn Observer,
}

impl Live<'_> {
    /// The total loss, if it determines whether the update is skipped.
    fn loss(&self) -> Option<f64> {
        let loss = self.graph.loss().filter(|_| self.graph.skip_loss_above.is_some());
        loss.and_then(|v| self.get(v).ok()?.to_dtype(DType::F64).ok()?.to_scalar().ok())
    }

    fn get(&self, value: ValueId) -> candle_core::Result<Tensor> {
        let tensor = self.values[value.0].clone();
        tensor.ok_or_else(|| candle_core::Error::Msg(format!("value {} does not live here", value.0)))
    }

    fn put(&mut self, value: ValueId, tensor: Tensor) -> Result<(), EngineError> {
        self.footprint.hold(&tensor);
        if self.observer.wants(value) {
            let ty = self.graph.ty(value);
            self.observer.observe(value, &to_plain(&tensor, ty)?);
            if let Some(other) = self.observer.instead(value) {
                self.footprint.release(&tensor);
                let other = to_stored(&other, ty)?;
                self.footprint.hold(&other);
                self.values[value.0] = Some(other);
                return Ok(());
            }
        }
        self.values[value.0] = Some(tensor);
        Ok(())
    }

    fn drop(&mut self, value: ValueId) {
        if let Some(tensor) = self.values[value.0].take() {
            self.footprint.release(&tensor);
        }
    }
}

//! How much memory a step will take, before any of it is allocated.

use crate::{EngineError, Kernels, Options, fast, reference, simulate::Arithmetic, step::rewrite};
use zoo_graph::{Bytes, Graph, MemoryPlan};

/// Memory of a step: the plan of its buffers, and what kernels need beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepMemory {
    /// What lives in the step at one time: variables, inputs and everything in between.
    pub values: Bytes,
    /// Most that a kernel needs beside its operands and results.
    pub scratch: Bytes,
    /// All variables as row-major tensors, as a checkpoint takes them out.
    pub variables: Bytes,
    /// All inputs, as a batch brings them.
    pub inputs: Bytes,
    /// The largest single value.
    pub largest: Bytes,
}

impl StepMemory {
    /// Of a graph that is computed so; the graph is rewritten as [`crate::Step::new`] does it, and planned.
    ///
    /// # Errors
    /// A graph that the kernels cannot compute.
    pub fn of(mut graph: Graph, options: Options, arithmetic: Option<&Arithmetic>) -> Result<Self, EngineError> {
        rewrite(&mut graph, options.kernels, arithmetic)?;
        let bytes = |v: &zoo_graph::ValueId| graph.ty(*v).bytes();
        let (values, scratch) = match options.kernels {
            Kernels::Fast { .. } => (fast::plan(&graph).bytes(), fast::scratch(&graph)),
            Kernels::Reference => (MemoryPlan::of(&graph).live_bytes(), reference::scratch(&graph)),
        };
        Ok(Self {
            values,
            scratch,
            variables: graph.variables.iter().map(|variable| bytes(&variable.value)).sum(),
            inputs: graph.inputs.iter().map(|input| bytes(&input.value)).sum(),
            largest: graph.values.iter().map(|value| value.ty.bytes()).max().unwrap_or_default(),
        })
    }

    /// What the step holds while it runs.
    pub fn peak(&self) -> Bytes {
        self.values + self.scratch
    }
}

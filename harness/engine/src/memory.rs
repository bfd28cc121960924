//! How much memory a step will take, before any of it is allocated.

use crate::{EngineError, Kernels, Options, fast, reference, simulate::Arithmetic, step::rewrite};
use zoo_graph::{Bytes, Graph, MemoryPlan};

/// Memory of a step: the plan of its buffers, and what kernels need beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepMemory {
    /// What lives in the step at one time: variables, inputs and everything in between.
    pub values: Bytes,
    /// What kernels need beside their operands and results, as far as it adds to the most that lives at one time.
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
            Kernels::Reference => {
                let plan = MemoryPlan::of(&graph);
                let peak = plan.live_bytes_with(|node| reference::scratch(&graph, &graph.nodes[node]));
                (plan.live_bytes(), Bytes(peak.0 - plan.live_bytes().0))
            }
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

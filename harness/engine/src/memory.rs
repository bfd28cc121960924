//! Forecast of the memory of a step.

use crate::{EngineError, Kernels, Options, fast, reference, simulate::Arithmetic, step::rewrite};
use zoo_graph::{Bytes, Graph, MemoryPlan};

/// Memory of a step: its arena, and the workspace of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepMemory {
    /// Live values of the step: variables, inputs and intermediate values.
    pub values: Bytes,
    /// The workspace of kernels, as far as it adds to the peak of live memory, and copies on the way to other ranks.
    pub scratch: Bytes,
    /// All variables as row-major tensors, as copied for a checkpoint.
    pub variables: Bytes,
    /// All inputs of a batch.
    pub inputs: Bytes,
    /// The largest single value.
    pub largest: Bytes,
}

impl StepMemory {
    /// For a graph with these options. The graph is rewritten as in [`crate::Step::new`], and its memory is planned.
    ///
    /// # Errors
    /// A graph that the kernels cannot compute.
    pub fn of(mut graph: Graph, options: Options, arithmetic: Option<&Arithmetic>) -> Result<Self, EngineError> {
        rewrite(&mut graph, options.kernels, arithmetic)?;
        let bytes = |v: &zoo_graph::ValueId| graph.ty(*v).bytes();
        let (values, scratch) = match options.kernels {
            Kernels::Fast { .. } => {
                let plan = fast::plan(&graph);
                let scratch = fast::scratch(&graph, options.isa(), arithmetic.map(|arithmetic| arithmetic.range));
                (plan.bytes(), scratch + fast::travelling(&graph))
            }
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

    /// The memory of the running step.
    pub fn peak(&self) -> Bytes {
        self.values + self.scratch
    }
}

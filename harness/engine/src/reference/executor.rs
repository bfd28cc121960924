//! Runs a row-major graph node by node.

use super::{Call, compute};
use crate::{
    EngineError, KernelError, Observer,
    footprint::Footprint,
    layout::to_plain,
    step::{Executed, Given},
};
use candle_core::Tensor;
use zoo_graph::{Graph, Layout, Node, NodeId, Op, TensorType, ValueId, liveness::Liveness};

/// Knows when each value of its graph is needed last.
pub(crate) struct Executor {
    liveness: Liveness,
}

impl Executor {
    /// Prepares to run `graph`.
    ///
    /// # Errors
    /// An operator other than `TransData` that meets a blocked layout.
    pub fn new(graph: &Graph) -> Result<Self, EngineError> {
        for node in graph.nodes.iter().filter(|node| !matches!(node.op, Op::TransData(_))) {
            let values = node.inputs.iter().chain(&node.outputs);
            if let Some(layout) = values.map(|v| graph.ty(*v).layout).find(|layout| *layout != Layout::Plain) {
                return Err(in_node(node)(KernelError::Layout(layout)));
            }
        }
        Ok(Self { liveness: Liveness::of(graph, &[]) })
    }

    /// Computes all nodes in order; lets go of each value after its last use.
    ///
    /// # Errors
    /// A node that cannot be computed.
    pub fn run(&self, graph: &Graph, given: &Given<'_>, observer: &mut dyn Observer) -> Result<Executed, EngineError> {
        let values = vec![None; graph.values.len()];
        let mut live = Live { graph, values, footprint: Footprint::default(), observer };
        // The caller holds on to what it gave until the step is over.
        given.inputs.iter().chain(given.variables).for_each(|tensor| live.footprint.hold(tensor));
        for (input, tensor) in graph.inputs.iter().zip(given.inputs) {
            live.put(input.value, tensor.clone())?;
        }
        for (variable, tensor) in graph.variables.iter().zip(given.variables) {
            live.put(variable.value, tensor.clone())?;
        }
        for (n, node) in graph.nodes.iter().enumerate() {
            let results = live.operands(node).and_then(|operands| {
                let operand_types: Vec<&TensorType> = node.inputs.iter().map(|v| graph.ty(*v)).collect();
                let result_types: Vec<&TensorType> = node.outputs.iter().map(|v| graph.ty(*v)).collect();
                let call = Call {
                    operands: &operands,
                    operand_types: &operand_types,
                    result_types: &result_types,
                    scalars: given.scalars,
                };
                compute(node, &call)
            });
            let results = results.map_err(in_node(node))?;
            for (value, tensor) in node.outputs.iter().zip(results) {
                live.put(*value, tensor)?;
            }
            for value in self.liveness.dies_after(NodeId(n)) {
                live.drop(*value);
            }
        }
        Ok(Executed { peak_memory: live.footprint.worst(), values: live.values })
    }
}

/// Adds the name of a node to what its kernel says.
fn in_node(node: &Node) -> impl Fn(KernelError) -> EngineError {
    |source| EngineError::Node { name: node.name.clone(), op: node.op.name(), source }
}

/// The values that exist at one time.
struct Live<'a> {
    graph: &'a Graph,
    values: Vec<Option<Tensor>>,
    footprint: Footprint,
    observer: &'a mut dyn Observer,
}

impl Live<'_> {
    fn operands(&self, node: &Node) -> Result<Vec<Tensor>, KernelError> {
        let operands = node.inputs.iter().map(|v| self.values[v.0].clone());
        operands.collect::<Option<Vec<_>>>().ok_or(KernelError::Arity { found: node.inputs.len() })
    }

    fn put(&mut self, value: ValueId, tensor: Tensor) -> Result<(), EngineError> {
        self.footprint.hold(&tensor);
        if self.observer.wants(value) {
            self.observer.observe(value, &to_plain(&tensor, self.graph.ty(value))?);
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

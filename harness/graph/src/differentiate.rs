//! Reverse-mode differentiation as a graph transform.
//!
//! Walks the forward nodes backwards; each operator adds the nodes of its own gradient. Values that do not depend on
//! a trained parameter get no gradient, so the first convolution computes no input gradient. Contributions of several
//! consumers are summed by one explicit `AddN`.

use crate::{
    error::GraphError,
    graph::{Graph, Node, Phase, Scope, ValueId, VariableId},
    ops::{Add, Fill, Op, OpError},
    tensor::TensorType,
};

/// The context in which an operator adds its gradient: its node, and the gradients of its results.
pub struct Gradient<'g> {
    graph: &'g mut Graph,
    node: Node,
    result_grads: Vec<Option<ValueId>>,
    wanted: Vec<bool>,
    operand_grads: Vec<Option<ValueId>>,
}

impl Gradient<'_> {
    /// The node's n-th operand.
    pub fn operand(&self, n: usize) -> ValueId {
        self.node.inputs[n]
    }

    /// Number of operands.
    pub fn operands(&self) -> usize {
        self.node.inputs.len()
    }

    /// The node's n-th result.
    pub fn result(&self, n: usize) -> ValueId {
        self.node.outputs[n]
    }

    /// Gradient of the node's n-th result. It always exists for result 0 when the rule is called, unless the operator
    /// has several results and only others are used.
    pub fn result_grad(&self, n: usize) -> Option<ValueId> {
        self.result_grads[n]
    }

    /// Whether the gradient of the n-th operand is needed.
    pub fn wants(&self, n: usize) -> bool {
        self.wanted[n]
    }

    /// Type of a value.
    pub fn ty(&self, value: ValueId) -> &TensorType {
        self.graph.ty(value)
    }

    /// Adds a node named `<layer>/<suffix>`, with all its results.
    ///
    /// # Errors
    /// As [`Graph::add_node`].
    pub fn emit_all(
        &mut self,
        suffix: &str,
        op: impl Into<Op>,
        inputs: &[ValueId],
    ) -> Result<Vec<ValueId>, GraphError> {
        let scope = Scope { phase: Phase::Backward, origin: self.node.origin.clone() };
        self.graph.add_node(&scope, format!("{}/{suffix}", self.node.name), op, inputs)
    }

    /// Adds a node named `<layer>/<suffix>` with one result.
    ///
    /// # Errors
    /// As [`Graph::add`].
    pub fn emit(&mut self, suffix: &str, op: impl Into<Op>, inputs: &[ValueId]) -> Result<ValueId, GraphError> {
        let scope = Scope { phase: Phase::Backward, origin: self.node.origin.clone() };
        self.graph.add(&scope, format!("{}/{suffix}", self.node.name), op, inputs)
    }

    /// Sets the gradient of the first operand: an operator of the gradient of the first result, if it has one.
    ///
    /// # Errors
    /// As [`Graph::add`].
    pub fn through(&mut self, op: impl Into<Op>) -> Result<(), GraphError> {
        self.through_with(op, |_, dy| [dy])
    }

    /// As [`Gradient::through`], for an operator that reads more than this gradient.
    ///
    /// # Errors
    /// As [`Graph::add`].
    pub fn through_with<const N: usize>(
        &mut self,
        op: impl Into<Op>,
        operands: impl FnOnce(&Self, ValueId) -> [ValueId; N],
    ) -> Result<(), GraphError> {
        let Some(dy) = self.result_grad(0) else { return Ok(()) };
        let dx = self.emit("grad", op, &operands(self, dy))?;
        self.set(0, dx);
        Ok(())
    }

    /// Sets the gradient of the n-th operand.
    pub fn set(&mut self, n: usize, gradient: ValueId) {
        self.operand_grads[n] = Some(gradient);
    }

    /// The device's name of the node's operator.
    pub fn operator(&self) -> &'static str {
        self.node.op.name()
    }

    /// The error of an operator that cannot be differentiated.
    pub fn refuse(&self, operator: &'static str) -> GraphError {
        GraphError::Shape {
            name: self.node.name.clone(),
            origin: self.node.origin.clone(),
            source: OpError::NoGradient(operator),
        }
    }
}

/// Adds the backward nodes for the graph's total loss, and records the gradient of each parameter in `trained`.
/// Parameters on which the loss does not depend get none.
///
/// # Errors
/// There is no loss, an operator on the path has no gradient, or a gradient violates a shape rule.
pub fn differentiate(graph: &mut Graph, trained: &[VariableId]) -> Result<(), GraphError> {
    let Some(loss) = graph.loss() else {
        return Err(GraphError::Model { origin: None, message: "a step needs a loss: add a `loss:` section".into() });
    };
    let needs = needs_gradient(graph, trained);
    let mut contributions: Vec<Vec<ValueId>> = vec![Vec::new(); graph.values.len()];
    let scope = Scope { phase: Phase::Backward, origin: None };
    let seed = Fill { value: 1.0, ty: graph.ty(loss).clone() };
    let seed = graph.add(&scope, "loss/seed", seed, &[])?;
    graph.seed = Some(seed);
    contributions[loss.0].push(seed);

    for n in (0..graph.nodes.len()).rev() {
        let node = graph.nodes[n].clone();
        if node.phase > Phase::Loss || !node.outputs.iter().any(|v| needs[v.0] && !contributions[v.0].is_empty()) {
            continue;
        }
        let result_grads = node
            .outputs
            .iter()
            .map(|v| total(graph, &node, std::mem::take(&mut contributions[v.0])))
            .collect::<Result<Vec<_>, _>>()?;
        let wanted: Vec<bool> = node.inputs.iter().map(|v| needs[v.0]).collect();
        let operand_grads = vec![None; node.inputs.len()];
        let op = node.op.clone();
        let mut grad = Gradient { graph, node, result_grads, wanted, operand_grads };
        op.rules().gradient(&mut grad)?;
        let Gradient { node, operand_grads, wanted, .. } = grad;
        for (i, (operand, gradient)) in node.inputs.iter().zip(operand_grads).enumerate() {
            if let (true, Some(gradient)) = (wanted[i], gradient) {
                expect_same_shape(graph, &node, *operand, gradient)?;
                contributions[operand.0].push(gradient);
            }
        }
    }
    for &id in trained {
        let variable = graph.variable(id);
        let scope = Scope { phase: Phase::Backward, origin: variable.origin.clone() };
        let (name, value) = (format!("{}/grad", variable.name), variable.value);
        let gradient = match std::mem::take(&mut contributions[value.0]).as_slice() {
            [] => continue,
            [one] => *one,
            several => graph.add(&scope, name, Add, several)?,
        };
        graph.gradients.push((id, gradient));
    }
    Ok(())
}

/// Whether each value depends on a trained parameter.
pub(crate) fn needs_gradient(graph: &Graph, trained: &[VariableId]) -> Vec<bool> {
    let mut needs = vec![false; graph.values.len()];
    for &id in trained {
        needs[graph.variable(id).value.0] = true;
    }
    for node in &graph.nodes {
        if !node.op.rules().stops_gradient() && node.inputs.iter().any(|v| needs[v.0]) {
            for v in &node.outputs {
                needs[v.0] = graph.ty(*v).dtype.is_float();
            }
        }
    }
    needs
}

/// The sum of the contributions of the consumers of a value.
fn total(graph: &mut Graph, node: &Node, parts: Vec<ValueId>) -> Result<Option<ValueId>, GraphError> {
    let scope = Scope { phase: Phase::Backward, origin: node.origin.clone() };
    Ok(match parts.as_slice() {
        [] => None,
        [one] => Some(*one),
        several => Some(graph.add(&scope, format!("{}/grad_sum", node.name), Add, several)?),
    })
}

/// Checks that a gradient has the shape of its value.
fn expect_same_shape(graph: &Graph, node: &Node, operand: ValueId, gradient: ValueId) -> Result<(), GraphError> {
    let (expected, found) = (&graph.ty(operand).shape, &graph.ty(gradient).shape);
    if expected == found {
        return Ok(());
    }
    Err(GraphError::Invariant {
        after: None,
        message: format!("`{}` ({}): gradient {found} for an operand {expected}", node.name, node.op.name()),
    })
}

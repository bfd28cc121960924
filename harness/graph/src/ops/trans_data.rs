//! `TransData`: the same tensor in another memory layout.

use super::{OpError, Operator, operands};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    tensor::{Layout, TensorType},
    units::Flop,
};

/// Operand: a tensor with four axes in any layout. Result: the same tensor in layout `to`.
#[derive(Clone, Debug, PartialEq)]
pub struct TransData {
    /// Layout of the result.
    pub to: Layout,
}

impl Operator for TransData {
    fn name(&self) -> &'static str {
        "TransData"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x] = operands(inputs, "input")?;
        super::feature_map("input", x)?;
        Ok(vec![x.with_layout(self.to)])
    }

    fn flop(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        Flop(0)
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let to = grad.ty(grad.operand(0)).layout;
        let dx = grad.emit("grad", TransData { to }, &[dy])?;
        grad.set(0, dx);
        Ok(())
    }
}

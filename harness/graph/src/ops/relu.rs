//! `Relu`: maximum with zero.

use super::{OpError, Operator, ReluGrad, expect_float, operands, per_element};
use crate::{differentiate::Gradient, error::GraphError, tensor::TensorType, units::Flop};

/// Operand: any tensor. Result: `max(x, 0)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Relu;

impl Operator for Relu {
    fn name(&self) -> &'static str {
        "Relu"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x] = operands(inputs, "input")?;
        expect_float("input", x)?;
        Ok(vec![x.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(1, inputs[0])
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let y = grad.result(0);
        let dx = grad.emit("grad", ReluGrad, &[dy, y])?;
        grad.set(0, dx);
        Ok(())
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}

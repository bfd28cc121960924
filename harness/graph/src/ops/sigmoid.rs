//! `Sigmoid`: 1 / (1 + exp(-x)), and its gradient.

use super::{OpError, Operator, Rounding, expect_float, expect_same_storage, expect_shape, operands, per_element};
use crate::{differentiate::Gradient, error::GraphError, tensor::TensorType, units::Flop};

/// Operand: any tensor. Result: `1 / (1 + exp(-x))`.
#[derive(Clone, Debug, PartialEq)]
pub struct Sigmoid;

impl Operator for Sigmoid {
    fn names() -> &'static [&'static str] {
        &["Sigmoid"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x] = operands(inputs, "input")?;
        expect_float("input", x)?;
        Ok(vec![x.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(4, inputs[0])
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(16.0)
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let y = grad.result(0);
        let dx = grad.emit("grad", SigmoidGrad, &[dy, y])?;
        grad.set(0, dx);
        Ok(())
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}

/// `SigmoidGrad`. Operands: output gradient, output. Result: `dy * y * (1 - y)`.
#[derive(Clone, Debug, PartialEq)]
pub struct SigmoidGrad;

impl Operator for SigmoidGrad {
    fn names() -> &'static [&'static str] {
        &["SigmoidGrad"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [dy, y] = operands(inputs, "output gradient and output")?;
        expect_shape("output", y, &dy.shape)?;
        expect_same_storage("output", dy, y)?;
        Ok(vec![dy.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(3, inputs[0])
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(16.0)
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}

//! `Relu`: maximum with zero.

use super::{Kind, OpError, Operand, Operator, ReluGrad, Work, expect_float, operands, per_element};
use crate::{differentiate::Gradient, error::GraphError, tensor::TensorType, units::Flop};

/// Operand: any tensor. Result: `max(x, 0)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Relu;

impl Operator for Relu {
    fn names() -> &'static [&'static str] {
        &["Relu"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x] = operands(inputs, "input")?;
        expect_float("input", x)?;
        Ok(vec![x.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(1, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::ELEMENTS
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::one(inputs, outputs)
    }

    fn kind(&self) -> Kind {
        Kind::Activation
    }

    fn passes_on(&self, _result: usize) -> bool {
        true
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

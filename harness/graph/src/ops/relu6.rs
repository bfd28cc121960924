//! `Relu6`: clips to 0..6, and its gradient.

use super::{
    Kind, OpError, Operand, Operator, Work, expect_float, expect_same_storage, expect_shape, operands, per_element,
};
use crate::{differentiate::Gradient, error::GraphError, tensor::TensorType, units::Flop};

/// Operand: any tensor. Result: `min(max(x, 0), 6)`.
///
/// Source: `torch.nn.ReLU6`, arXiv 1801.04381.
#[derive(Clone, Debug, PartialEq)]
pub struct Relu6;

impl Operator for Relu6 {
    fn names() -> &'static [&'static str] {
        &["Relu6"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x] = operands(inputs, "input")?;
        expect_float("input", x)?;
        Ok(vec![x.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(2, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::ELEMENTS
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::counted(self, inputs, outputs)
    }

    fn kind(&self) -> Kind {
        Kind::Activation
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let y = grad.result(0);
        let dx = grad.emit("grad", Relu6Grad, &[dy, y])?;
        grad.set(0, dx);
        Ok(())
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}

/// `Relu6Grad`. Operands: output gradient, output. Result: the gradient where the output is above 0 and below 6, else zero,
/// as in PyTorch.
#[derive(Clone, Debug, PartialEq)]
pub struct Relu6Grad;

impl Operator for Relu6Grad {
    fn names() -> &'static [&'static str] {
        &["Relu6Grad"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [dy, y] = operands(inputs, "output gradient and output")?;
        expect_shape("output", y, &dy.shape)?;
        expect_same_storage("output", dy, y)?;
        Ok(vec![dy.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(2, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::ELEMENTS
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::counted(self, inputs, outputs)
    }

    fn kind(&self) -> Kind {
        Kind::Elementwise
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}

//! `Muls`: product with a constant.

use super::{Kind, OpError, Operand, Operator, Rounding, Work, expect_float, operands, per_element};
use crate::{differentiate::Gradient, error::GraphError, tensor::TensorType, units::Flop};

/// Operand: any tensor. Result: `x * factor`.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// The constant.
    pub factor: f64,
}

impl Operator for Scale {
    fn names() -> &'static [&'static str] {
        &["Muls"]
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
        Kind::Elementwise
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(2.0)
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let dx = grad.emit("grad", self.clone(), &[dy])?;
        grad.set(0, dx);
        Ok(())
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}

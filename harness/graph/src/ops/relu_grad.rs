//! `ReluGrad`: gradient of a ReLU.

use super::{
    Kind, OpError, Operand, Operator, Read, Rectifier, Rounding, Work, expect_same_storage, expect_shape, operands,
    per_element,
};
use crate::{tensor::TensorType, units::Flop};

/// Operands: output gradient, output. Result: the gradient where it passes ([`Rectifier::passes`]), otherwise zero.
#[derive(Clone, Debug, PartialEq)]
pub struct ReluGrad {
    /// The rectifier.
    pub rectifier: Rectifier,
}

impl Operator for ReluGrad {
    fn name(&self) -> Option<&'static str> {
        Some(match self.rectifier {
            Rectifier::Relu => "ReluGrad",
            Rectifier::Relu6 => "Relu6Grad",
        })
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [dy, y] = operands(inputs, "output gradient and output")?;
        expect_shape("output", y, &dy.shape)?;
        expect_same_storage("output", dy, y)?;
        Ok(vec![dy.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(1 + u64::from(self.rectifier == Rectifier::Relu6), inputs[0])
    }

    fn operand(&self, i: usize) -> Operand {
        if i == 1 { Operand { read: Read::Sign, ..Operand::ELEMENTS } } else { Operand::ELEMENTS }
    }

    fn work(&self, _inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        // Compare, select.
        Work::per_result(outputs, 2)
    }

    fn kind(&self) -> Kind {
        Kind::Elementwise
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Moves
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}

//! `Fill`: a constant tensor.

use super::{Kind, OpError, Operand, Operator, Work, operands};
use crate::{tensor::TensorType, units::Flop};

/// No operands. Result: a tensor with one value in all elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Fill {
    /// The value of every element.
    pub value: f64,
    /// Type of the result.
    pub ty: TensorType,
}

impl Operator for Fill {
    fn names() -> &'static [&'static str] {
        &["Fill"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [] = operands(inputs, "no")?;
        Ok(vec![self.ty.clone()])
    }

    fn flop(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        Flop(0)
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::PLAIN
    }

    fn work(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::Nothing
    }

    fn kind(&self) -> Kind {
        Kind::Other
    }
}

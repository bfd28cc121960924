//! `Fill`: a constant tensor.

use super::{OpError, Operator, Rounding, Work, operands};
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
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [] = operands(inputs, "no")?;
        Ok(vec![self.ty.clone()])
    }

    fn flop(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        Flop(0)
    }

    fn work(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::Nothing
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(2.0)
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }
}

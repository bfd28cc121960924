//! `Eye`: the identity matrix.

use super::{OpError, Operator, Rounding, Work, operands};
use crate::{
    tensor::{DType, TensorType},
    units::Flop,
};

/// No operands. Result `[size, size]`, row-major: ones on the diagonal, zeros elsewhere.
///
/// Source: `torch.eye`, `tf.eye`.
#[derive(Clone, Debug, PartialEq)]
pub struct Eye {
    /// Rows and columns.
    pub size: usize,
    /// Type of the elements.
    pub dtype: DType,
}

impl Operator for Eye {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [] = operands(inputs, "no")?;
        let ty = TensorType::plain([self.size; 2], self.dtype);
        super::expect_float("the matrix", &ty)?;
        Ok(vec![ty])
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
}

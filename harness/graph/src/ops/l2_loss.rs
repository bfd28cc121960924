//! `L2Loss`: half the sum of squares.

use super::{OpError, Operand, Operator, Rounding, ScaleBy, one_float, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    tensor::{Shape, TensorType},
    units::Flop,
};

/// Operand: any tensor. Result: the scalar `sum(x^2) / 2`.
///
/// Source: `tf.nn.l2_loss`.
#[derive(Clone, Debug, PartialEq)]
pub struct L2Loss;

impl Operator for L2Loss {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let x = one_float(inputs)?;
        Ok(vec![TensorType::plain(Shape::scalar(), x.dtype)])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(2, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::ELEMENTS
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(2.0)
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        grad.through_with(ScaleBy, |grad, dy| [grad.operand(0), dy])
    }
}

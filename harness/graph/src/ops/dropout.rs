//! `DropOutDoMask`: zeroes a random part of a tensor.

use super::{OpError, Operand, Operator, Rounding, Work, one_float, per_element};
use crate::{differentiate::Gradient, error::GraphError, tensor::TensorType, units::Flop};

/// Operand: any tensor. Result: each element is zero with probability `rate`, otherwise divided by `1 - rate`.
///
/// Whether an element becomes zero depends on the seed of the run, the step, `stream` and its row-major index. So the
/// gradient is the same operator on the output gradient, and threads and layout have no effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Dropout {
    /// Probability of zero, in `[0, 1)`.
    pub rate: f64,
    /// Distinguishes the dropouts of a network.
    pub stream: u64,
}

impl Operator for Dropout {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let x = one_float(inputs)?;
        if !(0.0..1.0).contains(&self.rate) {
            return Err(OpError::Attribute(format!("a dropout rate of {} is not in [0, 1)", self.rate)));
        }
        Ok(vec![x.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(1, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::one(inputs, outputs)
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(4.0)
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        grad.through(self.clone())
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}

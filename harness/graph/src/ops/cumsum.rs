//! `Cumsum`: sums of the elements so far along an axis.

use super::{OpError, Operator, Rounding, Summed, one_float, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// Operand: any tensor. Result: each element is the sum of the elements along the axis up to and including its own, or
/// from its own on.
///
/// Source: `torch.cumsum`, `tf.math.cumsum`.
#[derive(Clone, Debug, PartialEq)]
pub struct Cumsum {
    /// The axis.
    pub axis: usize,
    /// Whether the sums start at the end of the axis.
    pub reverse: bool,
}

impl Operator for Cumsum {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let x = one_float(inputs)?;
        if self.axis >= x.shape.len() {
            return Err(OpError::Attribute(format!("sums along axis {} of {}", self.axis, x.shape)));
        }
        Ok(vec![x.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(1, inputs[0])
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Wide(Summed::All)
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        self.axis == 0
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        grad.through(Self { reverse: !self.reverse, ..self.clone() })
    }

    fn way(&self, call: Call<'_>, _known: Slot, part: &Part) -> Option<Way> {
        Way::along(self.clone(), call, part, |axis| axis != self.axis)
    }
}

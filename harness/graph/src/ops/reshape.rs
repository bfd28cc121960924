//! `Reshape`: the same elements in row-major order with another shape.

use super::{OpError, Operator, Rounding, Work, operands, samples};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Need, Outcome, Part, Slot, Way},
    tensor::{Layout, Shape, TensorType},
    units::Flop,
};

/// Operand: a row-major tensor. Result: its elements in `shape`.
#[derive(Clone, Debug, PartialEq)]
pub struct Reshape {
    /// The new shape, with the same number of elements.
    pub shape: Shape,
}

impl Operator for Reshape {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x] = operands(inputs, "input")?;
        if self.shape.checked_numel() != Some(x.shape.numel()) {
            return Err(OpError::Shape {
                operand: "input",
                expected: format!("as many elements as {}", self.shape),
                found: x.shape.clone(),
            });
        }
        if x.layout != Layout::Plain {
            return Err(OpError::Attribute(format!("a reshape of a tensor in {}", x.layout)));
        }
        Ok(vec![x.with_shape(self.shape.clone())])
    }

    fn flop(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        Flop(0)
    }

    fn work(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::Nothing
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Moves
    }

    fn mixes_samples(&self, inputs: &[&TensorType]) -> bool {
        self.shape.first() != samples(inputs)
    }

    fn is_view(&self) -> bool {
        true
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let shape = grad.ty(grad.operand(0)).shape.clone();
        grad.through(Reshape { shape })
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        let (from, to, ranks) = (&call.inputs[0].shape, &call.outputs[0].shape, call.ranks);
        let (own, result) = match known {
            Slot::Operand(_) => (part.clone(), part.reshaped(from, to, ranks)?),
            Slot::Result(_) => (part.reshaped(to, from, ranks)?, part.clone()),
        };
        let op = Self { shape: result.local(to, ranks) };
        Some(Way { op: op.into(), operands: vec![Need::Part(own)], results: vec![Outcome::Part(result)] })
    }
}

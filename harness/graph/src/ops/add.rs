//! `AddN`: sum of two or more tensors.

use super::{Kind, OpError, Operand, Operator, Rounding, Work, expect_float, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// Operands: two or more tensors of the same type. Result: their sum, added from left to right.
#[derive(Clone, Debug, PartialEq)]
pub struct Add;

impl Operator for Add {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [first, rest @ ..] = inputs else {
            return Err(OpError::Arity { expected: "two or more", found: 0 });
        };
        if rest.is_empty() {
            return Err(OpError::Arity { expected: "two or more", found: 1 });
        }
        expect_float("summand", first)?;
        for other in rest {
            super::expect_shape("summand", other, &first.shape)?;
            super::expect_same_storage("summand", first, other)?;
        }
        Ok(vec![(*first).clone()])
    }

    fn flop(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Flop {
        per_element(inputs.len() as u64 - 1, outputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::ELEMENTS
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::per_result(outputs, inputs.len() as u64 - 1)
    }

    fn kind(&self) -> Kind {
        Kind::Sum
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Sum
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        for i in 0..grad.operands() {
            grad.set(i, dy);
        }
        Ok(())
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        Some(Way::elementwise(self.clone(), call, known, part))
    }
}

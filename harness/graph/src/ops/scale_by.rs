//! `Mul` by a scalar tensor.

use super::{OpError, Operand, Operator, Rounding, Work, expect_float, expect_shape, operands, per_element};
use crate::{
    parallel::{Call, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// Operands: any tensor, a scalar. Result: their product, in the tensor's shape.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaleBy;

impl Operator for ScaleBy {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x, factor] = operands(inputs, "tensor and scalar")?;
        expect_float("tensor", x)?;
        expect_shape("scalar", factor, &[])?;
        Ok(vec![x.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(1, inputs[0])
    }

    fn operand(&self, i: usize) -> Operand {
        if i == 0 { Operand::ELEMENTS } else { Operand::AS_IS }
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::one(inputs, outputs)
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(2.0)
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        Some(Way::elementwise(self.clone(), call, known, part))
    }
}

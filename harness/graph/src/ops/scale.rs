//! `Muls`: product with a constant.

use super::{Kind, OpError, Operand, Operator, Rounding, Work, one_float, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// Operand: any tensor. Result: `x * factor`.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// The constant.
    pub factor: f64,
}

impl Operator for Scale {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let x = one_float(inputs)?;
        Ok(vec![x.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(1, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::ELEMENTS
    }

    fn work(&self, inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::one(inputs, outputs)
    }

    fn kind(&self) -> Kind {
        Kind::Elementwise
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(2.0)
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        grad.through(self.clone())
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        Some(Way::elementwise(self.clone(), call, known, part))
    }
}

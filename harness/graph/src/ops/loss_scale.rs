//! `Mul` with the loss scale: a factor that may change from step to step.

use super::{OpError, Operand, Operator, Rounding, Work, one_float, per_element};
use crate::{differentiate::Gradient, error::GraphError, tensor::TensorType, units::Flop};

/// Operand: any tensor. Result: the operand multiplied by the loss scale of the step, or divided by it (arXiv
/// 1710.03740).
///
/// All frameworks use powers of two, so both are exact within the range of the type.
#[derive(Clone, Debug, PartialEq)]
pub struct LossScale {
    /// Whether the operand is divided.
    pub inverse: bool,
}

impl LossScale {
    /// The factor, given the step's loss scale.
    pub fn factor(&self, scale: f64) -> f64 {
        if self.inverse { 1.0 / scale } else { scale }
    }
}

impl Operator for LossScale {
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

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(2.0)
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        grad.through(self.clone())
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn what_is_scaled_can_be_scaled_back() {
        let x = TensorType::plain([3, 4], DType::F16);
        let [there, back] = [false, true].map(|inverse| LossScale { inverse });
        assert_eq!(there.infer(&[&x]).unwrap(), [x]);
        assert_eq!((there.factor(4096.0), back.factor(4096.0)), (4096.0, 1.0 / 4096.0));
        assert!(there.infer(&[&TensorType::plain([1], DType::U32)]).is_err());
    }
}

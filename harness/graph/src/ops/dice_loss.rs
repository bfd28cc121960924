//! One minus the Dice coefficient.

use super::balanced_bce::{expect_map_and_mask, scale_own_gradient};
use super::{OpError, Operator, Rounding, expect_float, operands, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    tensor::{Shape, TensorType},
    units::Flop,
};

/// Operands: prediction and target `[n, 1, h, w]`, mask `[n, h, w]`. Results, with sums over the whole batch: `1 -
/// 2 * sum(p * t * mask) / (sum(p * mask) + sum(t * mask) + eps)`, and the gradient of the prediction.
///
/// Source: `DiceLoss` of the DB authors.
#[derive(Clone, Debug, PartialEq)]
pub struct DiceLoss {
    /// Added to the denominator.
    pub eps: f64,
}

impl Operator for DiceLoss {
    fn names() -> &'static [&'static str] {
        &["DiceLoss"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [p, target, mask] = operands(inputs, "prediction, target and mask")?;
        expect_float("prediction", p)?;
        expect_map_and_mask(p, target, mask)?;
        Ok(vec![TensorType::plain(Shape::scalar(), p.dtype), p.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(9, inputs[0])
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(2.0)
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        scale_own_gradient(grad)
    }
}

//! Mean absolute difference under a mask.

use super::balanced_bce::scale_own_gradient;
use super::{OpError, Operator, Rounding, expect_float, expect_shape, feature_map, operands, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    tensor::{Shape, TensorType},
    units::Flop,
};

/// Operands: prediction `[n, 1, h, w]`, target and mask `[n, h, w]`. Results: `sum(|p - t| * mask) / sum(mask)`, 0
/// for an empty mask, and the gradient of the prediction (0 where `p = t`).
///
/// Source: `MaskL1Loss` of the DB authors.
#[derive(Clone, Debug, PartialEq)]
pub struct MaskedL1;

impl Operator for MaskedL1 {
    fn names() -> &'static [&'static str] {
        &["MaskedL1Loss"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [p, target, mask] = operands(inputs, "prediction, target and mask")?;
        expect_float("prediction", p)?;
        let [n, _, h, w] = feature_map("prediction", p)?;
        expect_shape("prediction", p, &[n, 1, h, w])?;
        expect_shape("target", target, &[n, h, w])?;
        expect_shape("mask", mask, &[n, h, w])?;
        Ok(vec![TensorType::plain(Shape::scalar(), p.dtype), p.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(6, inputs[0])
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(2.0)
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        scale_own_gradient(grad)
    }
}

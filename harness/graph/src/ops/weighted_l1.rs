//! Weighted distance of box offsets.

use super::balanced_bce::scale_own_gradient;
use super::{OpError, Operator, Rounding, expect_float, expect_shape, feature_map, operands, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    tensor::{Shape, TensorType},
    units::Flop,
};

/// Operands: prediction `[n, 4 * a, h, w]`, target `[n, 4, a, h, w]`, weights `[n, a, h, w]`. Results: `sum(weight *
/// sum over the four of |p - t|) / n`, and the gradient of the prediction (0 where `p = t`).
///
/// Source: `weight_l1_loss` of the SiamMask authors.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedL1;

impl Operator for WeightedL1 {
    fn names() -> &'static [&'static str] {
        &["WeightedL1Loss"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [p, target, weights] = operands(inputs, "prediction, target and weights")?;
        expect_float("prediction", p)?;
        let [n, c, h, w] = feature_map("prediction", p)?;
        if !c.is_multiple_of(4) {
            return Err(OpError::Attribute(format!("{c} channels are not four offsets per anchor")));
        }
        expect_shape("target", target, &[n, 4, c / 4, h, w])?;
        expect_shape("weights", weights, &[n, c / 4, h, w])?;
        Ok(vec![TensorType::plain(Shape::scalar(), p.dtype), p.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(4, inputs[0])
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(2.0)
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        scale_own_gradient(grad)
    }
}

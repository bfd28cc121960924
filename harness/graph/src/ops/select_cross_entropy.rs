//! Cross entropy over pairs, averaged separately over positives and negatives.

use super::balanced_bce::scale_own_gradient;
use super::{OpError, Operator, Rounding, expect_float, expect_shape, operands, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    tensor::{Shape, TensorType},
    units::Flop,
};

/// Operands: log-probabilities `[n, a, h, w, 2]`, labels `[n, a, h, w]` (1 positive, 0 negative, all others ignored).
/// Results: half the mean of `-p[1]` over the positives plus half the mean of `-p[0]` over the negatives (an empty
/// mean counts 0), and the gradient of the log-probabilities.
///
/// Source: `select_cross_entropy_loss` of the SiamMask authors.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectCrossEntropy;

impl Operator for SelectCrossEntropy {
    fn names() -> &'static [&'static str] {
        &["SelectCrossEntropy"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [p, labels] = operands(inputs, "log-probabilities and labels")?;
        expect_float("log-probabilities", p)?;
        expect_float("labels", labels)?;
        let [n, a, h, w, 2] = p.shape[..] else {
            let expected = "[n, a, h, w, 2]".to_string();
            return Err(OpError::Shape { operand: "log-probabilities", expected, found: p.shape.clone() });
        };
        expect_shape("labels", labels, &[n, a, h, w])?;
        Ok(vec![TensorType::plain(Shape::scalar(), p.dtype), p.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(2, inputs[0])
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(2.0)
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        scale_own_gradient(grad)
    }
}

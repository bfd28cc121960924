//! Log-softmax over pairs of channels: the two scores of each anchor.

use super::{OpError, Operator, Rounding, expect_float, expect_shape, feature_map, operands, per_element};
use crate::{differentiate::Gradient, error::GraphError, tensor::TensorType, units::Flop};

/// Operand: `[n, 2 * a, h, w]`, read as `[n, 2, a, h, w]`. Result: `[n, a, h, w, 2]`, the logarithm of the softmax
/// over the two.
///
/// Source: `softmax` of the SiamMask authors' `Custom` model.
#[derive(Clone, Debug, PartialEq)]
pub struct PairLogSoftmax;

impl PairLogSoftmax {
    fn pairs([n, c, h, w]: [usize; 4]) -> Result<[usize; 5], OpError> {
        if !c.is_multiple_of(2) {
            return Err(OpError::Attribute(format!("{c} channels are not pairs")));
        }
        Ok([n, c / 2, h, w, 2])
    }
}

impl Operator for PairLogSoftmax {
    fn names() -> &'static [&'static str] {
        &["LogSoftmaxV2"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x] = operands(inputs, "input")?;
        expect_float("input", x)?;
        Ok(vec![TensorType::plain(Self::pairs(feature_map("input", x)?)?, x.dtype)])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(5, inputs[0])
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(2.0)
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let y = grad.result(0);
        let dx = grad.emit("grad", PairLogSoftmaxGrad, &[dy, y])?;
        grad.set(0, dx);
        Ok(())
    }
}

/// Gradient of [`PairLogSoftmax`]. Operands: output gradient and output `[n, a, h, w, 2]`.
/// Result: `dy - exp(y) * (sum of dy over the pair)` as `[n, 2 * a, h, w]`.
#[derive(Clone, Debug, PartialEq)]
pub struct PairLogSoftmaxGrad;

impl Operator for PairLogSoftmaxGrad {
    fn names() -> &'static [&'static str] {
        &["LogSoftmaxGrad"]
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [dy, y] = operands(inputs, "output gradient and output")?;
        expect_shape("output", y, &dy.shape)?;
        let [n, a, h, w, 2] = dy.shape[..] else {
            let expected = "[n, a, h, w, 2]".to_string();
            return Err(OpError::Shape { operand: "output gradient", expected, found: dy.shape.clone() });
        };
        Ok(vec![dy.with_shape([n, 2 * a, h, w])])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(4, inputs[0])
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(2.0)
    }
}

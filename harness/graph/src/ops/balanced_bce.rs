//! Binary cross entropy over positives and hard negatives.

use super::{OpError, Operator, Rounding, ScaleBy, expect_float, expect_shape, feature_map, operands, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    tensor::{Shape, TensorType},
    units::Flop,
};

/// How the negatives with the largest losses are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HardNegatives {
    /// Top-k, with a k that the step computes.
    TopK,
    /// All are sorted and multiplied by a mask of their ranks, so that all shapes are static.
    RankMask,
}

/// The set from which hard negatives are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MiningScope {
    /// The negatives of the whole batch.
    Batch,
    /// The negatives of each image, with its own number of positives.
    Image,
}

/// Operands: probabilities and targets `[n, 1, h, w]`, mask `[n, h, w]`. Results: the loss, the gradient of the
/// probabilities, and as scalars the number of positives, the number of selected negatives, and the smallest loss of
/// the selected negatives.
///
/// A pixel is positive where `target * mask` is 1, and negative where `(1 - target) * mask` is 1. With `P` positives,
/// `N = min(negatives, floor(ratio * P))` negatives are selected, those with the largest loss in the whole batch (or
/// in each image, with its own P and N): `sum of their losses / (P + N + eps)`. Of equal losses, the earlier pixel
/// comes first. Logarithms are at least -100.
///
/// Source: `BalanceCrossEntropyLoss` of the DB authors, `torch.nn.functional.binary_cross_entropy`.
#[derive(Clone, Debug, PartialEq)]
pub struct BalancedBce {
    /// Negatives per positive.
    pub negative_ratio: f64,
    /// Added to the count.
    pub eps: f64,
    /// How hard negatives are selected.
    pub hard_negatives: HardNegatives,
    /// From which set.
    pub scope: MiningScope,
}

impl BalancedBce {
    /// Number of the `negatives` that are used with `positives`.
    pub fn count(&self, positives: usize, negatives: usize) -> usize {
        negatives.min((positives as f64 * self.negative_ratio) as usize)
    }
}

impl Operator for BalancedBce {
    fn name(&self) -> Option<&'static str> {
        Some(match self.hard_negatives {
            HardNegatives::TopK => "BalancedBCETopK",
            HardNegatives::RankMask => "BalancedBCESortMask",
        })
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [p, target, mask] = operands(inputs, "probabilities, targets and mask")?;
        expect_float("probabilities", p)?;
        expect_map_and_mask(p, target, mask)?;
        let scalar = TensorType::plain(Shape::scalar(), p.dtype);
        Ok(vec![scalar.clone(), p.clone(), scalar.clone(), scalar.clone(), scalar])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(20, inputs[0])
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(2.0)
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        scale_own_gradient(grad)
    }
}

/// Requires that prediction and target have one channel, and that the mask has no channel axis.
pub(super) fn expect_map_and_mask(p: &TensorType, target: &TensorType, mask: &TensorType) -> Result<(), OpError> {
    let [n, c, h, w] = feature_map("prediction", p)?;
    expect_shape("prediction", p, &[n, 1, h, w])?;
    debug_assert_eq!(c, 1);
    expect_shape("target", target, &p.shape)?;
    expect_shape("mask", mask, &[n, h, w])
}

/// The gradient rule of losses whose second result is the gradient of the first operand.
pub(super) fn scale_own_gradient(grad: &mut Gradient<'_>) -> Result<(), GraphError> {
    grad.through_with(ScaleBy, |grad, dloss| [grad.result(1), dloss])
}

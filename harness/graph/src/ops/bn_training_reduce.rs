//! `BNTrainingReduce`: statistics of a batch.

use super::{Normalisation, OpError, Operand, Operator, Rounding, Work, one_float, per_element};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Need, Outcome, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// Operand: `[n, c, ...]`. Results: mean `[c]` and biased variance `[c]` over all axes except `c`.
///
/// The operator of the device returns sum and sum of squares; mean and variance are equivalent and avoid cancellation.
/// Its gradient is part of the gradient of [`super::BnTrainingUpdate`], which covers both paths from the input to the
/// loss.
#[derive(Clone, Debug, PartialEq)]
pub struct BnTrainingReduce;

impl Operator for BnTrainingReduce {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let x = one_float(inputs)?;
        let statistic = x.per_channel(channels(x)?);
        let per_channel = x.shape.numel() / statistic.shape.numel().max(1);
        if per_channel < 2 {
            return Err(OpError::Attribute(format!(
                "batch normalisation in training needs more than one value per channel, {} has {per_channel}: \
                 use a larger batch or image",
                x.shape
            )));
        }
        Ok(vec![statistic.clone(), statistic])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(3, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::MAP
    }

    fn work(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::in_f32(inputs[0], 3)
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Normalisation(Normalisation::Statistics)
    }

    fn gradient(&self, _grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        Ok(())
    }

    fn way(&self, _call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        let (operands, results) = (vec![Need::Part(part.clone())], vec![Outcome::Mean, Outcome::Variance]);
        ((known, part.axis) == (Slot::Operand(0), 0)).then(|| Way { op: self.clone().into(), operands, results })
    }
}

/// Number of channels of a normalisation's input.
pub(super) fn channels(x: &TensorType) -> Result<usize, OpError> {
    x.shape.get(1).copied().ok_or_else(|| OpError::Shape {
        operand: "input",
        expected: "at least 2 axes".into(),
        found: x.shape.clone(),
    })
}

/// Requires that each operand has one value per channel.
pub(super) fn expect_per_channel(c: usize, operands: &[(&'static str, &TensorType)]) -> Result<(), OpError> {
    operands.iter().try_for_each(|(name, ty)| super::expect_shape(name, ty, &[c]))
}

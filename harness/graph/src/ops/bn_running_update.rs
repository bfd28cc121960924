//! Running statistics of a normalisation.

use super::bn_training_reduce::expect_per_channel;
use super::{Kind, OpError, Operand, Operator, Rounding, Update, Work, operands, per_element};
use crate::{tensor::TensorType, units::Flop};

/// Operands: running mean, running variance, batch mean, biased batch variance (each `[c]`). Results: `(1 -
/// momentum) * running + momentum * batch`, with the unbiased variance of the batch (divided by `n - 1`).
///
/// Source: `torch.nn.BatchNorm2d`. On the device this is part of `BNTrainingUpdate`.
#[derive(Clone, Debug, PartialEq)]
pub struct BnRunningUpdate {
    /// Weight of the new batch (as in PyTorch; in TensorFlow it is one minus this).
    pub momentum: f64,
    /// Values per channel in the batch, at least 2.
    pub count: usize,
}

impl Operator for BnRunningUpdate {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [mean, var, batch_mean, batch_var] =
            operands(inputs, "running mean and variance, batch mean and variance")?;
        if self.count < 2 {
            return Err(OpError::Attribute(format!("no unbiased variance of {} values", self.count)));
        }
        let named = [("running variance", var), ("batch mean", batch_mean), ("batch variance", batch_var)];
        expect_per_channel(mean.shape.numel(), &named)?;
        Ok(vec![mean.clone(), var.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(6, inputs[0])
    }

    fn operand(&self, _: usize) -> Operand {
        Operand::EXACT
    }

    fn work(&self, _inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::Nothing
    }

    fn kind(&self) -> Kind {
        Kind::Update(Update::Statistics)
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Elementwise(8.0)
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0), (1, 1)]
    }
}

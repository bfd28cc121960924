//! `BNTrainingReduceGrad`: input gradient of a normalisation.

use super::bn_training_reduce::{channels, expect_per_channel};
use super::{Normalisation, OpError, Operand, Operator, Rounding, Work, per_element};
use crate::{tensor::TensorType, units::Flop};

/// Operands: output gradient `dy` and input `[n, c, ...]`, mean, variance, gamma, dgamma, dbeta (each `[c]`).
/// Result: with `m` values per channel, `s = 1 / sqrt(variance + eps)` and `xhat = (x - mean) * s`:
/// `gamma * s * (dy - dbeta / m - xhat * dgamma / m)`.
///
/// Source: arXiv 1502.03167, section 3.
#[derive(Clone, Debug, PartialEq)]
pub struct BnTrainingReduceGrad {
    /// Added to the variance.
    pub eps: f64,
}

impl Operator for BnTrainingReduceGrad {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [dy, x, mean, var, gamma, dgamma, dbeta] =
            super::operands(inputs, "output gradient, input, mean, variance, gamma, dgamma and dbeta")?;
        super::expect_shape("output gradient", dy, &x.shape)?;
        super::expect_same_storage("output gradient", x, dy)?;
        let named = [("mean", mean), ("variance", var), ("gamma", gamma), ("dgamma", dgamma), ("dbeta", dbeta)];
        expect_per_channel(channels(x)?, &named)?;
        Ok(vec![x.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(5, inputs[0])
    }

    fn operand(&self, i: usize) -> Operand {
        if i < 2 { Operand::MAP } else { Operand::EXACT }
    }

    fn work(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::in_f32(inputs[0], 7)
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Normalisation(Normalisation::InputGradient { eps: self.eps })
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}

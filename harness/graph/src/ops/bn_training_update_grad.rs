//! `BNTrainingUpdateGrad`: gradients of scale and shift of a normalisation.

use super::bn_training_reduce::{channels, expect_per_channel};
use super::{Kind, Normalisation, OpError, Operand, Operator, Rounding, Work, per_element};
use crate::{tensor::TensorType, units::Flop};

/// Operands: output gradient `dy` and input `[n, c, ...]`, mean, variance (each `[c]`).
/// Results: `dgamma = sum(dy * (x - mean) / sqrt(variance + eps))` and `dbeta = sum(dy)`, each `[c]`.
#[derive(Clone, Debug, PartialEq)]
pub struct BnTrainingUpdateGrad {
    /// Added to the variance.
    pub eps: f64,
}

impl Operator for BnTrainingUpdateGrad {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [dy, x, mean, var] = super::operands(inputs, "output gradient, input, mean and variance")?;
        super::expect_shape("output gradient", dy, &x.shape)?;
        super::expect_same_storage("output gradient", x, dy)?;
        let c = channels(x)?;
        expect_per_channel(c, &[("mean", mean), ("variance", var)])?;
        let sum = x.per_channel(c);
        Ok(vec![sum.clone(), sum])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(4, inputs[0])
    }

    fn operand(&self, i: usize) -> Operand {
        if i < 2 { Operand::MAP } else { Operand::EXACT }
    }

    fn work(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::in_f32(inputs[0], 7)
    }

    fn kind(&self) -> Kind {
        Kind::Statistics
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Normalisation(Normalisation::Sums { eps: self.eps })
    }
}

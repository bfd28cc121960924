//! `BNTrainingUpdateGrad`: gradients of scale and shift of a normalisation.

use super::bn_training_reduce::{channels, expect_per_channel};
use super::{OpError, Operator, per_element};
use crate::{
    tensor::{Layout, TensorType},
    units::Flop,
};

/// Operands: output gradient `dy` and input `[n, c, ...]`, mean, variance (each `[c]`); with `relu` also gamma and
/// beta, and `dy` counts only where the normalised value, computed again from them, is above zero.
/// Results: `dgamma = sum(dy * (x - mean) / sqrt(variance + eps))` and `dbeta = sum(dy)`, each `[c]`.
#[derive(Clone, Debug, PartialEq)]
pub struct BnTrainingUpdateGrad {
    /// Added to the variance.
    pub eps: f64,
    /// Whether `dy` is that of a fused ReLU's output (placed by fusion).
    pub relu: bool,
}

impl Operator for BnTrainingUpdateGrad {
    fn name(&self) -> &'static str {
        if self.relu { "BNTrainingUpdateGradRelu" } else { "BNTrainingUpdateGrad" }
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let (dy, x, mean, var) = match inputs {
            [dy, x, mean, var] if !self.relu => (dy, x, mean, var),
            [dy, x, mean, var, gamma, beta] if self.relu => {
                expect_per_channel(channels(x)?, &[("gamma", gamma), ("beta", beta)])?;
                (dy, x, mean, var)
            }
            _ => {
                let expected = "output gradient, input, mean, variance, and gamma and beta if fused";
                return Err(OpError::Arity { expected, found: inputs.len() });
            }
        };
        super::expect_shape("output gradient", dy, &x.shape)?;
        super::expect_same_storage("output gradient", x, dy)?;
        let c = channels(x)?;
        expect_per_channel(c, &[("mean", mean), ("variance", var)])?;
        let sum = x.with_shape([c]).with_layout(Layout::Plain);
        Ok(vec![sum.clone(), sum])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(4, inputs[0])
    }
}

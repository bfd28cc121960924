//! `BNTrainingReduceGrad`: gradient of a normalisation by its input.

use super::bn_training_reduce::{channels, expect_per_channel};
use super::{OpError, Operator, per_element};
use crate::{tensor::TensorType, units::Flop};

/// Operands: output gradient `dy` and input `[n, c, ...]`, mean, variance, gamma, dgamma, dbeta (each `[c]`);
/// with `relu` also beta, and `dy` counts only where the normalised value, computed again, is above zero.
/// Result: with `m` values per channel, `s = 1 / sqrt(variance + eps)` and `xhat = (x - mean) * s`:
/// `gamma * s * (dy - dbeta / m - xhat * dgamma / m)`.
///
/// Source: arXiv 1502.03167, section 3.
#[derive(Clone, Debug, PartialEq)]
pub struct BnTrainingReduceGrad {
    /// Added to the variance.
    pub eps: f64,
    /// Whether `dy` is that of a fused ReLU's output (placed by fusion).
    pub relu: bool,
}

impl Operator for BnTrainingReduceGrad {
    fn name(&self) -> &'static str {
        if self.relu { "BNTrainingReduceGradRelu" } else { "BNTrainingReduceGrad" }
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let (dy, x, rest) = match inputs {
            [dy, x, rest @ ..] if rest.len() == 5 + usize::from(self.relu) => (dy, x, rest),
            _ => {
                let expected = "output gradient, input, mean, variance, gamma, dgamma, dbeta, and beta if fused";
                return Err(OpError::Arity { expected, found: inputs.len() });
            }
        };
        super::expect_shape("output gradient", dy, &x.shape)?;
        super::expect_same_storage("output gradient", x, dy)?;
        let names = ["mean", "variance", "gamma", "dgamma", "dbeta", "beta"];
        let named: Vec<_> = names.into_iter().zip(rest.iter().copied()).collect();
        expect_per_channel(channels(x)?, &named)?;
        Ok(vec![(*x).clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(5, inputs[0])
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}

//! `BNTrainingGrad`: all gradients of a normalisation at once, including a following ReLU.

use super::bn_training_reduce::{channels, expect_per_channel};
use super::{Normalisation, OpError, Operand, Operator, Rectifier, Rounding, Work, per_element};
use crate::{tensor::TensorType, units::Flop};

/// The operators between the normalisation and the incoming gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradRelu {
    /// Nothing.
    Absent,
    /// A ReLU on the normalised value, which is recomputed.
    Recomputed(Rectifier),
    /// A ReLU on the sum with a residual; its output shows which elements pass.
    Output(Rectifier),
}

/// `BNTrainingUpdateGrad`, `BNTrainingReduceGrad`, and the `ReluGrad` before them in one operator.
///
/// Operands: output gradient and input `[n, c, ...]`, mean, variance, gamma (each `[c]`), then for a recomputed ReLU
/// beta `[c]`, or otherwise the output of the ReLU `[n, c, ...]`. Results: input gradient `[n, c, ...]`, dgamma and
/// dbeta (each `[c]`), and with [`GradRelu::Output`] the gradient after the ReLU, which is that of the residual.
#[derive(Clone, Debug, PartialEq)]
pub struct BnTrainingGrad {
    /// Added to the variance.
    pub eps: f64,
    /// The ReLU after the normalisation.
    pub relu: GradRelu,
}

impl Operator for BnTrainingGrad {
    fn name(&self) -> Option<&'static str> {
        Some(match self.relu {
            GradRelu::Absent => "BNTrainingGrad",
            GradRelu::Recomputed(_) => "BNTrainingGradRelu",
            GradRelu::Output(_) => "BNTrainingGradAddRelu",
        })
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let arity = || OpError::Arity {
            expected: "output gradient, input, mean, variance, gamma, and beta or the output if a ReLU is fused",
            found: inputs.len(),
        };
        let [dy, x, mean, var, gamma, rest @ ..] = inputs else { return Err(arity()) };
        super::expect_shape("output gradient", dy, &x.shape)?;
        super::expect_same_storage("output gradient", x, dy)?;
        let c = channels(x)?;
        expect_per_channel(c, &[("mean", mean), ("variance", var), ("gamma", gamma)])?;
        match (self.relu, rest) {
            (GradRelu::Absent, []) => {}
            (GradRelu::Recomputed(_), [beta]) => expect_per_channel(c, &[("beta", beta)])?,
            (GradRelu::Output(_), [y]) => {
                super::expect_shape("output", y, &x.shape)?;
                super::expect_same_storage("output", x, y)?;
            }
            _ => return Err(arity()),
        }
        let per_channel = x.per_channel(c);
        let mut results = vec![(*x).clone(), per_channel.clone(), per_channel];
        if matches!(self.relu, GradRelu::Output(_)) {
            results.push((*x).clone());
        }
        Ok(results)
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(9 + u64::from(self.relu != GradRelu::Absent), inputs[0])
    }

    fn operand(&self, i: usize) -> Operand {
        match i {
            0 | 1 => Operand::MAP,
            5 if matches!(self.relu, GradRelu::Output(_)) => Operand::MAP,
            _ => Operand::EXACT,
        }
    }

    fn work(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Work<'_> {
        Work::in_f32(inputs[0], 14)
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Normalisation(Normalisation::Gradient(self))
    }

    /// The gradient after the ReLU, for the residual, is the incoming gradient or zero.
    fn passes_on(&self, result: usize, _inputs: &[&TensorType]) -> bool {
        result == 3
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        match self.relu {
            GradRelu::Absent | GradRelu::Recomputed(_) => &[(0, 0)],
            GradRelu::Output(_) => &[(0, 3)],
        }
    }
}

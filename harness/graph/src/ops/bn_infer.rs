//! `BNInfer`: normalisation with stored statistics.

use super::bn_training_reduce::{channels, expect_per_channel};
use super::{
    BnTrainingUpdateGrad, Kind, Normalisation, OpError, Operand, Operator, Rounding, Work, operands, per_element,
};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    parallel::{Call, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// Operands: input `[n, c, ...]`, gamma, beta, mean, variance (each `[c]`).
/// Result: `(x - mean) / sqrt(variance + eps) * gamma + beta`.
///
/// Source: `torch.nn.functional.batch_norm(training=False)`.
#[derive(Clone, Debug, PartialEq)]
pub struct BnInfer {
    /// Added to the variance.
    pub eps: f64,
}

impl Operator for BnInfer {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [x, gamma, beta, mean, var] = operands(inputs, "input, gamma, beta, mean and variance")?;
        super::expect_float("input", x)?;
        let named = [("gamma", gamma), ("beta", beta), ("mean", mean), ("variance", var)];
        expect_per_channel(channels(x)?, &named)?;
        Ok(vec![x.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(2, inputs[0])
    }

    fn operand(&self, i: usize) -> Operand {
        if i == 0 { Operand::MAP } else { Operand::EXACT }
    }

    fn work(&self, _inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::in_f32(outputs[0], 4)
    }

    fn kind(&self) -> Kind {
        Kind::Normalisation
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Normalisation(Normalisation::Stored { eps: self.eps })
    }

    fn mixes_samples(&self, _inputs: &[&TensorType]) -> bool {
        false
    }

    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let [x, gamma, _, mean, var] = [0, 1, 2, 3, 4].map(|i| grad.operand(i));
        if grad.wants(1) || grad.wants(2) {
            let op = BnTrainingUpdateGrad { eps: self.eps };
            let sums = grad.emit_all("grad_scale_shift", op, &[dy, x, mean, var])?;
            grad.set(1, sums[0]);
            grad.set(2, sums[1]);
        }
        if grad.wants(0) {
            let dx = grad.emit("grad_input", BnInferGrad { eps: self.eps }, &[dy, gamma, var])?;
            grad.set(0, dx);
        }
        Ok(())
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        let input = matches!(known, Slot::Operand(0) | Slot::Result(0));
        Way::along(self.clone(), call, part, |axis| input && axis != 1)
    }
}

/// `BNInferGrad`. Operands: output gradient `[n, c, ...]`, gamma, variance (each `[c]`).
/// Result: `dy * gamma / sqrt(variance + eps)`.
#[derive(Clone, Debug, PartialEq)]
pub struct BnInferGrad {
    /// Added to the variance.
    pub eps: f64,
}

impl Operator for BnInferGrad {
    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let [dy, gamma, var] = operands(inputs, "output gradient, gamma and variance")?;
        expect_per_channel(channels(dy)?, &[("gamma", gamma), ("variance", var)])?;
        Ok(vec![dy.clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(1, inputs[0])
    }

    fn operand(&self, i: usize) -> Operand {
        if i == 0 { Operand::MAP } else { Operand::EXACT }
    }

    fn work(&self, _inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::in_f32(outputs[0], 4)
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Relative(4.0)
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}

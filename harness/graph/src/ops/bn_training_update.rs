//! `BNTrainingUpdate`: normalisation with the statistics of the batch.

use super::bn_training_reduce::{channels, expect_per_channel};
use super::{
    BnTrainingReduceGrad, BnTrainingUpdateGrad, Collective, Exchange, Kind, Normalisation, OpError, Operand, Operator,
    Rectifier, Rounding, Scale, Work, per_element,
};
use crate::{
    differentiate::Gradient,
    error::GraphError,
    graph::ValueId,
    parallel::{Call, MeshAxis, Part, Slot, Way},
    tensor::TensorType,
    units::Flop,
};

/// Operands: input `[n, c, ...]`, mean, variance, gamma, beta (each `[c]`); with `residual`, also a tensor with the
/// shape of the input. Result: `(x - mean) / sqrt(variance + eps) * gamma + beta`, plus the residual; with `relu`,
/// this is rectified.
///
/// Source: arXiv 1502.03167, `torch.nn.functional.batch_norm(training=True)`.
#[derive(Clone, Debug, PartialEq)]
pub struct BnTrainingUpdate {
    /// Added to the variance.
    pub eps: f64,
    /// Whether a sixth operand is added (placed by fusion).
    pub residual: bool,
    /// The ReLU at its end (placed by fusion).
    pub relu: Option<Rectifier>,
    /// Axes of a mesh, with their extents, whose ranks have computed the statistics together.
    pub ranks: Vec<(MeshAxis, usize)>,
}

impl BnTrainingUpdate {
    /// The sums of a rank as they would be if all ranks had the same: [`BnTrainingReduceGrad`] divides them by its own
    /// number of elements.
    fn sums_of_all(&self, grad: &mut Gradient<'_>, mut sums: [ValueId; 2]) -> Result<[ValueId; 2], GraphError> {
        for &(over, ranks) in &self.ranks {
            for (sum, name) in sums.iter_mut().zip(["scale", "shift"]) {
                let part = grad.emit(&format!("grad_{name}_part"), Scale { factor: 1.0 / ranks as f64 }, &[*sum])?;
                let op = Collective { exchange: Exchange::Sum, over, ranks };
                *sum = grad.emit(&format!("grad_{name}_{over}_sum"), op, &[part])?;
            }
        }
        Ok(sums)
    }
}

impl Operator for BnTrainingUpdate {
    fn name(&self) -> Option<&'static str> {
        Some(match (self.residual, self.relu.is_some()) {
            (false, false) => "BNTrainingUpdate",
            (false, true) => "BNTrainingUpdateRelu",
            (true, false) => "BNTrainingUpdateAdd",
            (true, true) => "BNTrainingUpdateAddRelu",
        })
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, OpError> {
        let (x, mean, var, gamma, beta) = match inputs {
            [x, mean, var, gamma, beta] if !self.residual => (x, mean, var, gamma, beta),
            [x, mean, var, gamma, beta, residual] if self.residual => {
                super::expect_shape("residual", residual, &x.shape)?;
                super::expect_same_storage("residual", x, residual)?;
                (x, mean, var, gamma, beta)
            }
            _ => {
                let expected = "input, mean, variance, gamma, beta and a residual if fused";
                return Err(OpError::Arity { expected, found: inputs.len() });
            }
        };
        let c = channels(x)?;
        expect_per_channel(c, &[("mean", mean), ("variance", var), ("gamma", gamma), ("beta", beta)])?;
        Ok(vec![(*x).clone()])
    }

    fn flop(&self, inputs: &[&TensorType], _outputs: &[&TensorType]) -> Flop {
        per_element(2 + u64::from(self.residual) + u64::from(self.relu.is_some()), inputs[0])
    }

    fn operand(&self, i: usize) -> Operand {
        if i == 0 || i == 5 { Operand::MAP } else { Operand::EXACT }
    }

    fn work(&self, _inputs: &[&TensorType], outputs: &[&TensorType]) -> Work<'_> {
        Work::in_f32(outputs[0], 4 + u64::from(self.residual) + u64::from(self.relu.is_some()))
    }

    fn kind(&self) -> Kind {
        Kind::Normalisation
    }

    fn rounding(&self, _inputs: &[&TensorType]) -> Rounding<'_> {
        Rounding::Normalisation(Normalisation::Training(self))
    }

    /// Computes the whole gradient of the input, including the paths through mean and variance.
    fn gradient(&self, grad: &mut Gradient<'_>) -> Result<(), GraphError> {
        if self.residual || self.relu.is_some() {
            return Err(grad.refuse("a fused BNTrainingUpdate"));
        }
        let Some(dy) = grad.result_grad(0) else { return Ok(()) };
        let [x, mean, var, gamma] = [0, 1, 2, 3].map(|i| grad.operand(i));
        let op = BnTrainingUpdateGrad { eps: self.eps };
        let sums = grad.emit_all("grad_scale_shift", op, &[dy, x, mean, var])?;
        grad.set(3, sums[0]);
        grad.set(4, sums[1]);
        if grad.wants(0) {
            let op = BnTrainingReduceGrad { eps: self.eps };
            let sums = self.sums_of_all(grad, [sums[0], sums[1]])?;
            let dx = grad.emit("grad_input", op, &[dy, x, mean, var, gamma, sums[0], sums[1]])?;
            grad.set(0, dx);
        }
        Ok(())
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        if self.residual { &[(5, 0)] } else { &[] }
    }

    fn way(&self, call: Call<'_>, known: Slot, part: &Part) -> Option<Way> {
        let mut ranks = self.ranks.clone();
        ranks.push((call.over, call.ranks));
        let samples = (known, part.axis) == (Slot::Operand(0), 0) && !self.residual;
        Way::along(Self { ranks, ..self.clone() }, call, part, |_| samples)
    }
}

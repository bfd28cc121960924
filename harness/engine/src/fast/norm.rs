//! Normalisations, their gradients, and the gradient of a bias.

use super::{call::Call, elementwise::rectifier};
use crate::KernelError;
use zoo_graph::{
    Layout,
    ops::{
        BnInfer, BnInferGrad, BnRunningUpdate, BnTrainingGrad, BnTrainingReduceGrad, BnTrainingUpdate,
        BnTrainingUpdateGrad, GradRelu,
    },
};
use zoo_kernels::{
    batch_norm::{self, Fused, Gradients, Normalised, Parameters, Relu},
    bias,
    conv::Statistics,
};

pub(super) fn statistics(mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, shape, x) = (call.isa, call.map(0)?, call.operand(0)?);
    let [mean, variance] = call.results()?;
    batch_norm::statistics(isa, shape, x, Statistics { mean, variance });
    Ok(())
}

pub(super) fn normalise(op: &BnTrainingUpdate, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, shape, x) = (call.isa, call.map(0)?, call.operand(0)?);
    let [mean, variance, gamma, beta] = [call.operand(1)?, call.operand(2)?, call.operand(3)?, call.operand(4)?];
    let parameters = Parameters { mean, variance, gamma, beta, epsilon: op.eps };
    let fused = Fused { residual: call.apart(5), relu: op.relu.map(rectifier), rounding: call.rounding(0) };
    let [y] = call.results()?;
    match op.residual && fused.residual.is_none() {
        true => batch_norm::normalise_onto(isa, shape, x, &parameters, fused, y),
        false => batch_norm::normalise(isa, shape, Some(x), &parameters, fused, y),
    }
    Ok(())
}

pub(super) fn infer(op: &BnInfer, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, shape, x) = (call.isa, call.map(0)?, call.apart(0));
    let [gamma, beta, mean, variance] = [call.operand(1)?, call.operand(2)?, call.operand(3)?, call.operand(4)?];
    let parameters = Parameters { mean, variance, gamma, beta, epsilon: op.eps };
    let fused = Fused { rounding: call.rounding(0), ..Fused::default() };
    let [y] = call.results()?;
    batch_norm::normalise(isa, shape, x, &parameters, fused, y);
    Ok(())
}

pub(super) fn infer_gradient(op: &BnInferGrad, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, shape, dy) = (call.isa, call.map(0)?, call.apart(0));
    let (gamma, variance) = (call.operand(1)?, call.operand(2)?);
    // This gradient does not depend on mean and shift.
    let parameters = Parameters { mean: gamma, variance, gamma, beta: gamma, epsilon: op.eps };
    let [dx] = call.results()?;
    batch_norm::stored_input_gradient(isa, shape, &parameters, dy, dx);
    Ok(())
}

pub(super) fn gradient_sums(op: &BnTrainingUpdateGrad, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, shape) = (call.isa, call.map(0)?);
    let [dy, x, mean, variance] = [call.operand(0)?, call.operand(1)?, call.operand(2)?, call.operand(3)?];
    // These sums do not depend on scale and shift.
    let parameters = Parameters { mean, variance, gamma: mean, beta: mean, epsilon: op.eps };
    let forward = Normalised { x, parameters, relu: Relu::Absent, rounding: None };
    let [gamma, beta] = call.results()?;
    batch_norm::gradient_sums(isa, shape, &forward, dy, Gradients { gamma, beta });
    Ok(())
}

pub(super) fn input_gradient(op: &BnTrainingReduceGrad, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, shape, dy, x) = (call.isa, call.map(1)?, call.apart(0), call.operand(1)?);
    let [mean, variance, gamma] = [call.operand(2)?, call.operand(3)?, call.operand(4)?];
    let (mut dgamma, mut dbeta) = (call.operand(5)?.to_vec(), call.operand(6)?.to_vec());
    let parameters = Parameters { mean, variance, gamma, beta: mean, epsilon: op.eps };
    let forward = Normalised { x, parameters, relu: Relu::Absent, rounding: call.rounding(0) };
    let gradients = Gradients { gamma: &mut dgamma, beta: &mut dbeta };
    let [dx] = call.results()?;
    batch_norm::input_gradient(isa, shape, &forward, dy, &gradients, dx);
    Ok(())
}

pub(super) fn gradient(op: &BnTrainingGrad, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, shape, dy, x) = (call.isa, call.map(1)?, call.apart(0), call.operand(1)?);
    let [mean, variance, gamma] = [call.operand(2)?, call.operand(3)?, call.operand(4)?];
    let (beta, relu) = match op.relu {
        GradRelu::Absent => (mean, Relu::Absent),
        GradRelu::Recomputed(of) => (call.operand(5)?, Relu::Recomputed(rectifier(of))),
        GradRelu::Output(of) => (mean, Relu::Output(rectifier(of), call.operand(5)?)),
    };
    let parameters = Parameters { mean, variance, gamma, beta, epsilon: op.eps };
    let forward = Normalised { x, parameters, relu, rounding: call.rounding(0) };
    if matches!(op.relu, GradRelu::Output(_)) {
        let [dx, gamma, beta, residual] = call.results()?;
        if let Some(dy) = dy {
            residual.copy_from_slice(dy);
        }
        batch_norm::backward_residual(isa, shape, &forward, residual, dx, Gradients { gamma, beta });
        return Ok(());
    }
    let [dx, gamma, beta] = call.results()?;
    batch_norm::backward(isa, shape, &forward, dy, dx, Gradients { gamma, beta });
    Ok(())
}

pub(super) fn running(op: &BnRunningUpdate, mut call: Call<'_>) -> Result<(), KernelError> {
    let (old_mean, old_variance) = (call.apart(0), call.apart(1));
    let batch = (call.operand(2)?, call.operand(3)?);
    let [mean, variance] = call.results()?;
    if let Some(old) = old_mean {
        mean.copy_from_slice(old);
    }
    if let Some(old) = old_variance {
        variance.copy_from_slice(old);
    }
    batch_norm::update_running(op.momentum, op.count, batch, (mean, variance));
    Ok(())
}

/// For a blocked map, or for rows.
pub(super) fn bias_gradient(mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, dy, ty) = (call.isa, call.operand(0)?, call.operand_types[0]);
    if ty.layout != Layout::Nc1hwc0 {
        let [dbias] = call.results()?;
        bias::bias_gradient_of_rows(isa, dy, dbias);
        return Ok(());
    }
    let shape = call.map(0)?;
    let [dbias] = call.results()?;
    bias::bias_gradient(isa, shape, dy, dbias);
    Ok(())
}

//! What a step leaves behind: optimizers and running statistics.

use crate::elements::map;
use crate::{KernelError, Scalars};
use candle_core::{FloatDType, Tensor};
use zoo_graph::ops::{ApplyAdam, ApplyEma, ApplyMomentum, BnRunningUpdate};

/// Parameter and momentum after the step.
pub(super) fn momentum<T: FloatDType>(op: &ApplyMomentum, operands: [&Tensor; 3], scalars: Scalars) -> super::Results {
    let lr = scalars.learning_rate * op.lr_scale;
    let after = map::<T, 3, 2>(operands, |[p, v, g]| {
        let d = g + op.weight_decay * p;
        let v = op.momentum * v + d;
        let direction = if op.nesterov { d + op.momentum * v } else { v };
        [p - lr * direction, v]
    })?;
    Ok(after.into())
}

/// Parameter and both moments after the step.
pub(super) fn adam<T: FloatDType>(op: &ApplyAdam, operands: [&Tensor; 4], scalars: Scalars) -> super::Results {
    let t = (scalars.step - scalars.skipped) as f64 + 1.0;
    let rate = scalars.learning_rate * op.lr_scale / (1.0 - libm::pow(op.beta1, t));
    let root_correction = (1.0 - libm::pow(op.beta2, t)).sqrt();
    let after = map::<T, 4, 3>(operands, |[p, m, v, g]| {
        let d = g + op.weight_decay * p;
        let m = op.beta1 * m + (1.0 - op.beta1) * d;
        let v = op.beta2 * v + (1.0 - op.beta2) * d * d;
        [p - rate * m / (v.sqrt() / root_correction + op.eps), m, v]
    })?;
    Ok(after.into())
}

/// The average after the step.
pub(super) fn ema<T: FloatDType>(op: &ApplyEma, operands: [&Tensor; 2]) -> Result<Tensor, KernelError> {
    let [after] = map::<T, 2, 1>(operands, |[average, p]| [op.decay * average + (1.0 - op.decay) * p])?;
    Ok(after)
}

/// Running mean and variance, moved towards those of the batch.
pub(super) fn running_statistics<T: FloatDType>(op: &BnRunningUpdate, operands: [&Tensor; 4]) -> super::Results {
    let unbiased = op.count as f64 / (op.count as f64 - 1.0);
    let towards = |running: f64, batch: f64| (1.0 - op.momentum) * running + op.momentum * batch;
    let after = map::<T, 4, 2>(operands, |[mean, var, batch_mean, batch_var]| {
        [towards(mean, batch_mean), towards(var, batch_var * unbiased)]
    })?;
    Ok(after.into())
}

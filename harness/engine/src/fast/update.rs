//! Optimizers: parameters and slots in place, or copied first where the plan could not overwrite them.

use super::call::Call;
use crate::KernelError;
use zoo_graph::ops::{ApplyAdam, ApplyEma, ApplyMomentum, ClipByValue};
use zoo_kernels::optimizer::{self, Adam, Momentum};

/// Leaves everything as it was.
pub(super) fn keep(mut call: Call<'_>, count: usize) {
    start(&mut call, count);
}

/// Brings old values into the results that do not overwrite them.
fn start(call: &mut Call<'_>, count: usize) {
    for i in 0..count {
        if let Some(old) = call.apart(i) {
            call.results[i].copy_from_slice(old);
        }
    }
}

pub(super) fn momentum(op: &ApplyMomentum, mut call: Call<'_>) -> Result<(), KernelError> {
    start(&mut call, 2);
    let (isa, gradient) = (call.isa, call.operand(2)?);
    let rule = Momentum {
        rate: call.scalars.learning_rate * op.lr_scale,
        momentum: op.momentum,
        weight_decay: op.weight_decay,
        nesterov: op.nesterov,
    };
    let [parameter, velocity] = call.results()?;
    optimizer::apply_momentum(isa, &rule, parameter, velocity, gradient);
    Ok(())
}

pub(super) fn ema(op: &ApplyEma, mut call: Call<'_>) -> Result<(), KernelError> {
    start(&mut call, 1);
    let (isa, parameter) = (call.isa, call.operand(1)?);
    let [average] = call.results()?;
    optimizer::apply_average(isa, op.decay, average, parameter);
    Ok(())
}

pub(super) fn clip_by_value(op: &ClipByValue, mut call: Call<'_>) -> Result<(), KernelError> {
    start(&mut call, 1);
    let isa = call.isa;
    let [gradient] = call.results()?;
    optimizer::clip(isa, op.bound as f32, gradient);
    Ok(())
}

pub(super) fn adam(op: &ApplyAdam, mut call: Call<'_>) -> Result<(), KernelError> {
    start(&mut call, 3);
    let (isa, gradient) = (call.isa, call.operand(3)?);
    let rule = Adam {
        rate: call.scalars.learning_rate * op.lr_scale,
        beta1: op.beta1,
        beta2: op.beta2,
        epsilon: op.eps,
        weight_decay: op.weight_decay,
        step: call.scalars.step - call.scalars.skipped + 1,
    };
    let [parameter, first, second] = call.results()?;
    optimizer::apply_adam(isa, &rule, parameter, first, second, gradient);
    Ok(())
}

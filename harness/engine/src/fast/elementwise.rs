//! Element-wise operators, in any layout: padding is zero and stays zero.

use super::call::Call;
use crate::KernelError;
use zoo_graph::{
    Layout,
    ops::{Dropout, Rectifier, Relu, ReluGrad},
};
use zoo_kernels::{dropout, elementwise, rectifier as kernel};

pub(super) fn add(mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, rounding) = (call.isa, call.rounding(0));
    let terms: Vec<&[f32]> = (0..call.operands.len()).filter_map(|i| call.apart(i)).collect();
    let overwrites = terms.len() < call.operands.len();
    let [sum] = call.results()?;
    match overwrites {
        true => elementwise::accumulate(isa, &terms, sum, rounding),
        false => elementwise::add(isa, &terms, sum, rounding),
    }
    Ok(())
}

/// The kernels' form of a rectifier.
pub(super) fn rectifier(rectifier: Rectifier) -> kernel::Rectifier {
    match rectifier {
        Rectifier::Relu => kernel::Rectifier::RELU,
        Rectifier::Relu6 => kernel::Rectifier::RELU6,
    }
}

pub(super) fn relu(op: &Relu, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, rectifier, x) = (call.isa, rectifier(op.rectifier), call.apart(0));
    let [y] = call.results()?;
    kernel::relu(isa, rectifier, x, y);
    Ok(())
}

pub(super) fn relu_gradient(op: &ReluGrad, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, rectifier, dy, y) = (call.isa, rectifier(op.rectifier), call.apart(0), call.operand(1)?);
    let [dx] = call.results()?;
    kernel::relu_gradient(isa, rectifier, y, dy, dx);
    Ok(())
}

/// Copies the elements; the type may differ.
pub(super) fn copy(mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, x, rounding) = (call.isa, call.apart(0), call.rounding(0));
    let [y] = call.results()?;
    match x {
        Some(x) => elementwise::add(isa, &[x], y, rounding),
        None => rounding.into_iter().for_each(|rounding| rounding.whole(y)),
    }
    Ok(())
}

pub(super) fn scale(factor: f64, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, x) = (call.isa, call.apart(0));
    let [y] = call.results()?;
    elementwise::scale(isa, factor as f32, x, y);
    Ok(())
}

pub(super) fn scale_by(call: Call<'_>) -> Result<(), KernelError> {
    let factor = call.operand(1)?[0];
    scale(f64::from(factor), call)
}

pub(super) fn fill(value: f64, mut call: Call<'_>) -> Result<(), KernelError> {
    let [y] = call.results()?;
    y.fill(value as f32);
    Ok(())
}

pub(super) fn eye(size: usize, mut call: Call<'_>) -> Result<(), KernelError> {
    let [y] = call.results()?;
    y.fill(0.0);
    y.iter_mut().step_by(size + 1).for_each(|one| *one = 1.0);
    Ok(())
}

pub(super) fn dropout(op: &Dropout, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, x) = (call.isa, call.apart(0));
    let mask = dropout::Dropout::new(call.scalars.seed, call.scalars.step, op.stream, op.rate);
    let mask = mask.from_element(call.scalars.part * call.result_types[0].shape.numel() as u64);
    let map = match call.result_types[0].layout {
        Layout::Nc1hwc0 => Some(call.result_map(0)?),
        Layout::Plain | Layout::FractalZ { .. } => None,
    };
    let [y] = call.results()?;
    match map {
        Some(map) => dropout::dropout_blocked(isa, map, &mask, x, y),
        None => dropout::dropout(isa, &mask, x, y),
    }
    Ok(())
}

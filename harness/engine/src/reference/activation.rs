//! ReLU and dropout.

use crate::elements::{map, map_with_index};
use crate::{KernelError, Scalars};
use candle_core::{FloatDType, Tensor};
use zoo_graph::ops::{Dropout, Rectifier};
use zoo_kernels::dropout;

/// A rectifier; NaN stays NaN (candle's and IEEE's maximum would hide it).
pub(super) fn relu<T: FloatDType>(rectifier: Rectifier, [x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let [y] = map::<T, 1, 1>([x], |[x]| [rectifier.of(x)])?;
    Ok(y)
}

/// `dy` where the rectifier passes it, otherwise zero.
pub(super) fn relu_grad<T: FloatDType>(rectifier: Rectifier, [dy, y]: [&Tensor; 2]) -> Result<Tensor, KernelError> {
    let [dx] = map::<T, 2, 1>([dy, y], |[dy, y]| [if rectifier.passes(y) { dy } else { 0.0 }])?;
    Ok(dx)
}

/// Multiplies by a mask of the kernels' counter-based generator, so that forward, backward and all kernels agree: an
/// infinity that falls is NaN, as in PyTorch.
pub(super) fn dropout<T: FloatDType>(op: &Dropout, [x]: [&Tensor; 1], scalars: Scalars) -> Result<Tensor, KernelError> {
    let mask = dropout::Dropout::new(scalars.seed, scalars.step, op.stream, op.rate);
    let mask = mask.from_element(scalars.part * x.elem_count() as u64);
    let share = 1.0 - op.rate;
    let [y] =
        map_with_index::<T, 1, 1>([x], |index, [x]| [if mask.keeps(index as u64) { x / share } else { x * 0.0 }])?;
    Ok(y)
}

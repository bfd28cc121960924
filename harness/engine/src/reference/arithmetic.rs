//! Sums, multiples and clipping.

use crate::elements::{Elements, by_chunks, map, scalar, scalar_value, sum};
use crate::{KernelError, layout::stored_dims};
use candle_core::{Device, FloatDType, Tensor};
use zoo_graph::ops::{ClipByGlobalNorm, ClipByValue, Eye, Fill, Scale, WeightedSum, clip_factor};

/// The sum of the operands, from left to right.
pub(super) fn add<T: FloatDType>(operands: &[Tensor]) -> Result<Tensor, KernelError> {
    let [first, rest @ ..] = operands else { return Err(KernelError::Arity { found: 0 }) };
    rest.iter().try_fold(first.clone(), |total, next| {
        let [total] = map::<T, 2, 1>([&total, next], |[a, b]| [a + b])?;
        Ok(total)
    })
}

/// A tensor with one value in all elements.
pub(super) fn fill<T: FloatDType>(op: &Fill) -> Result<Tensor, KernelError> {
    Ok(Tensor::full(T::from_f64(op.value), stored_dims(&op.ty), &Device::Cpu)?)
}

/// The identity matrix.
pub(super) fn eye<T: FloatDType>(op: &Eye) -> Result<Tensor, KernelError> {
    let element = |i: usize| T::from_f64(if i.is_multiple_of(op.size + 1) { 1.0 } else { 0.0 });
    Ok(Tensor::from_vec((0..op.size * op.size).map(element).collect::<Vec<T>>(), (op.size, op.size), &Device::Cpu)?)
}

/// `x * factor`.
pub(super) fn scale<T: FloatDType>(op: &Scale, [x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let [y] = map::<T, 1, 1>([x], |[x]| [x * op.factor])?;
    Ok(y)
}

/// `x * factor` with a scalar tensor, possibly of a wider type: a loss scale may not fit half precision.
pub(super) fn scale_by<T: FloatDType>([x, factor]: [&Tensor; 2]) -> Result<Tensor, KernelError> {
    let factor = scalar_value::<f64>(&factor.to_dtype(candle_core::DType::F64)?)?;
    let [y] = map::<T, 1, 1>([x], |[x]| [x * factor])?;
    Ok(y)
}

/// `sum(weight * operand)`, from left to right.
pub(super) fn weighted_sum<T: FloatDType>(op: &WeightedSum, operands: &[Tensor]) -> Result<Tensor, KernelError> {
    let opened = operands.iter().map(Elements::of).collect::<candle_core::Result<Vec<_>>>()?;
    let terms = opened.iter().map(Elements::slice::<T>).collect::<candle_core::Result<Vec<_>>>()?;
    let Some(first) = operands.first() else { return Err(KernelError::Arity { found: 0 }) };
    Ok(by_chunks::<T>(first.dims(), 1 << 12, |chunk, out| {
        for (i, out) in (chunk << 12..).zip(out) {
            let weighted = op.weights.iter().zip(&terms).map(|(weight, term)| weight * term[i].to_f64());
            *out = T::from_f64(weighted.sum());
        }
    })?)
}

/// Norm of all operands together, and the factor that reduces it to the bound.
pub(super) fn clip_by_global_norm<T: FloatDType>(op: &ClipByGlobalNorm, operands: &[Tensor]) -> super::Results {
    let mut squares = 0.0;
    for gradient in operands {
        let x = Elements::of(gradient)?;
        let x = x.slice::<T>()?;
        squares += sum(x.len(), |i| x[i].to_f64() * x[i].to_f64());
    }
    let norm = squares.sqrt();
    Ok(vec![scalar::<T>(norm)?, scalar::<T>(clip_factor(norm, op.bound))?])
}

/// Limits each element to `[-bound, bound]`.
pub(super) fn clip_by_value<T: FloatDType>(op: &ClipByValue, [x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let [y] = map::<T, 1, 1>([x], |[x]| [x.clamp(-op.bound, op.bound)])?;
    Ok(y)
}

/// `sum(x^2) / 2`.
pub(super) fn l2_loss<T: FloatDType>([x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let x = Elements::of(x)?;
    let x = x.slice::<T>()?;
    let squares = sum(x.len(), |i| x[i].to_f64() * x[i].to_f64());
    Ok(scalar::<T>(squares / 2.0)?)
}

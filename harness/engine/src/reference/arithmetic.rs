//! Sums and multiples.

use crate::elements::{Elements, map, scalar, scalar_value, sum};
use crate::{KernelError, layout::stored_dims};
use candle_core::{Device, FloatDType, Tensor};
use zoo_graph::ops::{Fill, Scale, WeightedSum};

/// The operands' sum, from left to right.
pub(super) fn add<T: FloatDType>(operands: &[Tensor]) -> Result<Tensor, KernelError> {
    let [first, rest @ ..] = operands else { return Err(KernelError::Arity { found: 0 }) };
    rest.iter().try_fold(first.clone(), |total, next| {
        let [total] = map::<T, 2, 1>([&total, next], |[a, b]| [a + b])?;
        Ok(total)
    })
}

/// A tensor of one value.
pub(super) fn fill<T: FloatDType>(op: &Fill) -> Result<Tensor, KernelError> {
    Ok(Tensor::full(T::from_f64(op.value), stored_dims(&op.ty), &Device::Cpu)?)
}

/// `x * factor`.
pub(super) fn scale<T: FloatDType>(op: &Scale, [x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let [y] = map::<T, 1, 1>([x], |[x]| [x * op.factor])?;
    Ok(y)
}

/// `x * factor`, the factor a scalar tensor, perhaps of a wider type: a loss scale need not fit half precision.
pub(super) fn scale_by<T: FloatDType>([x, factor]: [&Tensor; 2]) -> Result<Tensor, KernelError> {
    let factor = scalar_value::<f64>(&factor.to_dtype(candle_core::DType::F64)?)?;
    let [y] = map::<T, 1, 1>([x], |[x]| [x * factor])?;
    Ok(y)
}

/// `sum(weight * operand)` of scalars.
pub(super) fn weighted_sum<T: FloatDType>(op: &WeightedSum, operands: &[Tensor]) -> Result<Tensor, KernelError> {
    let values = operands.iter().map(scalar_value::<T>).collect::<candle_core::Result<Vec<f64>>>()?;
    let total = op.weights.iter().zip(values).map(|(weight, value)| weight * value).sum();
    Ok(scalar::<T>(total)?)
}

/// `sum(x^2) / 2`.
pub(super) fn l2_loss<T: FloatDType>([x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let x = Elements::of(x)?;
    let x = x.slice::<T>()?;
    let squares = sum(x.len(), |i| x[i].to_f64() * x[i].to_f64());
    Ok(scalar::<T>(squares / 2.0)?)
}

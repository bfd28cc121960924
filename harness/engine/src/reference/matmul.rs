//! Products of matrices.

use crate::KernelError;
use crate::elements::{Elements, by_chunks, widened};
use candle_core::{DType, FloatDType, Result, Tensor};
use zoo_graph::ops::MatMul;

/// `op(a) * op(b) + bias`.
pub(super) fn matmul<T: FloatDType>(
    op: &MatMul,
    [a, b]: [&Tensor; 2],
    bias: Option<&Tensor>,
) -> std::result::Result<Tensor, KernelError> {
    let a = if op.transpose_a { a.t()? } else { a.clone() };
    let b = if op.transpose_b { b.t()? } else { b.clone() };
    let y = product(&a, &b)?;
    Ok(match bias {
        Some(bias) => add_per_channel::<T>(&y, bias)?,
        None => y,
    })
}

/// Product of matrices, or of equally many matrices each. Types narrower than f32 are summed in f32 (candle's product of
/// f16 rounds partial sums to f16).
pub(super) fn product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    match a.dtype() {
        narrow @ (DType::F16 | DType::BF16) => {
            a.to_dtype(DType::F32)?.matmul(&b.to_dtype(DType::F32)?)?.to_dtype(narrow)
        }
        _ => a.matmul(b),
    }
}

/// `x + bias`, one value per element of the second axis.
pub(super) fn add_per_channel<T: FloatDType>(x: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let bias = widened::<T>(bias)?;
    let plane: usize = x.dims()[2..].iter().product();
    let opened = Elements::of(x)?;
    let values = opened.slice::<T>()?;
    let image = bias.len() * plane;
    by_chunks::<T>(x.dims(), image, |i, y| {
        for (j, (y, x)) in y.iter_mut().zip(&values[i * image..]).enumerate() {
            *y = T::from_f64(x.to_f64() + bias[j / plane]);
        }
    })
}

//! Products of matrices.

use crate::KernelError;
use crate::elements::{Elements, by_chunks, widened};
use candle_core::{FloatDType, Result, Tensor};
use zoo_graph::ops::MatMul;

/// `op(a) * op(b) + bias`.
pub(super) fn matmul<T: FloatDType>(
    op: &MatMul,
    [a, b]: [&Tensor; 2],
    bias: Option<&Tensor>,
) -> std::result::Result<Tensor, KernelError> {
    let b = if op.transpose_b { b.t()? } else { b.clone() };
    let y = match (op.transpose_a, a.dims(), b.rank()) {
        // All rows at once, so that the one matrix is not copied for each place of the leading axes.
        (false, [leading @ .., k], 2) => {
            let y = a.reshape(((), *k))?.matmul(&b)?;
            y.reshape([leading, &[b.dim(1)?]].concat())?
        }
        (true, ..) => a.t()?.broadcast_matmul(&b)?,
        (false, ..) => a.broadcast_matmul(&b)?,
    };
    let Some(bias) = bias else { return Ok(y) };
    let rows = y.reshape(((), y.dim(candle_core::D::Minus1)?))?;
    Ok(add_per_channel::<T>(&rows, bias)?.reshape(y.shape())?)
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

//! Matrix products.

use crate::KernelError;
use crate::elements::{Elements, by_chunks, widened};
use candle_core::{D, FloatDType, Result, Tensor};
use zoo_graph::ops::MatMul;

/// `op(a) * op(b) + bias`.
pub(super) fn matmul<T: FloatDType>(
    op: &MatMul,
    [a, b]: [&Tensor; 2],
    bias: Option<&Tensor>,
) -> std::result::Result<Tensor, KernelError> {
    let [(leading_a, [rows, _]), (leading_b, _)] = [leading(a)?, leading(b)?];
    // candle supports transposed matrices along one leading axis, but not along more.
    let matrices = |x: &Tensor, transpose: bool| {
        let x = x.reshape(((), x.dim(D::Minus2)?, x.dim(D::Minus1)?))?;
        if transpose { x.t() } else { Ok(x) }
    };
    let y = if leading_a == leading_b {
        let y = matrices(a, op.transpose_a)?.matmul(&matrices(b, op.transpose_b)?)?;
        y.reshape([leading_a, &y.dims()[1..]].concat())?
    } else {
        let b = if op.transpose_b { b.t()? } else { b.clone() };
        match (op.transpose_a, b.rank()) {
            // All rows at once, so that the single matrix is not copied for each position of the leading axes.
            (false, 2) => {
                let y = a.flatten_to(D::Minus2)?.matmul(&b)?;
                y.reshape([leading_a, &[rows, b.dim(1)?]].concat())?
            }
            (true, _) => a.t()?.broadcast_matmul(&b)?,
            (false, _) => a.broadcast_matmul(&b)?,
        }
    };
    let Some(bias) = bias else { return Ok(y) };
    let rows = y.reshape(((), y.dim(D::Minus1)?))?;
    Ok(add_per_channel::<T>(&rows, bias)?.reshape(y.shape())?)
}

/// The leading axes of matrices, and their rows and columns.
fn leading(x: &Tensor) -> std::result::Result<(&[usize], [usize; 2]), KernelError> {
    let matrices = KernelError::Operand { place: 0, expected: "matrices" };
    let (leading, extents) = x.dims().split_last_chunk().ok_or(matrices)?;
    Ok((leading, *extents))
}

/// `x + bias`, with one value per element of the second axis.
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

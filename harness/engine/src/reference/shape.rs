//! Operators that move or convert elements without computing: candle's, in any element type.

use crate::{KernelError, layout};
use candle_core::Tensor;
use zoo_graph::{
    TensorType,
    ops::{Concat, Pad, Reshape, Slice, Split, Transpose},
};

/// The same elements with another shape; the memory is shared.
pub(super) fn reshape(op: &Reshape, [x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    Ok(x.reshape(op.shape.to_vec())?)
}

/// The axes in another order.
pub(super) fn transpose(op: &Transpose, [x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    Ok(x.permute(op.permutation.clone())?.contiguous()?)
}

/// Concatenates the parts.
pub(super) fn concat(op: &Concat, parts: &[Tensor]) -> Result<Tensor, KernelError> {
    Ok(Tensor::cat(parts, op.axis)?.contiguous()?)
}

/// Splits along an axis.
pub(super) fn split(op: &Split, [x]: [&Tensor; 1]) -> Result<Vec<Tensor>, KernelError> {
    let mut start = 0;
    let part = |size: &usize| {
        let part = x.narrow(op.axis, start, *size)?.contiguous()?;
        start += size;
        Ok(part)
    };
    op.sizes.iter().map(part).collect()
}

/// Extracts a box.
pub(super) fn slice(op: &Slice, [x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let mut axes = op.start.iter().zip(&op.size).enumerate();
    let cut = axes.try_fold(x.clone(), |x, (axis, (start, size))| x.narrow(axis, *start, *size));
    Ok(cut?.contiguous()?)
}

/// Adds zeros before and after, per axis.
pub(super) fn pad(op: &Pad, [x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let mut axes = op.before.iter().zip(&op.after).enumerate();
    let padded = axes.try_fold(x.clone(), |x, (axis, (before, after))| x.pad_with_zeros(axis, *before, *after));
    Ok(padded?.contiguous()?)
}

/// Converts to another layout, via row-major order.
pub(super) fn trans_data([x]: [&Tensor; 1], from: &[&TensorType], to: &[&TensorType]) -> Result<Tensor, KernelError> {
    let (&[from], &[to]) = (from, to) else { return Err(KernelError::Arity { found: from.len() }) };
    Ok(layout::to_stored(&layout::to_plain(x, from)?, to)?)
}

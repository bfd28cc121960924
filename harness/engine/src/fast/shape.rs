//! Operators that only move elements.

use super::{
    call::Call,
    plain::{from_plain, to_plain},
};
use crate::KernelError;
use zoo_graph::{
    Layout, TensorType,
    ops::{Pad, Slice, Transpose},
};
use zoo_kernels::{Blocked, channels, pad as kernel, rows::copy_box, transpose as axes};

/// The position of a map within a larger one.
#[derive(Clone, Copy)]
pub(super) enum Within {
    /// On all channels, this far from the edges.
    Margin(kernel::Margin),
    /// On all pixels, from this channel on.
    Channels(usize),
}

/// The position of a map within a blocked one, if it only omits pixels or channels; `before` and `after` are the
/// omitted elements per axis.
pub(super) fn within(before: &[usize], after: &[usize]) -> Option<Within> {
    match (before, after) {
        ([0, 0, top, left], [0, 0, bottom, right]) => {
            Some(Within::Margin(kernel::Margin { top: *top, bottom: *bottom, left: *left, right: *right }))
        }
        ([0, first, 0, 0], [0, _, 0, 0]) => Some(Within::Channels(*first)),
        _ => None,
    }
}

/// The elements after a slice, per axis.
pub(super) fn after(op: &Slice, whole: &TensorType) -> Vec<usize> {
    whole.shape.iter().zip(op.start.iter().zip(&op.size)).map(|(n, (b, s))| n - b - s).collect()
}

pub(super) fn pad(within: Within, mut call: Call<'_>) -> Result<(), KernelError> {
    let (inner, padded, x) = (call.map(0)?, call.result_map(0)?, call.operand(0)?);
    let [y] = call.results()?;
    match within {
        Within::Margin(margin) => kernel::pad(inner, margin, x, y),
        Within::Channels(first) => channels::slice_channels_gradient(inner, x, first, padded, y),
    }
    Ok(())
}

pub(super) fn slice(within: Within, mut call: Call<'_>) -> Result<(), KernelError> {
    let (whole, part, x) = (call.map(0)?, call.result_map(0)?, call.operand(0)?);
    let [y] = call.results()?;
    match within {
        Within::Margin(margin) => kernel::crop(part, margin, x, y),
        Within::Channels(first) => channels::slice_channels(whole, x, first, part, y),
    }
    Ok(())
}

/// Concatenates blocked maps along the channels.
pub(super) fn concat(mut call: Call<'_>) -> Result<(), KernelError> {
    let joined = call.result_map(0)?;
    let parts = (0..call.operands.len()).map(|i| Ok((call.map(i)?, call.operand(i)?)));
    let parts = parts.collect::<Result<Vec<(Blocked, &[f32])>, KernelError>>()?;
    channels::concat_channels(&parts, joined, call.results[0]);
    Ok(())
}

/// Splits a blocked map along the channels.
pub(super) fn split(mut call: Call<'_>) -> Result<(), KernelError> {
    let (whole, x) = (call.map(0)?, call.operand(0)?);
    let mut first = 0;
    for i in 0..call.results.len() {
        let part = call.result_map(i)?;
        channels::slice_channels(whole, x, first, part, call.results[i]);
        first += part.c;
    }
    Ok(())
}

pub(super) fn pad_rows(op: &Pad, mut call: Call<'_>) -> Result<(), KernelError> {
    let (x, from, to) = (call.operand(0)?, &call.operand_types[0].shape, &call.result_types[0].shape);
    let [y] = call.results()?;
    y.fill(0.0);
    copy_box(from, from, &vec![0; from.len()], x, to, &op.before, y);
    Ok(())
}

pub(super) fn slice_rows(op: &Slice, mut call: Call<'_>) -> Result<(), KernelError> {
    let (x, from, to) = (call.operand(0)?, &call.operand_types[0].shape, &call.result_types[0].shape);
    let [y] = call.results()?;
    copy_box(to, from, &op.start, x, to, &vec![0; to.len()], y);
    Ok(())
}

/// Concatenates row-major tensors along an axis.
pub(super) fn concat_rows(axis: usize, mut call: Call<'_>) -> Result<(), KernelError> {
    let whole = &call.result_types[0].shape;
    let mut start = vec![0; whole.len()];
    for i in 0..call.operands.len() {
        let (x, part) = (call.operand(i)?, &call.operand_types[i].shape);
        copy_box(part, part, &vec![0; part.len()], x, whole, &start, call.results[0]);
        start[axis] += part[axis];
    }
    Ok(())
}

/// Splits a row-major tensor along an axis.
pub(super) fn split_rows(axis: usize, mut call: Call<'_>) -> Result<(), KernelError> {
    let (x, whole) = (call.operand(0)?, &call.operand_types[0].shape);
    let mut start = vec![0; whole.len()];
    for (y, ty) in call.results.iter_mut().zip(&call.result_types) {
        copy_box(&ty.shape, whole, &start, x, &ty.shape, &vec![0; whole.len()], y);
        start[axis] += ty.shape[axis];
    }
    Ok(())
}

pub(super) fn transpose(op: &Transpose, mut call: Call<'_>) -> Result<(), KernelError> {
    let (x, shape) = (call.operand(0)?, &call.operand_types[0].shape);
    let [y] = call.results()?;
    axes::transpose(shape, &op.permutation, x, y);
    Ok(())
}

pub(super) fn reshape(mut call: Call<'_>) -> Result<(), KernelError> {
    if let Some(x) = call.apart(0) {
        let [y] = call.results()?;
        y.copy_from_slice(x);
    }
    Ok(())
}

pub(super) fn trans_data(mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, x, from, to) = (call.isa, call.operand(0)?, call.operand_types[0], call.result_types[0]);
    let y = &mut call.results[0];
    match (from.layout, to.layout) {
        (_, Layout::Plain) => to_plain(isa, from, x, y),
        (Layout::Plain, _) => from_plain(isa, to, x, y),
        _ => {
            let mut plain = vec![0.0; from.shape.numel()];
            to_plain(isa, from, x, &mut plain);
            from_plain(isa, to, &plain, y);
        }
    }
    Ok(())
}

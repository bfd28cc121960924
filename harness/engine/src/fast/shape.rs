//! Operators that move elements without computing.

use super::{
    call::Call,
    fallback,
    plain::{from_plain, to_plain},
};
use crate::KernelError;
use zoo_graph::{
    Layout,
    ops::{Concat, Pad, Slice},
};
use zoo_kernels::{Blocked, channels, pad as kernel};

pub(super) fn pad(op: &Pad, mut call: Call<'_>) -> Result<(), KernelError> {
    let (inner, padded) = (call.map(0)?, call.result_map(0)?);
    let x = call.operand(0)?;
    match (margin(&op.before, &op.after), (op.before[1], op.before[0] + op.after[0])) {
        (Some(margin), _) => kernel::pad(inner, margin, x, call.results[0]),
        (None, (first, 0)) if inner.pixels() == padded.pixels() => {
            channels::slice_channels_gradient(inner, x, first, padded, call.results[0]);
        }
        _ => return fallback::run(&op.clone().into(), call),
    }
    Ok(())
}

pub(super) fn slice(op: &Slice, mut call: Call<'_>) -> Result<(), KernelError> {
    let (whole, part) = (call.map(0)?, call.result_map(0)?);
    let x = call.operand(0)?;
    let sizes = [whole.n, whole.c, whole.h, whole.w];
    let after: Vec<usize> = sizes.iter().zip(op.start.iter().zip(&op.size)).map(|(n, (b, s))| n - b - s).collect();
    match (margin(&op.start, &after), part.n == whole.n && part.pixels() == whole.pixels()) {
        (Some(margin), _) => kernel::crop(part, margin, x, call.results[0]),
        (None, true) => channels::slice_channels(whole, x, op.start[1], part, call.results[0]),
        (None, false) => return fallback::run(&op.clone().into(), call),
    }
    Ok(())
}

/// Rows and columns around a map, if nothing else is added or taken.
fn margin(before: &[usize], after: &[usize]) -> Option<kernel::Margin> {
    match (before, after) {
        ([0, 0, top, left], [0, 0, bottom, right]) => {
            Some(kernel::Margin { top: *top, bottom: *bottom, left: *left, right: *right })
        }
        _ => None,
    }
}

pub(super) fn concat(op: &Concat, mut call: Call<'_>) -> Result<(), KernelError> {
    if op.axis != 1 {
        return fallback::run(&op.clone().into(), call);
    }
    let joined = call.result_map(0)?;
    let parts = (0..call.operands.len()).map(|i| Ok((call.map(i)?, call.operand(i)?)));
    let parts = parts.collect::<Result<Vec<(Blocked, &[f32])>, KernelError>>()?;
    channels::concat_channels(&parts, joined, call.results[0]);
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

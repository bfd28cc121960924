//! The rows of tokens by expert, and back.

use super::call::Call;
use crate::KernelError;
use crate::routing::Rows;
use rayon::prelude::*;
use zoo_graph::ops::{Combine, Dispatch};

/// Elements of a task at least.
const GRAIN: usize = 1 << 14;

/// Rows of a matrix, in parallel: `write(index, row)`.
fn by_rows(values: &mut [f32], width: usize, write: impl Fn(usize, &mut [f32]) + Sync) {
    let width = width.max(1);
    let rows = values.par_chunks_mut(width).with_min_len(GRAIN.div_ceil(width));
    rows.enumerate().for_each(|(index, row)| write(index, row));
}

/// The rows of a routing, the `place`-th operand of a call.
pub(super) fn rows(call: &Call<'_>, place: usize, top: usize) -> Result<(Rows, [usize; 2]), KernelError> {
    let weights = call.operand(place)?;
    let shape = call.operand_types.get(place).and_then(|ty| ty.shape[..].try_into().ok());
    let [tokens, experts] = shape.ok_or(KernelError::Operand { place, expected: "a routing" })?;
    Ok((Rows::of(place, [tokens, experts], top, |at| weights[at] != 0.0)?, [tokens, experts]))
}

/// Number of columns of the `i`-th operand.
pub(super) fn width(call: &Call<'_>, i: usize) -> usize {
    call.operand_types.get(i).and_then(|ty| ty.shape.last()).copied().unwrap_or(0)
}

pub(super) fn dispatch(op: &Dispatch, mut call: Call<'_>) -> Result<(), KernelError> {
    let (x, (rows, _), width) = (call.operand(0)?, rows(&call, 1, op.top)?, width(&call, 0));
    let [y] = call.results()?;
    by_rows(y, width, |row, y| match rows.tokens().get(row) {
        Some(token) => y.copy_from_slice(&x[token * width..][..width]),
        None => y.fill(0.0),
    });
    Ok(())
}

pub(super) fn combine(op: &Combine, mut call: Call<'_>) -> Result<(), KernelError> {
    let (x, weights, width) = (call.operand(0)?, call.operand(1)?, width(&call, 0));
    let (rows, [tokens, experts]) = rows(&call, 1, op.top)?;
    let of_tokens = rows.of_tokens(tokens);
    let isa = call.isa;
    let [y] = call.results()?;
    by_rows(y, width, |token, y| {
        y.fill(0.0);
        for (row, expert) in &of_tokens[token] {
            let weight = if op.weighted { weights[token * experts + expert] } else { 1.0 };
            let x = &x[row * width..][..width];
            isa.run(|| y.iter_mut().zip(x).for_each(|(y, x)| *y += x * weight));
        }
    });
    Ok(())
}

pub(super) fn combine_gradient(mut call: Call<'_>) -> Result<(), KernelError> {
    let (x, weights, dy) = (call.operand(0)?, call.operand(1)?, call.operand(2)?);
    let width = width(&call, 0);
    let all = call.operand_types[0].shape[0];
    let top = all.checked_div(call.operand_types[1].shape[0]).unwrap_or(0);
    let (rows, [tokens, experts]) = rows(&call, 1, top)?;
    let (of_tokens, experts_of) = (rows.of_tokens(tokens), rows.experts());
    let isa = call.isa;
    let [dx, dw] = call.results()?;
    by_rows(dx, width, |row, dx| match rows.tokens().get(row).zip(experts_of.get(row)) {
        Some((token, expert)) => {
            let (weight, dy) = (weights[token * experts + expert], &dy[token * width..][..width]);
            isa.run(|| dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx = dy * weight));
        }
        None => dx.fill(0.0),
    });
    by_rows(dw, experts, |token, dw| {
        dw.fill(0.0);
        for (row, expert) in &of_tokens[token] {
            let terms = x[row * width..][..width].iter().zip(&dy[token * width..][..width]);
            dw[*expert] = terms.map(|(x, dy)| f64::from(*x) * f64::from(*dy)).sum::<f64>() as f32;
        }
    });
    Ok(())
}

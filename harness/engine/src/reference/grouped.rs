//! Products of groups of rows, each with a matrix of its own.

use super::routing::rows;
use crate::KernelError;
use crate::elements::{Elements, by_chunks};
use candle_core::{FloatDType, Tensor};
use zoo_graph::ops::{GroupedMatMul, GroupedMatMulWeights};

/// Each row times the matrix of its expert.
pub(super) fn product<T: FloatDType>(
    op: &GroupedMatMul,
    [x, weights, routing]: [&Tensor; 3],
) -> Result<Tensor, KernelError> {
    let ((all, k), (_, first, second)) = (x.dims2()?, weights.dims3()?);
    let n = if op.transpose { first } else { second };
    let experts = rows::<T>(2, routing, op.top)?.experts();
    let (opened, matrices) = (Elements::of(x)?, Elements::of(weights)?);
    let (values, matrices) = (opened.slice::<T>()?, matrices.slice::<T>()?);
    Ok(by_chunks::<T>(&[all, n], n, |row, y| {
        let Some(expert) = experts.get(row) else { return };
        let (x, matrix) = (&values[row * k..][..k], &matrices[expert * k * n..][..k * n]);
        for (column, y) in y.iter_mut().enumerate() {
            let factor = |at: usize| if op.transpose { matrix[column * k + at] } else { matrix[at * n + column] };
            let terms = x.iter().enumerate().map(|(at, x)| x.to_f64() * factor(at).to_f64());
            *y = T::from_f64(terms.sum());
        }
    })?)
}

/// For each expert, the sum of the outer products of its rows.
pub(super) fn weights<T: FloatDType>(
    op: &GroupedMatMulWeights,
    [x, dy, routing]: [&Tensor; 3],
) -> Result<Tensor, KernelError> {
    let ((_, k), (_, n), (_, experts)) = (x.dims2()?, dy.dims2()?, routing.dims2()?);
    let rows = rows::<T>(2, routing, op.top)?;
    let (opened, gradients) = (Elements::of(x)?, Elements::of(dy)?);
    let (values, gradients) = (opened.slice::<T>()?, gradients.slice::<T>()?);
    // The matrix has a row for each element of `left`.
    let ((left, height), (right, width)) =
        if op.transpose { ((gradients, n), (values, k)) } else { ((values, k), (gradients, n)) };
    Ok(by_chunks::<T>(&[experts, height, width], width, |line, y| {
        let (expert, at) = (line / height, line % height);
        for (column, y) in y.iter_mut().enumerate() {
            let rows = rows.groups()[expert].clone();
            let terms = rows.map(|row| left[row * height + at].to_f64() * right[row * width + column].to_f64());
            *y = T::from_f64(terms.sum());
        }
    })?)
}

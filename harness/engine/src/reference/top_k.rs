//! The largest elements of each row.

use crate::KernelError;
use crate::elements::{Elements, by_chunks};
use candle_core::{FloatDType, Tensor};
use zoo_graph::ops::TopK;

/// 1 for the largest elements of each row, the first ones of equal elements; NaN counts as the largest.
pub(super) fn top_k<T: FloatDType>(op: &TopK, [x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let row = x.dims().last().copied().unwrap_or(1).max(1);
    let opened = Elements::of(x)?;
    let values = opened.slice::<T>()?;
    Ok(by_chunks::<T>(x.dims(), row, |part, y| {
        let x = &values[part * row..][..row];
        let mut order: Vec<usize> = (0..row).collect();
        // Stable, so that the first of equal elements stays in front.
        order.sort_by(|a, b| {
            let [a, b] = [x[*a].to_f64(), x[*b].to_f64()];
            b.is_nan().cmp(&a.is_nan()).then(b.partial_cmp(&a).unwrap_or(std::cmp::Ordering::Equal))
        });
        order[..op.count].iter().for_each(|chosen| y[*chosen] = T::from_f64(1.0));
    })?)
}

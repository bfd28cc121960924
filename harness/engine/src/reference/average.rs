//! Average pools.

use crate::elements::{Elements, by_chunks};
use crate::{KernelError, error::MAP};
use candle_core::{FloatDType, Tensor};
use std::ops::Range;
use zoo_graph::ops::{AdaptiveAvgPool, AdaptiveAvgPoolGrad, AvgPool, AvgPoolGrad, adaptive_range};

/// A window along one axis: the positions inside the map, and the divisor.
type Span = (Range<usize>, usize);

/// Mean over each window.
pub(super) fn pool<T: FloatDType>(op: &AvgPool, [x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let (_, _, h, w) = x.dims4()?;
    let [oh, ow] = output(op, h, w)?;
    mean::<T>(x, &spans(oh, |i| op.span(i, 0, h)), &spans(ow, |i| op.span(i, 1, w)))
}

/// Distributes the gradient of each window over its elements.
pub(super) fn pool_grad<T: FloatDType>(op: &AvgPoolGrad, [dy]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let (_, _, oh, ow) = dy.dims4()?;
    let [.., h, w] = op.input[..] else { return Err(KernelError::Result { place: 0, expected: MAP }) };
    let pool = &op.pool;
    mean_grad::<T>(dy, [h, w], &spans(oh, |i| pool.span(i, 0, h)), &spans(ow, |i| pool.span(i, 1, w)))
}

/// Mean over windows that cover the whole map.
pub(super) fn adaptive<T: FloatDType>(op: &AdaptiveAvgPool, [x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let (_, _, h, w) = x.dims4()?;
    mean::<T>(x, &adaptive_spans(op.out[0], h), &adaptive_spans(op.out[1], w))
}

/// Distributes the gradient of each window over its elements.
pub(super) fn adaptive_grad<T: FloatDType>(
    op: &AdaptiveAvgPoolGrad,
    [dy]: [&Tensor; 1],
) -> Result<Tensor, KernelError> {
    let [.., h, w] = op.input[..] else { return Err(KernelError::Result { place: 0, expected: MAP }) };
    mean_grad::<T>(dy, [h, w], &adaptive_spans(op.pool.out[0], h), &adaptive_spans(op.pool.out[1], w))
}

fn output(op: &AvgPool, h: usize, w: usize) -> Result<[usize; 2], KernelError> {
    op.window.output(h, w).map_err(|e| KernelError::Candle(candle_core::Error::Msg(e.to_string())))
}

fn spans(out: usize, span: impl Fn(usize) -> Span) -> Vec<Span> {
    (0..out).map(span).collect()
}

fn adaptive_spans(out: usize, n: usize) -> Vec<Span> {
    spans(out, |i| (adaptive_range(i, out, n), adaptive_range(i, out, n).len()))
}

fn mean<T: FloatDType>(x: &Tensor, rows: &[Span], columns: &[Span]) -> Result<Tensor, KernelError> {
    let (n, c, h, w) = x.dims4()?;
    let x = Elements::of(x)?;
    let x = x.slice::<T>()?;
    Ok(by_chunks::<T>(&[n, c, rows.len(), columns.len()], rows.len() * columns.len(), |plane, y| {
        let x = &x[plane * h * w..][..h * w];
        let windows = rows.iter().flat_map(|row| columns.iter().map(move |column| (row, column)));
        for (y, ((rows, height), (columns, width))) in y.iter_mut().zip(windows) {
            let taps = rows.clone().flat_map(|i| &x[i * w..][columns.clone()]);
            *y = T::from_f64(taps.map(|x| x.to_f64()).sum::<f64>() / (height * width) as f64);
        }
    })?)
}

fn mean_grad<T: FloatDType>(
    dy: &Tensor,
    [h, w]: [usize; 2],
    rows: &[Span],
    columns: &[Span],
) -> Result<Tensor, KernelError> {
    let (n, c, oh, ow) = dy.dims4()?;
    let dy = Elements::of(dy)?;
    let dy = dy.slice::<T>()?;
    Ok(by_chunks::<T>(&[n, c, h, w], h * w, |plane, dx| {
        let mut sums = vec![0.0; h * w];
        let windows = rows.iter().flat_map(|row| columns.iter().map(move |column| (row, column)));
        for (dy, ((rows, height), (columns, width))) in dy[plane * oh * ow..].iter().zip(windows) {
            let share = dy.to_f64() / (height * width) as f64;
            for i in rows.clone() {
                sums[i * w..][columns.clone()].iter_mut().for_each(|sum| *sum += share);
            }
        }
        dx.iter_mut().zip(sums).for_each(|(dx, sum)| *dx = T::from_f64(sum));
    })?)
}

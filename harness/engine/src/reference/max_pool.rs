//! Maximum pool.

use crate::KernelError;
use crate::elements::{Elements, by_chunks};
use candle_core::{FloatDType, Tensor};
use std::{iter::StepBy, ops::Range};
use zoo_graph::ops::Window;

/// The maximum of each window. NaN takes precedence; padding is never selected.
pub(super) fn forward<T: FloatDType>(window: &Window, [x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let (n, c, h, w) = x.dims4()?;
    let [oh, ow] = window.output(h, w).map_err(|e| KernelError::Candle(candle_core::Error::Msg(e.to_string())))?;
    let x = Elements::of(x)?;
    let x = x.slice::<T>()?;
    Ok(by_chunks::<T>(&[n, c, oh, ow], oh * ow, |plane, y| {
        let x = &x[plane * h * w..][..h * w];
        for (i, y) in y.iter_mut().enumerate() {
            let greatest = greatest(window, x, [h, w], [i / ow, i % ow]);
            *y = greatest.map_or(T::from_f64(f64::NEG_INFINITY), |at| x[at]);
        }
    })?)
}

/// Adds the gradient of each window to its first maximum. The maxima are searched again in the input, so that nothing
/// is stored between forward and backward.
pub(super) fn grad<T: FloatDType>(window: &Window, [x, _, dy]: [&Tensor; 3]) -> Result<Tensor, KernelError> {
    let (n, c, h, w) = x.dims4()?;
    let (_, _, oh, ow) = dy.dims4()?;
    let (x, dy) = (Elements::of(x)?, Elements::of(dy)?);
    let (x, dy) = (x.slice::<T>()?, dy.slice::<T>()?);
    Ok(by_chunks::<T>(&[n, c, h, w], h * w, |plane, dx| {
        let x = &x[plane * h * w..][..h * w];
        let mut sums = vec![0.0; h * w];
        for (i, dy) in dy[plane * oh * ow..][..oh * ow].iter().enumerate() {
            if let Some(at) = greatest(window, x, [h, w], [i / ow, i % ow]) {
                sums[at] += dy.to_f64();
            }
        }
        dx.iter_mut().zip(sums).for_each(|(dx, sum)| *dx = T::from_f64(sum));
    })?)
}

/// Index in the plane of the first maximum of a window; `None` if it contains only padding.
fn greatest<T: FloatDType>(window: &Window, x: &[T], [h, w]: [usize; 2], [oi, oj]: [usize; 2]) -> Option<usize> {
    let rows = inside(window, 0, oi, h);
    let columns = inside(window, 1, oj, w);
    let mut best: Option<(usize, T)> = None;
    for row in rows {
        for at in columns.clone().map(|column| row * w + column) {
            let value = x[at];
            let is_nan = value.partial_cmp(&value).is_none();
            if best.is_none_or(|(_, best)| value > best || is_nan) {
                best = Some((at, value));
            }
        }
    }
    best.map(|(at, _)| at)
}

/// Positions that the taps of an output read along an axis with `pixels` pixels, without the padding.
fn inside(window: &Window, axis: usize, output: usize, pixels: usize) -> StepBy<Range<usize>> {
    let (dilation, pad) = (window.dilation[axis].max(1), window.pad[2 * axis]);
    let first = output * window.stride[axis];
    // The first tap that is not before the map, and the end of the last one; both include the padding.
    let start = first + pad.saturating_sub(first).div_ceil(dilation) * dilation;
    let end = (first + (window.kernel[axis] - 1) * dilation + 1).min(pad + pixels);
    (start.max(pad) - pad..end.saturating_sub(pad)).step_by(dilation)
}

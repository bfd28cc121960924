//! Maximum pool.

use crate::KernelError;
use crate::elements::{Elements, by_chunks};
use candle_core::{FloatDType, Tensor};
use zoo_graph::ops::Window;

/// The maximum of each window; a NaN wins, padding never does.
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

/// Gives each window's gradient to its first maximum. The maxima are found again in the input, which costs no memory
/// between the two directions.
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
    let mut best: Option<usize> = None;
    for r in 0..window.kernel[0] {
        let Some(i) = inside(oi * window.stride[0] + r * window.dilation[0], window.pad[0], h) else { continue };
        for s in 0..window.kernel[1] {
            let Some(j) = inside(oj * window.stride[1] + s * window.dilation[1], window.pad[2], w) else { continue };
            let at = i * w + j;
            let is_nan = x[at].partial_cmp(&x[at]).is_none();
            if best.is_none_or(|best| x[at] > x[best] || is_nan) {
                best = Some(at);
            }
        }
    }
    best
}

/// The position in a map of extent `n` of a position in the padded map.
fn inside(padded: usize, pad: usize, n: usize) -> Option<usize> {
    padded.checked_sub(pad).filter(|i| *i < n)
}

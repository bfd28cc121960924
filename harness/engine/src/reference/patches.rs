//! Windows of a map as a batch of maps.

use crate::elements::{Elements, by_chunks};
use crate::{KernelError, error::MAP};
use candle_core::{FloatDType, Tensor};
use zoo_graph::ops::{ExtractPatches, ExtractPatchesGrad, Window};

/// The rows of a window at output row `i` that are inside the map, each with its row in the map. For `axis` 1:
/// columns.
fn inside(window: &Window, axis: usize, i: usize, size: usize) -> impl Iterator<Item = (usize, usize)> {
    let (start, pad) = (i * window.stride[axis], window.pad[2 * axis]);
    (0..window.kernel[axis]).filter_map(move |tap| Some((tap, (start + tap).checked_sub(pad).filter(|i| *i < size)?)))
}

/// All windows.
pub(super) fn forward<T: FloatDType>(op: &ExtractPatches, [x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let (n, c, h, w) = x.dims4()?;
    let [oh, ow] = op.window.output(h, w).map_err(|e| candle_core::Error::Msg(e.to_string()))?;
    let [kh, kw] = op.window.kernel;
    let x = Elements::of(x)?;
    let x = x.slice::<T>()?;
    Ok(by_chunks::<T>(&[n * oh * ow, c, kh, kw], c * kh * kw, |patch, out| {
        let (image, place) = (patch / (oh * ow), patch % (oh * ow));
        for (channel, out) in out.chunks_exact_mut(kh * kw).enumerate() {
            let x = &x[(image * c + channel) * h * w..][..h * w];
            for (r, i) in inside(&op.window, 0, place / ow, h) {
                for (s, j) in inside(&op.window, 1, place % ow, w) {
                    out[r * kw + s] = x[i * w + j];
                }
            }
        }
    })?)
}

/// For each pixel, the sum over the windows that contain it.
pub(super) fn grad<T: FloatDType>(op: &ExtractPatchesGrad, [dy]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let &[n, c, h, w] = &op.input[..] else { return Err(KernelError::Result { place: 0, expected: MAP }) };
    let window = &op.patches.window;
    let [oh, ow] = window.output(h, w).map_err(|e| candle_core::Error::Msg(e.to_string()))?;
    let [kh, kw] = window.kernel;
    let dy = Elements::of(dy)?;
    let dy = dy.slice::<T>()?;
    Ok(by_chunks::<T>(&[n, c, h, w], h * w, |plane, out| {
        let (image, channel) = (plane / c, plane % c);
        let mut sums = vec![0.0; h * w];
        for place in 0..oh * ow {
            let dy = &dy[((image * oh * ow + place) * c + channel) * kh * kw..][..kh * kw];
            for (r, i) in inside(window, 0, place / ow, h) {
                for (s, j) in inside(window, 1, place % ow, w) {
                    sums[i * w + j] += dy[r * kw + s].to_f64();
                }
            }
        }
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = T::from_f64(sum));
    })?)
}

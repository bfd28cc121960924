//! Nearest and bilinear interpolation. Pixels without weight are not read: infinity beside a nearest pixel stays there.

use crate::elements::{Elements, by_chunks};
use crate::{KernelError, error::MAP};
use candle_core::{FloatDType, Tensor};
use zoo_graph::ops::{Resize, ResizeGrad, ResizeTap};

/// The map with another height and width.
pub(super) fn forward<T: FloatDType>(op: &Resize, [x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let (n, c, h, w) = x.dims4()?;
    let [oh, ow] = op.out;
    let (rows, columns) = (op.interpolation.taps(h, oh), op.interpolation.taps(w, ow));
    let x = Elements::of(x)?;
    let x = x.slice::<T>()?;
    Ok(by_chunks::<T>(&[n, c, oh, ow], oh * ow, |plane, out| {
        let x = &x[plane * h * w..][..h * w];
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(ow)) {
            for (column, out) in columns.iter().zip(out) {
                let across = |i: usize| between(column, |j| x[i * w + j].to_f64());
                *out = T::from_f64(between(row, across));
            }
        }
    })?)
}

/// The value at a tap, from those of pixels.
fn between(tap: &ResizeTap, at: impl Fn(usize) -> f64) -> f64 {
    match tap.weight {
        0.0 => at(tap.first),
        weight => (1.0 - weight) * at(tap.first) + weight * at(tap.second),
    }
}

/// The pixels of a tap that it reads, with their weights.
fn shares(tap: &ResizeTap) -> impl Iterator<Item = (usize, f64)> {
    [(tap.first, 1.0 - tap.weight), (tap.second, tap.weight)].into_iter().filter(|(_, share)| *share != 0.0)
}

/// The gradient of each input pixel from its readers.
pub(super) fn grad<T: FloatDType>(op: &ResizeGrad, [dy]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let (n, c, oh, ow) = dy.dims4()?;
    let &[_, _, h, w] = &op.input[..] else { return Err(KernelError::Result { place: 0, expected: MAP }) };
    let interpolation = op.resize.interpolation;
    let (rows, columns) = (interpolation.taps(h, oh), interpolation.taps(w, ow));
    let dy = Elements::of(dy)?;
    let dy = dy.slice::<T>()?;
    Ok(by_chunks::<T>(&[n, c, h, w], h * w, |plane, out| {
        let mut sums = vec![0.0; h * w];
        let dy = &dy[plane * oh * ow..][..oh * ow];
        for (row, dy) in rows.iter().zip(dy.chunks_exact(ow)) {
            for (i, down) in shares(row) {
                for (column, dy) in columns.iter().zip(dy) {
                    let g = down * dy.to_f64();
                    shares(column).for_each(|(j, across)| sums[i * w + j] += across * g);
                }
            }
        }
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = T::from_f64(sum));
    })?)
}

//! Local response normalisation.

use crate::KernelError;
use crate::elements::{Elements, by_chunks};
use candle_core::{FloatDType, Tensor};
use std::ops::Range;
use zoo_graph::ops::{Lrn, LrnGrad};

/// `x / (k + alpha / size * sum)^beta`.
pub(super) fn forward<T: FloatDType>(op: &Lrn, [x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let (_, c, h, w) = x.dims4()?;
    let opened = Elements::of(x)?;
    let values = opened.slice::<T>()?;
    let image = c * h * w;
    Ok(by_chunks::<T>(x.dims(), image, |i, y| {
        let x = &values[i * image..][..image];
        let d = denominators(op, c, x);
        for ((y, x), d) in y.iter_mut().zip(x).zip(d) {
            *y = T::from_f64(x.to_f64() * libm::pow(d, -op.beta));
        }
    })?)
}

/// `dy * d^-beta - 2 * alpha * beta / size * x * sum'(dy * x * d^(-beta - 1))`.
pub(super) fn grad<T: FloatDType>(op: &LrnGrad, [x, dy]: [&Tensor; 2]) -> Result<Tensor, KernelError> {
    let lrn = &op.lrn;
    let (_, c, h, w) = x.dims4()?;
    let (opened, dy) = (Elements::of(x)?, Elements::of(dy)?);
    let (values, dy) = (opened.slice::<T>()?, dy.slice::<T>()?);
    let (image, plane) = (c * h * w, h * w);
    let factor = 2.0 * lrn.alpha * lrn.beta / lrn.size as f64;
    Ok(by_chunks::<T>(x.dims(), image, |i, dx| {
        let (x, dy) = (&values[i * image..][..image], &dy[i * image..][..image]);
        let d = denominators(lrn, c, x);
        let through: Vec<f64> =
            (0..image).map(|j| dy[j].to_f64() * x[j].to_f64() * libm::pow(d[j], -lrn.beta - 1.0)).collect();
        for (channel, dx) in dx.chunks_mut(plane.max(1)).enumerate() {
            let sums = plane_sums(&through, plane, covering(lrn.size, channel, c));
            for (p, (dx, sum)) in dx.iter_mut().zip(sums).enumerate() {
                let j = channel * plane + p;
                *dx = T::from_f64(dy[j].to_f64() * libm::pow(d[j], -lrn.beta) - factor * x[j].to_f64() * sum);
            }
        }
    })?)
}

/// `k + alpha / size * sum` for every element of an image.
fn denominators<T: FloatDType>(op: &Lrn, c: usize, x: &[T]) -> Vec<f64> {
    let squares: Vec<f64> = x.iter().map(|x| x.to_f64() * x.to_f64()).collect();
    let plane = x.len() / c.max(1);
    let factor = op.alpha / op.size as f64;
    let planes = (0..c).map(|channel| plane_sums(&squares, plane, covered(op.size, channel, c)));
    planes.flatten().map(|sum| op.k + factor * sum).collect()
}

/// Sum over some planes of an image.
fn plane_sums(image: &[f64], plane: usize, channels: Range<usize>) -> Vec<f64> {
    let mut sums = vec![0.0; plane];
    for channel in channels {
        for (sum, value) in sums.iter_mut().zip(&image[channel * plane..]) {
            *sum += value;
        }
    }
    sums
}

/// The channels in the window of `channel`.
fn covered(size: usize, channel: usize, c: usize) -> Range<usize> {
    channel.saturating_sub(size / 2)..(channel + (size - 1) / 2 + 1).min(c)
}

/// The channels whose windows contain `channel`.
fn covering(size: usize, channel: usize, c: usize) -> Range<usize> {
    channel.saturating_sub((size - 1) / 2)..(channel + size / 2 + 1).min(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_and_their_inverse_agree() {
        for size in 1..7 {
            for (a, b) in (0..9).flat_map(|a| (0..9).map(move |b| (a, b))) {
                assert_eq!(covered(size, a, 9).contains(&b), covering(size, b, 9).contains(&a), "{size} {a} {b}");
            }
        }
        assert_eq!(covered(5, 4, 9), 2..7);
        assert_eq!(covered(4, 4, 9), 2..6, "an even window reaches further back, as PyTorch's");
    }
}

//! Depth-wise cross-correlation of two maps.

use crate::elements::{Elements, by_chunks};
use crate::{KernelError, error::MAP};
use candle_core::{FloatDType, Tensor};
use zoo_graph::ops::DepthwiseCorrelationGrad;

/// Each channel of each sample is correlated with the same channel of the kernel.
pub(super) fn forward<T: FloatDType>([x, k]: [&Tensor; 2]) -> Result<Tensor, KernelError> {
    let ((n, c, h, w), (_, _, kh, kw)) = (x.dims4()?, k.dims4()?);
    let (oh, ow) = (h - kh + 1, w - kw + 1);
    let (x, k) = (Elements::of(x)?, Elements::of(k)?);
    let (x, k) = (x.slice::<T>()?, k.slice::<T>()?);
    Ok(by_chunks::<T>(&[n, c, oh, ow], oh * ow, |plane, out| {
        let (x, k) = (&x[plane * h * w..][..h * w], &k[plane * kh * kw..][..kh * kw]);
        let mut sums = vec![0.0; oh * ow];
        for (tap, k) in k.iter().enumerate() {
            let (k, shift) = (k.to_f64(), tap / kw * w + tap % kw);
            for (i, sums) in sums.chunks_exact_mut(ow).enumerate() {
                let x = &x[shift + i * w..][..ow];
                sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += k * x.to_f64());
            }
        }
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = T::from_f64(sum));
    })?)
}

/// Gradient of the search.
pub(super) fn grad<T: FloatDType>(op: &DepthwiseCorrelationGrad, [dy, k]: [&Tensor; 2]) -> Result<Tensor, KernelError> {
    let ((n, c, oh, ow), (_, _, kh, kw)) = (dy.dims4()?, k.dims4()?);
    let &[_, _, h, w] = &op.input[..] else { return Err(KernelError::Result { place: 0, expected: MAP }) };
    let (dy, k) = (Elements::of(dy)?, Elements::of(k)?);
    let (dy, k) = (dy.slice::<T>()?, k.slice::<T>()?);
    Ok(by_chunks::<T>(&[n, c, h, w], h * w, |plane, out| {
        let (dy, k) = (&dy[plane * oh * ow..][..oh * ow], &k[plane * kh * kw..][..kh * kw]);
        let mut sums = vec![0.0; h * w];
        for (tap, k) in k.iter().enumerate() {
            let (k, shift) = (k.to_f64(), tap / kw * w + tap % kw);
            for (i, dy) in dy.chunks_exact(ow).enumerate() {
                let sums = &mut sums[shift + i * w..][..ow];
                sums.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += k * dy.to_f64());
            }
        }
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = T::from_f64(sum));
    })?)
}

//! Sums of the elements so far along an axis.

use crate::KernelError;
use crate::elements::{Elements, by_chunks};
use candle_core::{FloatDType, Tensor};
use zoo_graph::ops::Cumsum;

/// The sums up to each element, or from it on.
pub(super) fn cumsum<T: FloatDType>(op: &Cumsum, [x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let [extent, inner] = [&x.dims()[op.axis..=op.axis], &x.dims()[op.axis + 1..]].map(|dims| dims.iter().product());
    let opened = Elements::of(x)?;
    let values = opened.slice::<T>()?;
    let whole = extent * inner;
    Ok(by_chunks::<T>(x.dims(), whole, |part, y| {
        let x = &values[part * whole..][..whole];
        for first in 0..inner {
            let mut sum = 0.0;
            for step in 0..extent {
                let at = first + inner * if op.reverse { extent - 1 - step } else { step };
                sum += x[at].to_f64();
                y[at] = T::from_f64(sum);
            }
        }
    })?)
}

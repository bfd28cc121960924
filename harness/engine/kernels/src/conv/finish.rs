//! What is done with the sums of output pixels that have left the registers: bias, moments, ReLU.

use crate::blocked::C0;
use crate::micro::correlate::Moments;
use crate::simd::{Lanes, Simd, pixels, pixels_mut, vectorised};
use std::cell::Cell;

/// Outputs whose moments are summed in f32, as many as a tile of [`crate::micro::correlate`] has.
const SUMMED: usize = 14;

vectorised! {
    /// Finishes the sums of consecutive outputs, `pitch` pixels apart in the destination: bias, moments, ReLU.
    pub(super) fn finish(
        simd, sums: &[f32], to: &mut [f32], pitch: usize, bias: Option<&Lanes>, relu: bool, moments: Option<&mut Moments>,
    ) -> () {
        let sums = pixels(sums);
        let bias = simd.load(bias.unwrap_or(&[0.0; C0]));
        if let Some(moments) = moments {
            sums.chunks(SUMMED).for_each(|sums| collect(simd, moments, sums, bias));
        }
        for (sum, to) in sums.iter().zip(pixels_mut(to).iter().step_by(pitch)) {
            let value = simd.add(simd.load(sum), bias);
            simd.store(if relu { simd.relu(value) } else { value }, to);
        }
    }
}

/// Adds the values of consecutive outputs to the moments of their block.
#[inline(always)]
fn collect<S: Simd>(simd: S, moments: &mut Moments, sums: &[Lanes], bias: S::F32) {
    let lanes = |value: S::F32| {
        let mut lanes = [0.0; C0];
        simd.store(value, Cell::from_mut(&mut lanes));
        lanes
    };
    if moments.count == 0 {
        let total = sums.iter().fold(simd.splat(0.0), |total, sum| simd.add(total, simd.add(simd.load(sum), bias)));
        moments.pivot = lanes(total).map(|total| total / sums.len() as f32);
    }
    let pivot = simd.load(&moments.pivot);
    let (mut sum, mut squares) = (simd.splat(0.0), simd.splat(0.0));
    for value in sums {
        let difference = simd.sub(simd.add(simd.load(value), bias), pivot);
        sum = simd.add(sum, difference);
        squares = simd.mul_add(difference, difference, squares);
    }
    let [sum, squares] = [sum, squares].map(lanes);
    for lane in 0..C0 {
        moments.sum[lane] += f64::from(sum[lane]);
        moments.squares[lane] += f64::from(squares[lane]);
    }
    moments.count += sums.len() as u64;
}

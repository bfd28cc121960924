//! BNTrainingReduce: statistics of a batch, and the running ones.

use super::{Pairs, Sums, map_images};
use crate::{
    Blocked, C0, Isa,
    conv::Statistics,
    parallel,
    planes::expect_len,
    simd::{Lanes, Simd, pixels, vectorised},
};

/// Mean and biased variance of every channel over images and pixels.
///
/// # Panics
/// If a length does not match the shape.
pub fn statistics(isa: Isa, shape: Blocked, x: &[f32], statistics: Statistics<'_>) {
    let Statistics { mean, variance } = statistics;
    expect_len("the input", x.len(), shape.len());
    expect_len("the mean", mean.len(), shape.c);
    expect_len("the variance", variance.len(), shape.c);
    let blocks = parallel::map(shape.c1(), |c1| block_statistics(isa, shape, x, c1));
    for ((means, variances), (mean, variance)) in
        blocks.into_iter().zip(mean.chunks_mut(C0).zip(variance.chunks_mut(C0)))
    {
        mean.copy_from_slice(&means[..mean.len()]);
        variance.copy_from_slice(&variances[..variance.len()]);
    }
}

/// Mean and biased variance of the channels of one block.
pub(super) fn block_statistics(isa: Isa, shape: Blocked, x: &[f32], c1: usize) -> (Lanes, Lanes) {
    let sums = Sums::total(map_images(shape, |n| moments(isa, pixels(&x[shape.plane(n, c1)]))));
    let count = shape.n * shape.pixels();
    let (mut mean, mut variance) = ([0.0; C0], [0.0; C0]);
    for lane in 0..shape.lanes(c1) {
        (mean[lane], variance[lane]) = mean_and_variance(sums.plain[lane], sums.product[lane], count);
    }
    (mean, variance)
}

/// Mean and biased variance of `count` values from their sum and their sum of squares.
///
/// The variance is a difference of two numbers as large as the square of the mean. In f64 that costs less than
/// the rounding of the values to f32 as long as the mean is below 10^4 standard deviations.
fn mean_and_variance(sum: f64, sum_of_squares: f64, count: usize) -> (f32, f32) {
    let mean = sum / count as f64;
    let variance = sum_of_squares / count as f64 - mean * mean;
    // Rounding may leave a negative variance; `max` would also hide the NaN of an infinity.
    (mean as f32, if variance < 0.0 { 0.0 } else { variance as f32 })
}

/// Moves running statistics towards those of a batch of `count` values per channel:
/// `(1 - momentum) * running + momentum * batch`, the batch's variance taken over `count - 1`. Computed in f64 and
/// rounded once, as PyTorch does.
///
/// # Panics
/// If the lengths differ.
pub fn update_running(
    momentum: f64,
    count: usize,
    (mean, variance): (&[f32], &[f32]),
    (running_mean, running_variance): (&mut [f32], &mut [f32]),
) {
    expect_len("the variance", variance.len(), mean.len());
    expect_len("the running mean", running_mean.len(), mean.len());
    expect_len("the running variance", running_variance.len(), mean.len());
    let unbiased = count as f64 / (count as f64 - 1.0);
    let update = |running: &mut [f32], batch: &[f32], factor: f64| {
        for (running, batch) in running.iter_mut().zip(batch) {
            *running = (momentum * factor * f64::from(*batch) + (1.0 - momentum) * f64::from(*running)) as f32;
        }
    };
    update(running_mean, mean, 1.0);
    update(running_variance, variance, unbiased);
}

/// Values and their squares.
#[derive(Clone, Copy)]
struct Squares<'a>(&'a [Lanes]);

impl<S: Simd> Pairs<S> for Squares<'_> {
    #[inline(always)]
    fn at(self, simd: S, pixel: usize) -> (S::F32, S::F32) {
        let x = simd.load(&self.0[pixel]);
        (x, x)
    }
}

vectorised! {
    /// Sums and sums of squares of a plane.
    fn moments(simd, x: &[Lanes]) -> Sums {
        Sums::over(simd, x.len(), Squares(x))
    }
}

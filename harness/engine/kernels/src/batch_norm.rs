//! Batch normalisation of blocked tensors: statistics, normalisation with what is fused behind it, gradients.
//!
//! Source of the formulas: arXiv 1502.03167, `torch.nn.functional.batch_norm`. Sums over a channel are formed in
//! f64 from exact products of f32, plane by plane, and added in the order of the images: neither large means nor the
//! number of threads matter to them.
//!
//! The functions that do a whole direction ([`train`], [`backward`] and its variants) work through one channel block
//! at a time, so that its second reading comes from the cache where the block of all images fits there.

mod forward;
mod gradient;
mod statistics;
mod stored;
#[cfg(test)]
mod tests;

pub use forward::{Fused, normalise, normalise_onto};
pub use gradient::{Gradients, Normalised, Relu, backward, backward_residual, gradient_sums, input_gradient};
pub use statistics::{statistics, update_running};
pub use stored::stored_input_gradient;

use crate::{
    Blocked, C0,
    planes::expect_len,
    simd::{Lanes, Simd},
};
use std::array;

/// Parameters of a normalisation, one value per channel each.
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a> {
    /// Mean to subtract.
    pub mean: &'a [f32],
    /// Biased variance whose root to divide by.
    pub variance: &'a [f32],
    /// Scale.
    pub gamma: &'a [f32],
    /// Shift.
    pub beta: &'a [f32],
    /// Added to the variance.
    pub epsilon: f64,
}

impl Parameters<'_> {
    #[track_caller]
    fn check(&self, shape: Blocked) {
        expect_len("the mean", self.mean.len(), shape.c);
        expect_len("the variance", self.variance.len(), shape.c);
        expect_len("gamma", self.gamma.len(), shape.c);
        expect_len("beta", self.beta.len(), shape.c);
    }

    /// `1 / sqrt(variance + epsilon)`.
    fn inverse_deviation(&self, channel: usize) -> f64 {
        inverse_deviation(self.variance[channel], self.epsilon)
    }

    fn block(&self, c1: usize) -> Block {
        let lane = |values: &[f32]| lanes(c1, values.len(), |c| values[c]);
        Block {
            mean: lane(self.mean),
            scale: lanes(c1, self.gamma.len(), |c| (f64::from(self.gamma[c]) * self.inverse_deviation(c)) as f32),
            shift: lane(self.beta),
        }
    }
}

fn inverse_deviation(variance: f32, epsilon: f64) -> f64 {
    (f64::from(variance) + epsilon).sqrt().recip()
}

/// Values of the channels of block `c1`, zero beyond the last channel.
fn lanes(c1: usize, channels: usize, value: impl Fn(usize) -> f32) -> Lanes {
    array::from_fn(|lane| {
        let c = c1 * C0 + lane;
        if c < channels { value(c) } else { 0.0 }
    })
}

/// Coefficients of one channel block: `y = (x - mean) * scale + shift`. All are zero beyond the last channel, which
/// keeps the tail lanes of every result zero.
#[derive(Clone, Copy)]
struct Block {
    mean: Lanes,
    scale: Lanes,
    shift: Lanes,
}

impl Block {
    /// The coefficients as vectors.
    #[inline(always)]
    fn load<S: Simd>(&self, simd: S) -> Vectors<S> {
        Vectors { mean: simd.load(&self.mean), scale: simd.load(&self.scale), shift: simd.load(&self.shift) }
    }
}

/// [`Block`] in registers.
#[derive(Clone, Copy)]
struct Vectors<S: Simd> {
    mean: S::F32,
    scale: S::F32,
    shift: S::F32,
}

impl<S: Simd> Vectors<S> {
    #[inline(always)]
    fn normalise(self, simd: S, x: S::F32) -> S::F32 {
        simd.mul_add(simd.sub(x, self.mean), self.scale, self.shift)
    }
}

/// Pairs of values per pixel, as [`Sums`] takes them. A trait and not a closure, for only its methods are sure to be
/// inlined into code for the level.
trait Pairs<S: Simd>: Copy {
    fn at(self, simd: S, pixel: usize) -> (S::F32, S::F32);
}

/// Per-lane sums of `a` and of `a * b` over the pairs (a, b) of pixels.
#[derive(Clone, Copy)]
struct Sums {
    plain: [f64; C0],
    product: [f64; C0],
}

impl Sums {
    #[inline(always)]
    fn over<S: Simd>(simd: S, count: usize, pairs: impl Pairs<S>) -> Self {
        let zero = simd.load_f64(&[0.0; C0]);
        let (mut plain, mut product) = (zero, zero);
        for pixel in 0..count {
            let (a, b) = pairs.at(simd, pixel);
            let a = simd.widen(a);
            plain = simd.add_f64(plain, a);
            product = simd.mul_add_f64(a, simd.widen(b), product);
        }
        Self { plain: simd.array_f64(plain), product: simd.array_f64(product) }
    }

    /// The sum of the sums of planes, in their order.
    fn total(planes: impl IntoIterator<Item = Self>) -> Self {
        let zero = Self { plain: [0.0; C0], product: [0.0; C0] };
        planes.into_iter().fold(zero, |total, plane| Self {
            plain: array::from_fn(|lane| total.plain[lane] + plane.plain[lane]),
            product: array::from_fn(|lane| total.product[lane] + plane.product[lane]),
        })
    }
}

/// Runs `task(n)` for all images of a channel block; results in the order of the images.
fn map_images<R: Send>(shape: Blocked, task: impl Fn(usize) -> R + Sync + Send) -> Vec<R> {
    use rayon::prelude::*;
    (0..shape.n).into_par_iter().with_min_len(crate::planes::planes_per_task(shape)).map(task).collect()
}

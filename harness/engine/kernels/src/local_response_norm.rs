//! Local response normalisation across channels of blocked tensors.
//!
//! `y = x * d^-beta` with `d = k + alpha / size * sum of x^2` over `size` channels around each channel, from `size / 2`
//! before it to `(size - 1) / 2` after it. Source: AlexNet (Krizhevsky 2012) section 3.3 in the form of
//! `torch.nn.functional.local_response_norm`.

use crate::{
    Blocked, C0, Isa,
    planes::expect_len,
    simd::{pixels, vectorised},
};
use rayon::prelude::*;

/// Parameters of the normalisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalResponseNorm {
    /// Channels in the window, at least 1.
    pub size: usize,
    /// Weight of the squares.
    pub alpha: f64,
    /// Exponent.
    pub beta: f64,
    /// Constant.
    pub k: f64,
}

/// The normalised tensor. It is NaN where `d` is zero, which takes a `k` of zero, and zeros: 0 / 0, as in PyTorch.
///
/// # Panics
/// If a length does not match the shape, or the window is empty.
pub fn local_response_norm(isa: Isa, shape: Blocked, norm: LocalResponseNorm, x: &[f32], y: &mut [f32]) {
    expect_len("the input", x.len(), shape.len());
    for_each_row(shape, norm, y, |n, h, scratch, y| {
        scratch.gather(shape, x, n, h, |s| &mut s.x);
        normalise(isa, norm, scratch);
        scratch.scatter(shape, y);
    });
}

/// Its gradient: `dx = dy * d^-beta - 2 * alpha * beta / size * x * sum of (dy * x * d^(-beta - 1))` over the channels
/// whose window holds the channel.
///
/// # Panics
/// If a length does not match the shape, or the window is empty.
pub fn local_response_norm_gradient(
    isa: Isa,
    shape: Blocked,
    norm: LocalResponseNorm,
    x: &[f32],
    dy: &[f32],
    dx: &mut [f32],
) {
    expect_len("the input", x.len(), shape.len());
    expect_len("the output gradient", dy.len(), shape.len());
    for_each_row(shape, norm, dx, |n, h, scratch, dx| {
        scratch.gather(shape, x, n, h, |s| &mut s.x);
        scratch.gather(shape, dy, n, h, |s| &mut s.y);
        differentiate(isa, norm, scratch);
        scratch.scatter(shape, dx);
    });
}

/// Runs `task(n, h, scratch, rows)` for every row of pixels; `rows` has that row of every channel block.
fn for_each_row(
    shape: Blocked,
    norm: LocalResponseNorm,
    y: &mut [f32],
    task: impl Fn(usize, usize, &mut Scratch, Vec<&mut [f32]>) + Sync + Send,
) {
    expect_len("the result", y.len(), shape.len());
    assert!(norm.size > 0, "a window of no channels");
    if shape.is_empty() {
        return;
    }
    let mut rows: Vec<Vec<&mut [f32]>> = (0..shape.n * shape.h).map(|_| Vec::with_capacity(shape.c1())).collect();
    for (i, row) in y.chunks_exact_mut(shape.w * C0).enumerate() {
        rows[i / (shape.c1() * shape.h) * shape.h + i % shape.h].push(row);
    }
    rows.into_par_iter().enumerate().for_each_init(
        || Scratch::new(shape, norm),
        |scratch, (i, rows)| task(i / shape.h, i % shape.h, scratch, rows),
    );
}

/// A row of pixels with the channels of each pixel one after another, then `size - 1` zeros: so windows never reach
/// into the next pixel, and all loops run over the row as a whole.
struct Scratch {
    /// Values per pixel.
    stride: usize,
    /// Those of them that are channels.
    channels: usize,
    x: Vec<f32>,
    /// Output gradient, then result.
    y: Vec<f32>,
    /// `d`, then other sums.
    sums: Vec<f32>,
    /// What is summed over windows, after as many zeros as the window reaches back.
    padded: Vec<f32>,
}

impl Scratch {
    fn new(shape: Blocked, norm: LocalResponseNorm) -> Self {
        let stride = shape.c1() * C0 + norm.size - 1;
        let zeros = || vec![0.0; shape.w * stride];
        let padded = vec![0.0; shape.w * stride + norm.size - 1];
        Self { stride, channels: shape.c, x: zeros(), y: zeros(), sums: zeros(), padded }
    }

    /// Fills one of the buffers with row `h` of image `n`.
    fn gather(&mut self, shape: Blocked, x: &[f32], n: usize, h: usize, buffer: impl Fn(&mut Self) -> &mut [f32]) {
        let stride = self.stride;
        let buffer = buffer(self);
        // A NaN of the row before may have reached what lies between the pixels.
        buffer.fill(0.0);
        for c1 in 0..shape.c1() {
            let row = &pixels(&x[shape.plane(n, c1)])[h * shape.w..][..shape.w];
            for (channels, x) in buffer.chunks_exact_mut(stride).zip(row) {
                channels[c1 * C0..][..C0].copy_from_slice(x);
            }
        }
    }

    /// Writes the result to the row of every block; lanes beyond the last channel become zero even next to a NaN.
    fn scatter(&self, shape: Blocked, rows: Vec<&mut [f32]>) {
        for (c1, row) in rows.into_iter().enumerate() {
            let lanes = shape.lanes(c1);
            for (channels, y) in self.y.chunks_exact(self.stride).zip(row.as_chunks_mut::<C0>().0) {
                y.copy_from_slice(&channels[c1 * C0..][..C0]);
                y[lanes..].fill(0.0);
            }
        }
    }
}

impl LocalResponseNorm {
    /// `d` of a row, to `sums`.
    #[inline(always)]
    fn divisors(&self, scratch: &mut Scratch) {
        let Scratch { x, sums, padded, .. } = scratch;
        let before = self.size / 2;
        padded[..before].fill(0.0);
        let (squares, after) = padded[before..].split_at_mut(x.len());
        after.fill(0.0);
        for (square, x) in squares.iter_mut().zip(x.iter()) {
            *square = x * x;
        }
        self.window_sums(padded, sums);
        let (alpha, k) = ((self.alpha / self.size as f64) as f32, self.k as f32);
        for d in sums {
            *d = k + alpha * *d;
        }
    }

    /// Sums over `size` neighbours, the first one from the first of `padded` on.
    #[inline(always)]
    fn window_sums(&self, padded: &[f32], sums: &mut [f32]) {
        sums.copy_from_slice(&padded[..sums.len()]);
        for offset in 1..self.size {
            for (sum, value) in sums.iter_mut().zip(&padded[offset..]) {
                *sum += value;
            }
        }
    }

    /// Replaces every `d` by `d^-beta`.
    #[inline(always)]
    fn raise(&self, d: &mut [f32]) {
        if self.beta == 0.75 {
            // The exponent that everyone uses needs no logarithm.
            for d in d {
                let root = d.sqrt();
                *d = 1.0 / (root * root.sqrt());
            }
        } else {
            for d in d {
                *d = libm::pow(f64::from(*d), -self.beta) as f32;
            }
        }
    }
}

vectorised! {
    /// From `x` to `y`.
    fn normalise(_simd, norm: LocalResponseNorm, scratch: &mut Scratch) -> () {
        norm.divisors(scratch);
        norm.raise(&mut scratch.sums);
        for (y, (x, power)) in scratch.y.iter_mut().zip(scratch.x.iter().zip(&scratch.sums)) {
            *y = x * power;
        }
    }
}

vectorised! {
    /// From `x` and the output gradient in `y` to the input gradient in `y`.
    fn differentiate(_simd, norm: LocalResponseNorm, scratch: &mut Scratch) -> () {
        norm.divisors(scratch);
        let Scratch { stride, channels, x, y, sums, padded } = scratch;
        // The windows that hold a channel mirror the window of that channel.
        let before = (norm.size - 1) / 2;
        padded[..before].fill(0.0);
        let (terms, after) = padded[before..].split_at_mut(x.len());
        after.fill(0.0);
        for (term, (x, d)) in terms.iter_mut().zip(x.iter().zip(sums.iter())) {
            *term = x / d;
        }
        norm.raise(sums);
        for (term, (y, power)) in terms.iter_mut().zip(y.iter_mut().zip(sums.iter())) {
            *y *= power;
            *term *= *y;
        }
        // Between the pixels, where 0 / 0 is possible, nothing is summed.
        for terms in terms.chunks_exact_mut(*stride) {
            terms[*channels..].fill(0.0);
        }
        norm.window_sums(padded, sums);
        let factor = (2.0 * norm.alpha * norm.beta / norm.size as f64) as f32;
        for (y, (x, sum)) in y.iter_mut().zip(x.iter().zip(sums.iter())) {
            *y -= factor * x * sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{blocked, expect_blocked, position, same_bits_on_any_threads};

    fn norms() -> [LocalResponseNorm; 4] {
        [(5, 1e-4, 0.75, 1.0), (5, 2.0, 0.75, 2.0), (4, 0.7, 0.6, 1.5), (1, 1.0, 0.5, 0.5)]
            .map(|(size, alpha, beta, k)| LocalResponseNorm { size, alpha, beta, k })
    }

    /// The formula channel by channel: output, and gradient of `dy`.
    fn reference(shape: Blocked, norm: LocalResponseNorm, x: &[f64], dy: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let LocalResponseNorm { size, alpha, beta, k } = norm;
        let at = |i: usize, c: usize| {
            let (image, pixel) = (i / (shape.c * shape.pixels()), i % shape.pixels());
            (image * shape.c + c) * shape.pixels() + pixel
        };
        let channel = |i: usize| i / shape.pixels() % shape.c;
        let window = |c: usize| c.saturating_sub(size / 2)..(c + (size - 1) / 2 + 1).min(shape.c);
        let d: Vec<f64> = (0..x.len())
            .map(|i| k + alpha / size as f64 * window(channel(i)).map(|c| x[at(i, c)].powi(2)).sum::<f64>())
            .collect();
        let y = (0..x.len()).map(|i| x[i] * d[i].powf(-beta)).collect();
        let mut dx: Vec<f64> = (0..x.len()).map(|i| dy[i] * d[i].powf(-beta)).collect();
        for i in 0..x.len() {
            for c in window(channel(i)) {
                let j = at(i, c);
                dx[j] -= dy[i] * x[i] * beta * d[i].powf(-beta - 1.0) * alpha / size as f64 * 2.0 * x[j];
            }
        }
        (y, dx)
    }

    #[test]
    fn follows_the_formula() {
        for norm in norms() {
            for shape in [Blocked::new(2, 33, 3, 5), Blocked::new(1, 3, 2, 2), Blocked::new(1, 16, 1, 7)] {
                let (x, exact_x) = blocked(shape, 1);
                let (dy, exact_dy) = blocked(shape, 2);
                let (exact_y, exact_dx) = reference(shape, norm, &exact_x, &exact_dy);
                for isa in Isa::available() {
                    let (mut y, mut dx) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
                    local_response_norm(isa, shape, norm, &x, &mut y);
                    local_response_norm_gradient(isa, shape, norm, &x, &dy, &mut dx);
                    expect_blocked("y", shape, &y, &exact_y, 1e-6);
                    expect_blocked("dx", shape, &dx, &exact_dx, 1e-6);
                }
            }
        }
    }

    #[test]
    fn nan_stays_within_reach_of_its_window() {
        let shape = Blocked::new(1, 18, 3, 3);
        let ((mut x, _), (dy, _)) = (blocked(shape, 6), blocked(shape, 7));
        x[shape.index(0, 17, 1, 1)] = f32::NAN;
        for isa in Isa::available() {
            let (mut y, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            local_response_norm(isa, shape, norms()[0], &x, &mut y);
            local_response_norm_gradient(isa, shape, norms()[0], &x, &dy, &mut dx);
            for (tensor, reach) in [(y, 2), (dx, 4)] {
                for (i, value) in tensor.iter().enumerate() {
                    let near = (17 - reach..=17).any(|c| i == shape.index(0, c, 1, 1));
                    assert!(near || value.is_finite(), "element {i}");
                }
                assert!(tensor[shape.index(0, 17, 1, 1)].is_nan());
            }
        }
    }

    /// As in PyTorch, zeros among zeros are 0 / 0 without a constant, and no pixel sees what lies beside it.
    #[test]
    fn zeros_without_a_constant_are_not_numbers() {
        for (size, beta, c) in [(3, 0.75, 20), (3, 0.5, 20), (5, 0.75, 16), (4, 0.6, 32), (2, 0.75, 3)] {
            let shape = Blocked::new(1, c, 2, 3);
            let norm = LocalResponseNorm { size, alpha: 1.0, beta, k: 0.0 };
            let ((mut x, mut exact_x), (dy, exact_dy)) = (blocked(shape, 5), blocked(shape, 6));
            // All channels of a pixel, and a few of another one.
            for i in (0..exact_x.len()).filter(|i| i % 6 == 1 || (i % 6 == 5 && i / 6 > c / 2)) {
                (x[position(shape, i)], exact_x[i]) = (0.0, 0.0);
            }
            let (exact_y, exact_dx) = reference(shape, norm, &exact_x, &exact_dy);
            let lost = |values: &[f64]| values.iter().filter(|value| value.is_nan()).count();
            assert!((c..5 * c).contains(&lost(&exact_y)) && (c..5 * c).contains(&lost(&exact_dx)));
            for isa in Isa::available() {
                let (mut y, mut dx) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
                local_response_norm(isa, shape, norm, &x, &mut y);
                local_response_norm_gradient(isa, shape, norm, &x, &dy, &mut dx);
                expect_blocked("y", shape, &y, &exact_y, 1e-6);
                expect_blocked("dx", shape, &dx, &exact_dx, 1e-6);
            }
        }
    }

    #[test]
    fn threads_do_not_matter() {
        let shape = Blocked::new(3, 37, 19, 21);
        let ((x, _), (dy, _)) = (blocked(shape, 3), blocked(shape, 4));
        same_bits_on_any_threads(|isa| {
            let (mut y, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            local_response_norm(isa, shape, norms()[1], &x, &mut y);
            local_response_norm_gradient(isa, shape, norms()[1], &x, &dy, &mut dx);
            vec![y, dx]
        });
    }
}

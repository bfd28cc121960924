//! Depth-wise cross-correlation of two blocked maps: each channel of each image with the same one of a kernel map.
//!
//! As a convolution it would have images x channels groups; in the blocked layout it is one vector product per pixel
//! and tap, sixteen channels at once.

use crate::{
    Blocked, C0, Isa,
    planes::{expect_len, for_each_plane},
    simd::{Lanes, pixels, pixels_mut, vectorised},
};
use std::cell::Cell;

/// `y[n, c, i, j] = sum over r, s of x[n, c, i + r, j + s] * k[n, c, r, s]`, for all places where the kernel lies
/// inside.
///
/// # Panics
/// If a length does not match its shape, the kernel is larger than the map, or images or channels differ.
pub fn correlation(isa: Isa, shape: Blocked, x: &[f32], kernel_shape: Blocked, kernel: &[f32], y: &mut [f32]) {
    let out = checked(shape, kernel_shape, x.len(), kernel.len(), y.len());
    for_each_plane(out, y, |n, c1, y| {
        let (x, kernel) = (pixels(&x[shape.plane(n, c1)]), pixels(&kernel[kernel_shape.plane(n, c1)]));
        plane(isa, [shape.w, kernel_shape.w, out.w], x, kernel, pixels_mut(y));
    });
}

/// Gradient of [`correlation`] by `x`, whose shape is `shape`.
///
/// # Panics
/// As [`correlation`].
pub fn correlation_gradient(
    isa: Isa,
    shape: Blocked,
    dx: &mut [f32],
    kernel_shape: Blocked,
    kernel: &[f32],
    dy: &[f32],
) {
    let out = checked(shape, kernel_shape, dx.len(), kernel.len(), dy.len());
    let (kh, kw) = (kernel_shape.h, kernel_shape.w);
    // The correlation of the output gradient, with zeros around it, with the kernel turned by half a turn.
    let wide = out.w + 2 * (kw - 1);
    for_each_plane(shape, dx, |n, c1, dx| {
        let turned: Vec<Lanes> = pixels(&kernel[kernel_shape.plane(n, c1)]).iter().rev().copied().collect();
        let mut framed = vec![[0.0; C0]; (out.h + 2 * (kh - 1)) * wide];
        for (i, row) in pixels(&dy[out.plane(n, c1)]).chunks_exact(out.w).enumerate() {
            framed[(i + kh - 1) * wide + kw - 1..][..out.w].copy_from_slice(row);
        }
        plane(isa, [wide, kw, shape.w], &framed, &turned, pixels_mut(dx));
    });
}

/// The shape of the output.
#[track_caller]
fn checked(shape: Blocked, kernel: Blocked, x_len: usize, kernel_len: usize, y_len: usize) -> Blocked {
    assert!((shape.n, shape.c) == (kernel.n, kernel.c), "images or channels of map and kernel differ");
    assert!(
        (1..=shape.h).contains(&kernel.h) && (1..=shape.w).contains(&kernel.w),
        "the kernel is larger than the map"
    );
    let out = Blocked { h: shape.h - kernel.h + 1, w: shape.w - kernel.w + 1, ..shape };
    expect_len("the map", x_len, shape.len());
    expect_len("the kernel", kernel_len, kernel.len());
    expect_len("the output", y_len, out.len());
    out
}

/// Output columns that are summed side by side.
const COLUMNS: usize = 8;

vectorised! {
    /// One plane; the widths are those of map, kernel and output.
    fn plane(simd, widths: [usize; 3], x: &[Lanes], kernel: &[Lanes], y: &[Cell<Lanes>]) -> () {
        let [width, kernel_width, out_width] = widths;
        for (i, y) in y.chunks_exact(out_width).enumerate() {
            for (block, y) in y.chunks(COLUMNS).enumerate() {
                let mut sums = [simd.splat(0.0); COLUMNS];
                for (r, kernel) in kernel.chunks_exact(kernel_width).enumerate() {
                    let line = &x[(i + r) * width + block * COLUMNS..];
                    if y.len() == COLUMNS {
                        let line = &line[..kernel_width + COLUMNS - 1];
                        for (s, kernel) in kernel.iter().enumerate() {
                            let kernel = simd.load(kernel);
                            for (column, sum) in sums.iter_mut().enumerate() {
                                *sum = simd.mul_add(kernel, simd.load(&line[s + column]), *sum);
                            }
                        }
                    } else {
                        for (s, kernel) in kernel.iter().enumerate() {
                            let kernel = simd.load(kernel);
                            for (column, sum) in sums.iter_mut().enumerate().take(y.len()) {
                                *sum = simd.mul_add(kernel, simd.load(&line[s + column]), *sum);
                            }
                        }
                    }
                }
                for (sum, y) in sums.into_iter().zip(y) {
                    simd.store(sum, y);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{blocked, expect_blocked, same_bits_on_any_threads};

    #[test]
    fn it_is_what_its_definition_says_and_so_is_its_gradient() {
        for (shape, [kh, kw]) in [
            (Blocked::new(2, 20, 6, 11), [3, 2]),
            (Blocked::new(1, 16, 5, 4), [1, 1]),
            (Blocked::new(2, 3, 4, 5), [4, 5]),
            (Blocked::new(1, 33, 9, 23), [2, 5]),
        ] {
            let kernel_shape = Blocked { h: kh, w: kw, ..shape };
            let out = Blocked { h: shape.h - kh + 1, w: shape.w - kw + 1, ..shape };
            let ((x, x64), (k, k64), (dy, dy64)) = (blocked(shape, 1), blocked(kernel_shape, 2), blocked(out, 3));
            let (mut y64, mut dx64) = (vec![0.0; dy64.len()], vec![0.0; x64.len()]);
            for at in 0..y64.len() {
                let (map, i, j) = (at / out.pixels(), at / out.w % out.h, at % out.w);
                for tap in 0..kh * kw {
                    let from = map * shape.pixels() + (i + tap / kw) * shape.w + j + tap % kw;
                    y64[at] += x64[from] * k64[map * kh * kw + tap];
                    dx64[from] += dy64[at] * k64[map * kh * kw + tap];
                }
            }
            for isa in Isa::available() {
                let mut y = vec![f32::NAN; out.len()];
                correlation(isa, shape, &x, kernel_shape, &k, &mut y);
                expect_blocked("correlation", out, &y, &y64, 1e-6);
                let mut dx = vec![f32::NAN; shape.len()];
                correlation_gradient(isa, shape, &mut dx, kernel_shape, &k, &dy);
                expect_blocked("gradient", shape, &dx, &dx64, 1e-6);
            }
        }
    }

    #[test]
    fn threads_do_not_matter() {
        let (shape, kernel_shape) = (Blocked::new(2, 64, 29, 29), Blocked::new(2, 64, 5, 5));
        let ((x, _), (k, _)) = (blocked(shape, 1), blocked(kernel_shape, 2));
        let out = Blocked { h: 25, w: 25, ..shape };
        same_bits_on_any_threads(|isa| {
            let (mut y, mut dx) = (vec![0.0; out.len()], vec![0.0; shape.len()]);
            correlation(isa, shape, &x, kernel_shape, &k, &mut y);
            correlation_gradient(isa, shape, &mut dx, kernel_shape, &k, &y);
            vec![y, dx]
        });
    }
}

//! Nearest and bilinear interpolation of blocked maps, and its gradient.
//!
//! The caller says what each output row and column reads; whether that is the nearest pixel, or two with a weight, and
//! where their places lie, is the caller's business.

use crate::{
    Blocked, Isa,
    planes::{expect_len, for_each_plane},
    simd::{Lanes, Simd, pixels, pixels_mut, vectorised},
};
use std::cell::Cell;

/// What an output row or column reads: `(1 - weight) * x[first] + weight * x[second]`. What has no weight is not read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tap {
    /// A row or column of the input.
    pub first: usize,
    /// Another one.
    pub second: usize,
    /// Share of the second.
    pub weight: f64,
}

/// `y[i, j]` from the rows of `rows[i]` and the columns of `columns[j]`; `shape` is that of `x`.
///
/// # Panics
/// If a length does not match the shapes, or a tap lies outside.
pub fn resize(isa: Isa, shape: Blocked, rows: &[Tap], columns: &[Tap], x: &[f32], y: &mut [f32]) {
    let out = checked(shape, rows, columns, x.len(), y.len());
    for_each_plane(out, y, |n, c1, y| {
        plane(isa, shape.w, rows, columns, pixels(&x[shape.plane(n, c1)]), pixels_mut(y));
    });
}

/// Gradient of [`resize`]: each input pixel gets what read it, times its share, in the order of the output.
///
/// # Panics
/// As [`resize`].
pub fn resize_gradient(isa: Isa, shape: Blocked, rows: &[Tap], columns: &[Tap], dy: &[f32], dx: &mut [f32]) {
    let out = checked(shape, rows, columns, dx.len(), dy.len());
    for_each_plane(shape, dx, |n, c1, dx| {
        dx.fill(0.0);
        plane_gradient(isa, shape.w, rows, columns, pixels(&dy[out.plane(n, c1)]), pixels_mut(dx));
    });
}

/// The shape of the output.
#[track_caller]
fn checked(shape: Blocked, rows: &[Tap], columns: &[Tap], x: usize, y: usize) -> Blocked {
    let out = Blocked { h: rows.len(), w: columns.len(), ..shape };
    expect_len("the map", x, shape.len());
    expect_len("the resized map", y, out.len());
    let inside = |taps: &[Tap], len: usize| taps.iter().all(|t| t.first < len && t.second < len);
    assert!(inside(rows, shape.h) && inside(columns, shape.w), "a tap lies outside of the map");
    out
}

/// `(1 - weight) * first + weight * second`. Their difference would cancel where they are far apart, and is no number
/// where both are infinite.
#[inline(always)]
fn between<S: Simd>(simd: S, weight: f64, first: S::F32, second: S::F32) -> S::F32 {
    if weight == 0.0 {
        return first;
    }
    let own = simd.mul(simd.splat((1.0 - weight) as f32), first);
    simd.mul_add(simd.splat(weight as f32), second, own)
}

vectorised! {
    fn plane(simd, width: usize, rows: &[Tap], columns: &[Tap], x: &[Lanes], y: &[Cell<Lanes>]) -> () {
        for (row, y) in rows.iter().zip(y.chunks_exact(columns.len())) {
            let [a, b] = [row.first, row.second].map(|i| &x[i * width..][..width]);
            for (column, y) in columns.iter().zip(y) {
                let [first, second] = [a, b].map(|line| {
                    between(simd, column.weight, simd.load(&line[column.first]), simd.load(&line[column.second]))
                });
                simd.store(between(simd, row.weight, first, second), y);
            }
        }
    }
}

vectorised! {
    fn plane_gradient(simd, width: usize, rows: &[Tap], columns: &[Tap], dy: &[Lanes], dx: &[Cell<Lanes>]) -> () {
        for (row, dy) in rows.iter().zip(dy.chunks_exact(columns.len())) {
            for (i, down) in [(row.first, 1.0 - row.weight), (row.second, row.weight)] {
                if down == 0.0 {
                    continue;
                }
                let line = &dx[i * width..][..width];
                for (column, dy) in columns.iter().zip(dy) {
                    let dy = simd.load(dy);
                    for (j, across) in [(column.first, 1.0 - column.weight), (column.second, column.weight)] {
                        if across != 0.0 {
                            let sum = simd.load(&line[j].get());
                            simd.store(simd.mul_add(simd.splat((down * across) as f32), dy, sum), &line[j]);
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{blocked, expect_blocked, same_bits_on_any_threads};

    /// Awkward taps: any order, repeated, some weighted.
    fn taps(input: usize, output: usize) -> Vec<Tap> {
        let tap = |i: usize| {
            let first = i * input / output;
            let weight = if i.is_multiple_of(3) { 0.0 } else { 0.375 };
            Tap { first, second: (first + 1).min(input - 1), weight }
        };
        (0..output).map(tap).collect()
    }

    #[test]
    fn both_directions_are_the_same_linear_map() {
        let shape = Blocked::new(2, 19, 3, 5);
        let out = Blocked { h: 7, w: 4, ..shape };
        let (rows, columns) = (taps(3, 7), taps(5, 4));
        let (x, exact) = blocked(shape, 1);
        let (dy, dy_exact) = blocked(out, 2);
        let shares = |t: &Tap| [(t.first, 1.0 - t.weight), (t.second, t.weight)];
        let (mut y_exact, mut dx_exact) = (vec![0.0; dy_exact.len()], vec![0.0; exact.len()]);
        for (at, g) in dy_exact.iter().enumerate() {
            let (map, i, j) = (at / out.pixels(), at / out.w % out.h, at % out.w);
            for (r, down) in shares(&rows[i]) {
                for (s, across) in shares(&columns[j]) {
                    let from = map * shape.pixels() + r * shape.w + s;
                    y_exact[at] += down * across * exact[from];
                    dx_exact[from] += down * across * g;
                }
            }
        }
        for isa in Isa::available() {
            let mut y = vec![f32::NAN; out.len()];
            resize(isa, shape, &rows, &columns, &x, &mut y);
            expect_blocked("resized", out, &y, &y_exact, 1e-6);
            let mut dx = vec![f32::NAN; shape.len()];
            resize_gradient(isa, shape, &rows, &columns, &dy, &mut dx);
            expect_blocked("gradient", shape, &dx, &dx_exact, 1e-6);
        }
    }

    /// Two pixels side by side, `weight` of the way from one to the other, along both axes.
    fn between(isa: Isa, [left, right]: [f32; 2], weight: f64) -> [f32; 2] {
        let tap = Tap { first: 0, second: 1, weight };
        let only = Tap { first: 0, second: 0, weight: 0.0 };
        [(Blocked::new(1, 1, 1, 2), [only], [tap]), (Blocked::new(1, 1, 2, 1), [tap], [only])].map(
            |(shape, rows, columns)| {
                let x = crate::testing::scattered(shape, &[left, right]);
                let mut y = vec![f32::NAN; crate::C0];
                resize(isa, shape, &rows, &columns, &x, &mut y);
                y[0]
            },
        )
    }

    /// The error is relative to the terms, however different the pixels are.
    #[test]
    fn nothing_cancels() {
        let (pixels, weight) = ([1e8, 1.0], 1.0 - f64::from(f32::EPSILON) / 4.0);
        let terms = pixels.map(f64::from);
        let exact = (1.0 - weight) * terms[0] + weight * terms[1];
        for isa in Isa::available() {
            for y in between(isa, pixels, weight) {
                let error = (f64::from(y) - exact).abs();
                assert!(error <= 3.0 * f64::from(f32::EPSILON) * exact, "{y} instead of {exact}");
            }
        }
    }

    #[test]
    fn infinity_stays_and_what_has_no_weight_is_not_read() {
        let infinity = f32::INFINITY;
        for isa in Isa::available() {
            for pixels in [[infinity, 1.0], [1.0, infinity], [infinity; 2]] {
                assert_eq!(between(isa, pixels, 0.25), [infinity; 2], "{pixels:?}");
            }
            assert_eq!(between(isa, [infinity, 1.0], 0.0), [infinity; 2]);
            assert_eq!(between(isa, [1.0, infinity], 0.0), [1.0; 2]);
            assert!(between(isa, [infinity, -infinity], 0.5).iter().all(|y| y.is_nan()));
        }
    }

    #[test]
    fn threads_do_not_matter() {
        let shape = Blocked::new(3, 33, 20, 21);
        let out = Blocked { h: 40, w: 63, ..shape };
        let (rows, columns) = (taps(20, 40), taps(21, 63));
        let ((x, _), (dy, _)) = (blocked(shape, 3), blocked(out, 4));
        same_bits_on_any_threads(|isa| {
            let (mut y, mut dx) = (vec![0.0; out.len()], vec![0.0; shape.len()]);
            resize(isa, shape, &rows, &columns, &x, &mut y);
            resize_gradient(isa, shape, &rows, &columns, &dy, &mut dx);
            vec![y, dx]
        });
    }
}

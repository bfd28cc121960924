//! Nearest and bilinear interpolation of blocked maps, and its gradient.
//!
//! The caller says what each output row and column reads; whether that is the nearest pixel, or two with a weight, and
//! where their places lie, is the caller's business.

use crate::{
    Blocked, Isa,
    planes::{expect_len, for_each_plane},
    simd::{Lanes, pixels, pixels_mut, vectorised},
};
use std::cell::Cell;

/// What an output row or column reads: `(1 - weight) * x[first] + weight * x[second]`.
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

vectorised! {
    fn plane(simd, width: usize, rows: &[Tap], columns: &[Tap], x: &[Lanes], y: &[Cell<Lanes>]) -> () {
        for (row, y) in rows.iter().zip(y.chunks_exact(columns.len())) {
            let [a, b] = [row.first, row.second].map(|i| &x[i * width..][..width]);
            let down = simd.splat(row.weight as f32);
            for (column, y) in columns.iter().zip(y) {
                let across = simd.splat(column.weight as f32);
                let [first, second] = [a, b].map(|line| {
                    let (left, right) = (simd.load(&line[column.first]), simd.load(&line[column.second]));
                    simd.mul_add(across, simd.sub(right, left), left)
                });
                simd.store(simd.mul_add(down, simd.sub(second, first), first), y);
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

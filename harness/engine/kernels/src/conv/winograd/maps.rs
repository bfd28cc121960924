//! The transformations of maps: a row of squares at a time.

use super::{OUTPUTS, SIDE};
use crate::blocked::{Blocked, C0};
use crate::simd::{Lanes, Simd, pixels, pixels_mut, vectorised};

/// Where the 16 places of squares lie, in pixels: place `p` of square `s` at `start + p * pitch + s`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) start: usize,
    pub(super) pitch: usize,
}

/// `N` rows of a map from `first` on. Those outside of the map are empty.
pub(super) fn rows<'m, const N: usize>(extent: &Blocked, map: &'m [f32], first: usize) -> [&'m [f32]; N] {
    let width = extent.w * C0;
    std::array::from_fn(|offset| match first.wrapping_add(offset) {
        row if row < extent.h => &map[row * width..][..width],
        _ => &[],
    })
}

/// `B^T d`, along one axis.
#[inline(always)]
fn source<S: Simd>(simd: S, d: [S::F32; SIDE]) -> [S::F32; SIDE] {
    [simd.sub(d[0], d[2]), simd.add(d[1], d[2]), simd.sub(d[2], d[1]), simd.sub(d[1], d[3])]
}

/// `A dy`, along one axis. The last one has the other sign, as [`outputs`] has for it: two signs less to change.
#[inline(always)]
fn gradient<S: Simd>(simd: S, d: [S::F32; OUTPUTS]) -> [S::F32; SIDE] {
    [d[0], simd.add(d[0], d[1]), simd.sub(d[0], d[1]), d[1]]
}

/// `A^T m`, along one axis.
#[inline(always)]
fn outputs<S: Simd>(simd: S, m: [S::F32; SIDE]) -> [S::F32; OUTPUTS] {
    let [sum, difference] = [simd.add(m[1], m[2]), simd.sub(m[1], m[2])];
    [simd.add(m[0], sum), simd.sub(difference, m[3])]
}

vectorised! {
    /// `B^T d B` of a row of squares: from four rows of pixels of one channel block, of which the first column of the
    /// first square is column `-left`. Missing rows are empty, and pixels outside of a row are zero.
    pub(super) fn transform_source(
        simd, rows: [&[f32]; SIDE], left: usize, squares: usize, to: &mut [f32], places: Places,
    ) -> () {
        let (rows, to) = (rows.map(pixels), pixels_mut(to));
        let zero = simd.splat(0.0);
        for square in 0..squares {
            let mut columns = [[zero; SIDE]; SIDE];
            for (column, sums) in columns.iter_mut().enumerate() {
                let at = (OUTPUTS * square + column).wrapping_sub(left);
                *sums = source(simd, rows.map(|row| row.get(at).map_or(zero, |pixel| simd.load(pixel))));
            }
            for row in 0..SIDE {
                for (column, value) in source(simd, columns.map(|sums| sums[row])).into_iter().enumerate() {
                    simd.store(value, &to[places.start + (row * SIDE + column) * places.pitch + square]);
                }
            }
        }
    }
}

vectorised! {
    /// `A dy A^T` of a row of squares, but for the signs that [`gradient`] leaves out. Missing pixels are zero.
    pub(super) fn transform_gradient(
        simd, rows: [&[f32]; OUTPUTS], squares: usize, to: &mut [f32], places: Places,
    ) -> () {
        let (rows, to) = (rows.map(pixels), pixels_mut(to));
        let zero = simd.splat(0.0);
        for square in 0..squares {
            let mut columns = [[zero; SIDE]; OUTPUTS];
            for (column, sums) in columns.iter_mut().enumerate() {
                let at = OUTPUTS * square + column;
                *sums = gradient(simd, rows.map(|row| row.get(at).map_or(zero, |pixel| simd.load(pixel))));
            }
            for row in 0..SIDE {
                for (column, value) in gradient(simd, columns.map(|sums| sums[row])).into_iter().enumerate() {
                    simd.store(value, &to[places.start + (row * SIDE + column) * places.pitch + square]);
                }
            }
        }
    }
}

vectorised! {
    /// `A^T m A` of a row of squares: two rows of pixels, one after the other.
    pub(super) fn transform_products(simd, m: &[f32], places: Places, squares: usize, to: &mut [f32]) -> () {
        let m: &[Lanes] = pixels(m);
        let width = OUTPUTS * squares;
        let to = pixels_mut(to);
        for square in 0..squares {
            let columns: [_; SIDE] = std::array::from_fn(|column| {
                outputs(simd, std::array::from_fn(|row| {
                    simd.load(&m[places.start + (row * SIDE + column) * places.pitch + square])
                }))
            });
            for row in 0..OUTPUTS {
                for (column, value) in outputs(simd, columns.map(|sums| sums[row])).into_iter().enumerate() {
                    simd.store(value, &to[row * width + OUTPUTS * square + column]);
                }
            }
        }
    }
}

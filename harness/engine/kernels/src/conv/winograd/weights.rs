//! The transformation of filters, and back that of their gradients.
//!
//! Transformed: `[dest block][place][source block][source lane][16 dest lanes]`, so that the weights of a place and
//! a destination block are consecutive.

use super::{PRODUCTS, SIDE};
use crate::blocked::C0;
use crate::conv::ConvShape;
use crate::conv::weights::{Direction, PackedLayout};
use crate::isa::Isa;
use crate::simd::{Simd, pixels, pixels_mut, vectorised};
use rayon::prelude::*;

/// Elements along an axis of a kernel.
const KERNEL: usize = 3;

/// Elements of one kernel element, or one place, between two blocks.
const MATRIX: usize = C0 * C0;

/// Elements of the transformed weights.
pub(in crate::conv) fn transformed_len(shape: &ConvShape, direction: Direction) -> usize {
    direction.blocks(shape).into_iter().product::<usize>() * PRODUCTS * MATRIX
}

/// `G g G^T` of all kernels.
pub(in crate::conv) fn transform(isa: Isa, shape: &ConvShape, direction: Direction, packed: &[f32], to: &mut [f32]) {
    let layout = PackedLayout::forward(shape);
    assert_eq!(packed.len(), layout.len(), "packed weights");
    assert_eq!(to.len(), transformed_len(shape, direction), "transformed weights");
    let [_, sources] = direction.blocks(shape);
    to.par_chunks_exact_mut(PRODUCTS * sources * MATRIX).enumerate().for_each(|(dest, to)| {
        let mut turned = [0.0; KERNEL * KERNEL * MATRIX];
        for source in 0..sources {
            let part = match direction {
                Direction::Forward => &packed[layout.part(dest, source)],
                Direction::Transposed => {
                    turn(isa, &packed[layout.part(source, dest)], &mut turned);
                    &turned
                }
            };
            kernels(isa, part, &mut to[source * MATRIX..], sources * C0);
        }
    });
}

/// `B`-th of the four sums `G g`, from three elements.
#[inline(always)]
fn along<S: Simd>(simd: S, [a, b, c]: [S::F64; KERNEL]) -> [S::F64; SIDE] {
    let [half, minus] = [0.5, -0.5].map(|value| simd.load_f64(&[value; C0]));
    let zero = simd.load_f64(&[0.0; C0]);
    let ends = simd.mul_add_f64(simd.add_f64(a, c), half, zero);
    [a, simd.mul_add_f64(b, half, ends), simd.mul_add_f64(b, minus, ends), c]
}

/// The three sums `G^T m`, from four.
#[inline(always)]
fn back<S: Simd>(simd: S, [a, b, c, d]: [S::F64; SIDE]) -> [S::F64; KERNEL] {
    let [half, minus, one] = [0.5, -0.5, 1.0].map(|value| simd.load_f64(&[value; C0]));
    let zero = simd.load_f64(&[0.0; C0]);
    let middle = simd.mul_add_f64(simd.add_f64(b, c), half, zero);
    let difference = simd.mul_add_f64(c, minus, simd.mul_add_f64(b, half, zero));
    [simd.mul_add_f64(a, one, middle), difference, simd.add_f64(d, middle)]
}

vectorised! {
    /// Exchanges sources and destinations of a part, and turns its kernels around.
    fn turn(simd, part: &[f32], turned: &mut [f32]) -> () {
        let matrices = pixels(part).chunks_exact(C0);
        for (to, from) in pixels_mut(turned).chunks_exact(C0).rev().zip(matrices) {
            let rows: [_; C0] = std::array::from_fn(|i| simd.load(&from[i]));
            for (to, row) in to.iter().zip(simd.transpose(rows)) {
                simd.store(row, to);
            }
        }
    }
}

vectorised! {
    /// Transforms the kernels between two blocks to places `pitch` rows of 16 apart.
    fn kernels(simd, part: &[f32], to: &mut [f32], pitch: usize) -> () {
        let (part, to) = (pixels(part), pixels_mut(to));
        for lane in 0..C0 {
            let rows: [_; KERNEL] = std::array::from_fn(|a| {
                along(simd, std::array::from_fn(|b| simd.widen(simd.load(&part[(a * KERNEL + b) * C0 + lane]))))
            });
            for column in 0..SIDE {
                for (row, value) in along(simd, rows.map(|row| row[column])).into_iter().enumerate() {
                    simd.store(simd.narrow(value), &to[(row * SIDE + column) * pitch + lane]);
                }
            }
        }
    }
}

vectorised! {
    /// Transforms sums of places, `[place][source lane][16 dest lanes]`, to gradients of the kernels between two blocks.
    /// Sums that have a factor of `A dy A^T`'s last row or last column, but not both, have the other sign.
    pub(super) fn gradients(simd, sums: &[f32], part: &mut [f32]) -> () {
        let (sums, part) = (pixels(sums), pixels_mut(part));
        let minus = simd.load_f64(&[-1.0; C0]);
        let zero = simd.load_f64(&[0.0; C0]);
        for lane in 0..C0 {
            let rows: [_; SIDE] = std::array::from_fn(|row| {
                back(simd, std::array::from_fn(|column| {
                    let sum = simd.widen(simd.load(&sums[(row * SIDE + column) * C0 + lane]));
                    let is_last = |place: usize| place + 1 == SIDE;
                    if is_last(row) == is_last(column) { sum } else { simd.mul_add_f64(sum, minus, zero) }
                }))
            });
            for column in 0..KERNEL {
                for (row, value) in back(simd, rows.map(|row| row[column])).into_iter().enumerate() {
                    simd.store(simd.narrow(value), &part[(row * KERNEL + column) * C0 + lane]);
                }
            }
        }
    }
}

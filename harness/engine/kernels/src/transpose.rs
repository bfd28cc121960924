//! Row-major tensors with their axes in another order.

use crate::C0;
use rayon::prelude::*;

/// Rows and columns of a block of elements that is exchanged at a time: a cache line of each.
const BLOCK: usize = C0;

/// Elements that a task copies at least.
const GRAIN: usize = 1 << 14;

/// An axis of the result: its extent, and the distance of neighbours in the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    extent: usize,
    stride: usize,
}

/// Axis `i` of `y` is axis `permutation[i]` of `x`, which has this shape.
///
/// # Panics
/// If `permutation` is not an order of the axes, or a length does not match the shape.
pub fn transpose(shape: &[usize], permutation: &[usize], x: &[f32], y: &mut [f32]) {
    let len = shape.iter().product::<usize>();
    assert!(x.len() == len && y.len() == len, "operand and result");
    let mut sorted = permutation.to_vec();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..shape.len()), "no order of the axes");
    if len == 0 {
        return;
    }
    let axes = axes(shape, permutation);
    let (&last, outer) = axes.split_last().unwrap_or((&Axis { extent: 1, stride: 1 }, &[]));
    if last.stride == 1 {
        copy_runs(outer, last.extent, x, y);
    } else {
        exchange(outer, last, x, y);
    }
}

/// The axes of the result, those that stay together as one, none of one element.
fn axes(shape: &[usize], permutation: &[usize]) -> Vec<Axis> {
    let stride = |axis: usize| shape[axis + 1..].iter().product();
    let mut axes: Vec<Axis> = Vec::new();
    for axis in permutation.iter().filter(|axis| shape[**axis] != 1) {
        let (extent, stride) = (shape[*axis], stride(*axis));
        match axes.last_mut() {
            Some(before) if before.stride == extent * stride => {
                *before = Axis { extent: before.extent * extent, stride };
            }
            _ => axes.push(Axis { extent, stride }),
        }
    }
    axes
}

/// Where in the operand the elements behind place `index` of these axes begin.
fn start(axes: &[Axis], mut index: usize) -> usize {
    let mut start = 0;
    for axis in axes.iter().rev() {
        start += index % axis.extent * axis.stride;
        index /= axis.extent;
    }
    start
}

/// Runs of neighbours stay together.
fn copy_runs(outer: &[Axis], run: usize, x: &[f32], y: &mut [f32]) {
    let (inner, outer) = outer.split_last().unwrap_or((&Axis { extent: 1, stride: 0 }, &[]));
    let tasks = y.par_chunks_exact_mut(inner.extent * run).enumerate();
    tasks.with_min_len(GRAIN.div_ceil(inner.extent * run)).for_each(|(index, y)| {
        let first = start(outer, index);
        for (n, y) in y.chunks_exact_mut(run).enumerate() {
            y.copy_from_slice(&x[first + n * inner.stride..][..run]);
        }
    });
}

/// Neighbours of the operand lie along another axis than those of the result: both are walked in blocks.
fn exchange(outer: &[Axis], last: Axis, x: &[f32], y: &mut [f32]) {
    // Without an axis of neighbours in the operand, the last axis would be one: see `axes`.
    let place = outer.iter().position(|axis| axis.stride == 1).unwrap_or(0);
    let (before, rest) = outer.split_at(place);
    let (along, between) = rest.split_first().unwrap_or((&Axis { extent: 1, stride: 1 }, &[]));
    let rows: usize = between.iter().map(|axis| axis.extent).product();
    let inner = rows * last.extent;
    y.par_chunks_exact_mut(along.extent * inner).enumerate().for_each(|(index, y)| {
        let first = start(before, index);
        let blocks = y.par_chunks_mut(BLOCK * inner).enumerate();
        blocks.with_min_len(GRAIN.div_ceil(BLOCK * inner)).for_each(|(block, y)| {
            let (first, width) = (first + block * BLOCK * along.stride, y.len() / inner);
            for row in 0..rows {
                let first = first + start(between, row);
                for begin in (0..last.extent).step_by(BLOCK) {
                    for n in begin..(begin + BLOCK).min(last.extent) {
                        let values = &x[first + n * last.stride..][..width];
                        let to = &mut y[row * last.extent + n..];
                        to.iter_mut().step_by(inner).zip(values).for_each(|(to, value)| *to = *value);
                    }
                }
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{affordable, filled};

    #[test]
    fn every_element_finds_its_place() {
        let cases: [(&[usize], &[usize]); 8] = [
            (&[3, 5], &[1, 0]),
            (&[40, 37], &[1, 0]),
            (&[2, 5, 3, 7], &[0, 2, 1, 3]),
            (&[2, 5, 3, 7], &[0, 2, 3, 1]),
            (&[2, 3, 17, 33], &[3, 1, 0, 2]),
            (&[1, 9, 1, 4], &[2, 3, 0, 1]),
            (&[6], &[0]),
            (&[2, 20, 18], &[2, 0, 1]),
        ];
        for (shape, permutation) in cases {
            let len = shape.iter().product();
            if !affordable(len) {
                continue;
            }
            let x = filled(len, 1);
            let mut y = vec![f32::NAN; len];
            transpose(shape, permutation, &x, &mut y);
            let extents: Vec<usize> = permutation.iter().map(|axis| shape[*axis]).collect();
            for (i, value) in y.iter().enumerate() {
                let (mut rest, mut from) = (i, 0);
                for (extent, axis) in extents.iter().zip(permutation).rev() {
                    from += rest % extent * shape[axis + 1..].iter().product::<usize>();
                    rest /= extent;
                }
                assert_eq!(value.to_bits(), x[from].to_bits(), "{shape:?} {permutation:?} at {i}");
            }
        }
    }
}

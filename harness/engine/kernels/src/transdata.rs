//! TransData: between row-major NCHW and the blocked layout.
//!
//! Flattening a feature map to the rows `[N, C * H * W]` of a linear layer is [`to_nchw`], and its gradient
//! [`to_blocked`], for NCHW rows are exactly that.

use crate::{
    Blocked, C0, Isa,
    planes::{expect_len, for_each_plane, planes_per_task},
    simd::{pixels, pixels_mut, vectorised},
};
use rayon::prelude::*;
use std::{array, cell::Cell};

/// NCHW to blocked; lanes beyond the last channel become zero.
///
/// # Panics
/// If a length does not match the shape.
pub fn to_blocked(isa: Isa, shape: Blocked, nchw: &[f32], blocked: &mut [f32]) {
    expect_len("the NCHW tensor", nchw.len(), shape.n * shape.c * shape.pixels());
    expect_len("the blocked tensor", blocked.len(), shape.len());
    for_each_plane(shape, blocked, |n, c1, plane| {
        let start = (n * shape.c + c1 * C0) * shape.pixels();
        let rows = &nchw[start..start + shape.lanes(c1) * shape.pixels()];
        interleave(isa, rows, plane);
    });
}

/// Blocked to NCHW.
///
/// # Panics
/// If a length does not match the shape.
pub fn to_nchw(isa: Isa, shape: Blocked, blocked: &[f32], nchw: &mut [f32]) {
    expect_len("the NCHW tensor", nchw.len(), shape.n * shape.c * shape.pixels());
    expect_len("the blocked tensor", blocked.len(), shape.len());
    if shape.is_empty() {
        return;
    }
    nchw.par_chunks_exact_mut(shape.c * shape.pixels()).enumerate().for_each(|(n, image)| {
        image.par_chunks_mut(C0 * shape.pixels()).with_min_len(planes_per_task(shape)).enumerate().for_each(
            |(c1, rows)| {
                deinterleave(isa, &blocked[shape.plane(n, c1)], rows);
            },
        );
    });
}

vectorised! {
    /// Rows of pixels, one per channel, to pixels of 16 channels.
    fn interleave(simd, rows: &[f32], plane: &mut [f32]) -> () {
        let plane = pixels_mut(plane);
        let mut first = 0;
        while first < plane.len() {
            let width = C0.min(plane.len() - first);
            let mut columns = [simd.splat(0.0); C0];
            for (column, row) in columns.iter_mut().zip(rows.chunks_exact(plane.len())) {
                *column = match row[first..].first_chunk::<C0>() {
                    Some(whole) => simd.load(whole),
                    None => simd.load(&array::from_fn(|i| if i < width { row[first + i] } else { 0.0 })),
                };
            }
            for (pixel, value) in plane[first..first + width].iter().zip(simd.transpose(columns)) {
                simd.store(value, pixel);
            }
            first += width;
        }
    }
}

vectorised! {
    /// Pixels of 16 channels to rows of pixels, one per channel.
    fn deinterleave(simd, plane: &[f32], rows: &mut [f32]) -> () {
        let plane = pixels(plane);
        let mut first = 0;
        while first < plane.len() {
            let width = C0.min(plane.len() - first);
            let mut values = [simd.splat(0.0); C0];
            for (value, pixel) in values.iter_mut().zip(&plane[first..first + width]) {
                *value = simd.load(pixel);
            }
            for (row, values) in rows.chunks_exact_mut(plane.len()).zip(simd.transpose(values)) {
                match row[first..].first_chunk_mut::<C0>() {
                    Some(whole) => simd.store(values, Cell::from_mut(whole)),
                    None => {
                        let all = Cell::new([0.0; C0]);
                        simd.store(values, &all);
                        row[first..].copy_from_slice(&all.get()[..width]);
                    }
                }
            }
            first += width;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{filled, same_bits_on_any_threads};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn elements_lie_where_the_layout_says(n in 1usize..3, c in 1usize..40, h in 1usize..8, w in 1usize..8) {
            let shape = Blocked::new(n, c, h, w);
            let nchw = filled(n * c * h * w, 1);
            for isa in Isa::available() {
                let mut blocked = vec![f32::NAN; shape.len()];
                to_blocked(isa, shape, &nchw, &mut blocked);
                let mut expected = vec![0.0; shape.len()];
                for (i, value) in nchw.iter().enumerate() {
                    let (column, row) = (i % w, i / w % h);
                    expected[shape.index(i / (c * h * w), i / (h * w) % c, row, column)] = *value;
                }
                prop_assert_eq!(&blocked, &expected);
                let mut back = vec![f32::NAN; nchw.len()];
                to_nchw(isa, shape, &blocked, &mut back);
                prop_assert_eq!(&back, &nchw);
            }
        }
    }

    #[test]
    fn threads_do_not_matter() {
        let shape = Blocked::new(3, 37, 19, 21);
        let nchw = filled(3 * 37 * 19 * 21, 2);
        same_bits_on_any_threads(|isa| {
            let mut blocked = vec![0.0; shape.len()];
            to_blocked(isa, shape, &nchw, &mut blocked);
            let mut back = vec![0.0; nchw.len()];
            to_nchw(isa, shape, &blocked, &mut back);
            vec![blocked, back]
        });
    }
}

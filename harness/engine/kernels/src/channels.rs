//! Slices and concatenations of blocked tensors along the channels.
//!
//! Whole planes are copied where block boundaries meet; otherwise lanes move one by one.

use crate::{
    Blocked, C0,
    planes::{expect_len, for_each_plane},
};

/// `y` are the channels from `first` on of `x`, as many as `y_shape` has.
///
/// # Panics
/// If a length does not match its shape, images or maps differ, or the channels do not lie inside `x`.
pub fn slice_channels(x_shape: Blocked, x: &[f32], first: usize, y_shape: Blocked, y: &mut [f32]) {
    expect_part(x_shape, x.len(), first, y_shape, y.len());
    for_each_plane(y_shape, y, |n, c1, plane| {
        copy_lanes(x_shape, x, n, first + c1 * C0, plane, 0, y_shape.lanes(c1));
    });
}

/// The gradient of [`slice_channels`]: `x` is `y` in its channels from `first` on, and zero elsewhere.
///
/// # Panics
/// As [`slice_channels`].
pub fn slice_channels_gradient(y_shape: Blocked, y: &[f32], first: usize, x_shape: Blocked, x: &mut [f32]) {
    expect_part(x_shape, x.len(), first, y_shape, y.len());
    for_each_plane(x_shape, x, |n, c1, plane| {
        plane.fill(0.0);
        copy_overlap(y_shape, y, first, n, c1, plane);
    });
}

/// `y` are the channels of all parts one after another.
///
/// # Panics
/// If a length does not match its shape, images or maps differ, or the channels do not add up.
pub fn concat_channels(parts: &[(Blocked, &[f32])], y_shape: Blocked, y: &mut [f32]) {
    let mut first = 0;
    let mut placed = Vec::with_capacity(parts.len());
    for (shape, part) in parts {
        expect_part(y_shape, y.len(), first, *shape, part.len());
        placed.push((first, *shape, *part));
        first += shape.c;
    }
    assert!(first == y_shape.c, "parts of {first} channels in all make none of {}", y_shape.c);
    for_each_plane(y_shape, y, |n, c1, plane| {
        if y_shape.lanes(c1) < C0 {
            plane.fill(0.0);
        }
        for (first, shape, part) in &placed {
            copy_overlap(*shape, part, *first, n, c1, plane);
        }
    });
}

#[track_caller]
fn expect_part(whole: Blocked, whole_len: usize, first: usize, part: Blocked, part_len: usize) {
    expect_len("the whole", whole_len, whole.len());
    expect_len("the part", part_len, part.len());
    assert!((whole.n, whole.h, whole.w) == (part.n, part.h, part.w), "images or maps of whole and part differ");
    assert!(first + part.c <= whole.c, "channels {first} + {} of {}", part.c, whole.c);
}

/// Copies what a part whose first channel is channel `first` of the whole has in plane (n, c1) of the whole.
fn copy_overlap(shape: Blocked, part: &[f32], first: usize, n: usize, c1: usize, plane: &mut [f32]) {
    let begin = first.max(c1 * C0);
    let end = (first + shape.c).min((c1 + 1) * C0);
    if begin < end {
        copy_lanes(shape, part, n, begin - first, plane, begin - c1 * C0, end - begin);
    }
}

/// Copies `count` channels of `x` from channel `c` on to lanes `lane` and on of a plane. All lanes are overwritten if
/// they begin at zero: those beyond the count with zeros.
fn copy_lanes(shape: Blocked, x: &[f32], n: usize, c: usize, plane: &mut [f32], lane: usize, count: usize) {
    if count == C0 && c.is_multiple_of(C0) {
        return plane.copy_from_slice(&x[shape.plane(n, c / C0)]);
    }
    let (targets, _) = plane.as_chunks_mut::<C0>();
    if lane == 0 && count < C0 {
        targets.fill([0.0; C0]);
    }
    let mut done = 0;
    while done < count {
        let from = (c + done) % C0;
        let step = (C0 - from).min(count - done);
        let (sources, _) = x[shape.plane(n, (c + done) / C0)].as_chunks::<C0>();
        for (target, source) in targets.iter_mut().zip(sources) {
            target[lane + done..][..step].copy_from_slice(&source[from..from + step]);
        }
        done += step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{blocked, expect_blocked};
    use proptest::prelude::*;

    /// Channels `first .. first + count` of every image of an NCHW tensor.
    fn channels(shape: Blocked, nchw: &[f64], first: usize, count: usize) -> Vec<f64> {
        nchw.chunks(shape.c * shape.pixels())
            .flat_map(|image| image[first * shape.pixels()..(first + count) * shape.pixels()].to_vec())
            .collect()
    }

    proptest! {
        #[test]
        fn slices_are_the_channels_asked_for(c in 1usize..60, first in 0usize..60, count in 1usize..60, h in 1usize..4) {
            let first = first % c;
            let count = count.min(c - first);
            let shape = Blocked::new(2, c, h, 3);
            let part = Blocked { c: count, ..shape };
            let (x, exact) = blocked(shape, 1);
            let mut y = vec![f32::NAN; part.len()];
            slice_channels(shape, &x, first, part, &mut y);
            expect_blocked("slice", part, &y, &channels(shape, &exact, first, count), 0.0);

            let mut back = vec![f32::NAN; shape.len()];
            slice_channels_gradient(part, &y, first, shape, &mut back);
            let inside = |i: usize| (first..first + count).contains(&(i / shape.pixels() % c));
            let expected: Vec<f64> = (0..exact.len()).map(|i| if inside(i) { exact[i] } else { 0.0 }).collect();
            expect_blocked("slice gradient", shape, &back, &expected, 0.0);
        }

        #[test]
        fn concatenation_undoes_slicing(counts in prop::collection::vec(1usize..40, 1..6)) {
            let shape = Blocked::new(2, counts.iter().sum(), 2, 3);
            let (x, _) = blocked(shape, 2);
            let mut first = 0;
            let mut parts = Vec::new();
            for count in &counts {
                let part = Blocked { c: *count, ..shape };
                let mut y = vec![f32::NAN; part.len()];
                slice_channels(shape, &x, first, part, &mut y);
                parts.push((part, y));
                first += count;
            }
            let slices: Vec<(Blocked, &[f32])> = parts.iter().map(|(shape, y)| (*shape, &y[..])).collect();
            let mut joined = vec![f32::NAN; shape.len()];
            concat_channels(&slices, shape, &mut joined);
            prop_assert_eq!(joined, x);
        }
    }
}

//! Dropout whose mask is a function of seed, step, stream and element, not of a generator's state.
//!
//! Element `i` of the logical row-major tensor (NC or NCHW, whatever the layout in memory) falls if a hash of its index
//! is below `rate * 2^32`. The hash is a permutation of the 32-bit indices made of two rounds of the mixer `lowbias32`
//! (Wellons, "Prospecting for Hash Functions", 2018), before each of which a word of the key is mixed in; the key is
//! the splitmix64 of seed, step and stream. Indices count modulo 2^32. The gradient is the same function of the output
//! gradient.

use crate::{
    Blocked, C0, Isa,
    planes::{TASK_LEN, expect_len, for_each_plane},
    simd::{Lanes, Pixels, Simd, pixels, pixels_mut, vectorised},
};
use rayon::prelude::*;
use std::{array, cell::Cell};

/// The mask of one dropout at one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    key: [u32; 2],
    /// Hashes below it fall.
    threshold: u32,
    /// What the kept elements are multiplied by.
    scale: f32,
    /// Index of the first element.
    first: u32,
}

/// Whether the element at logical row-major `index` is kept.
///
/// # Panics
/// If the rate is not in `[0, 1)`.
#[must_use]
pub fn keep(seed: u64, step: u64, stream: u64, index: u64, rate: f64) -> bool {
    Dropout::new(seed, step, stream, rate).keeps(index)
}

impl Dropout {
    /// The mask of dropout `stream` at `step` of the run with `seed`.
    ///
    /// # Panics
    /// If the rate is not in `[0, 1)`.
    #[must_use]
    pub fn new(seed: u64, step: u64, stream: u64, rate: f64) -> Self {
        assert!((0.0..1.0).contains(&rate), "a dropout rate of {rate} is not in [0, 1)");
        let key = [seed, step, stream].into_iter().fold(0, |state, word| splitmix64(state ^ word));
        Self {
            key: [key as u32, (key >> 32) as u32],
            threshold: (rate * 4_294_967_296.0).round().min(f64::from(u32::MAX)) as u32,
            scale: (1.0 / (1.0 - rate)) as f32,
            first: 0,
        }
    }

    /// The mask from this element on: of a tensor that is a part of a larger one.
    #[must_use]
    pub fn from_element(self, first: u64) -> Self {
        Self { first: first as u32, ..self }
    }

    /// Whether the element at logical row-major `index` is kept.
    #[must_use]
    pub fn keeps(&self, index: u64) -> bool {
        let hash =
            lowbias32(lowbias32((index as u32).wrapping_add(self.first) ^ self.key[0]).wrapping_add(self.key[1]));
        hash >= self.threshold
    }

    /// [`Self::keeps`] of 16 indices, as factors.
    #[inline(always)]
    fn factors<S: Simd>(&self, simd: S, indices: S::U32) -> S::F32 {
        let indices = simd.add_u32(indices, simd.splat_u32(self.first));
        let first = mix(simd, simd.xor_u32(indices, simd.splat_u32(self.key[0])));
        let hash = mix(simd, simd.add_u32(first, simd.splat_u32(self.key[1])));
        let kept = simd.at_least_u32(hash, simd.splat_u32(self.threshold));
        simd.select(kept, simd.splat(self.scale), simd.splat(0.0))
    }
}

fn splitmix64(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

const MULTIPLIERS: [u32; 2] = [0x7FEB_352D, 0x846C_A68B];

fn lowbias32(mut x: u32) -> u32 {
    x = (x ^ (x >> 16)).wrapping_mul(MULTIPLIERS[0]);
    x = (x ^ (x >> 15)).wrapping_mul(MULTIPLIERS[1]);
    x ^ (x >> 16)
}

/// [`lowbias32`] of 16 values.
#[inline(always)]
fn mix<S: Simd>(simd: S, x: S::U32) -> S::U32 {
    let x = simd.mul_u32(simd.xor_u32(x, simd.shr_u32::<16>(x)), simd.splat_u32(MULTIPLIERS[0]));
    let x = simd.mul_u32(simd.xor_u32(x, simd.shr_u32::<15>(x)), simd.splat_u32(MULTIPLIERS[1]));
    simd.xor_u32(x, simd.shr_u32::<16>(x))
}

/// `y = x / (1 - rate)` where the element is kept, else `x * 0`, of a tensor in row-major order. Without `x`, the input
/// lies where the result goes.
///
/// # Panics
/// If the lengths differ.
pub fn dropout(isa: Isa, mask: &Dropout, x: Option<&[f32]>, y: &mut [f32]) {
    expect_len("the output", y.len(), x.map_or(y.len(), <[f32]>::len));
    y.par_chunks_mut(TASK_LEN).enumerate().for_each(|(i, y)| {
        let (start, done) = (i * TASK_LEN, y.len() / C0 * C0);
        let x = x.map(|x| &x[start..start + y.len()]);
        let (whole, rest) = y.split_at_mut(done);
        let whole = pixels_mut(whole);
        match x {
            Some(x) => {
                drop_run(isa, mask, start as u32, pixels(x), whole);
                rest.copy_from_slice(&x[done..]);
            }
            None => drop_run(isa, mask, start as u32, whole, whole),
        }
        drop_rest(mask, start + done, rest);
    });
}

/// [`dropout`] of a blocked tensor, with the mask of the same tensor in NCHW.
///
/// # Panics
/// If a length does not match the shape.
pub fn dropout_blocked(isa: Isa, shape: Blocked, mask: &Dropout, x: Option<&[f32]>, y: &mut [f32]) {
    expect_len("the input", x.map_or(y.len(), <[f32]>::len), shape.len());
    expect_len("the output", y.len(), shape.len());
    for_each_plane(shape, y, |n, c1, y| {
        let (first, y) = (first_indices(shape, n, c1), pixels_mut(y));
        match x {
            Some(x) => drop_plane(isa, mask, first, pixels(&x[shape.plane(n, c1)]), y),
            None => drop_plane(isa, mask, first, y, y),
        }
    });
}

/// Logical indices of the first pixel of a plane, modulo 2^32. Those of lanes beyond the last channel are other
/// elements', which does not matter: the lanes are zero.
fn first_indices(shape: Blocked, n: usize, c1: usize) -> [u32; C0] {
    array::from_fn(|lane| ((n * shape.c + c1 * C0 + lane) * shape.pixels()) as u32)
}

/// The last few elements of a row-major tensor.
fn drop_rest(mask: &Dropout, start: usize, x_y: &mut [f32]) {
    for (i, x) in x_y.iter_mut().enumerate() {
        *x *= if mask.keeps((start + i) as u64) { mask.scale } else { 0.0 };
    }
}

vectorised! {
    /// Elements of consecutive indices.
    fn drop_run [X: Pixels,] [X] (simd, mask: &Dropout, start: u32, x: X, y: &[Cell<Lanes>]) -> () {
        let mut indices = simd.load_u32(&array::from_fn(|lane| start.wrapping_add(lane as u32)));
        let step = simd.splat_u32(C0 as u32);
        for (i, y) in y.iter().enumerate() {
            simd.store(simd.mul(x.load(simd, i), mask.factors(simd, indices)), y);
            indices = simd.add_u32(indices, step);
        }
    }
}

vectorised! {
    /// Pixels of a plane; `first` are the indices of the first one.
    fn drop_plane [X: Pixels,] [X] (simd, mask: &Dropout, first: [u32; C0], x: X, y: &[Cell<Lanes>]) -> () {
        let mut indices = simd.load_u32(&first);
        let step = simd.splat_u32(1);
        for (i, y) in y.iter().enumerate() {
            simd.store(simd.mul(x.load(simd, i), mask.factors(simd, indices)), y);
            indices = simd.add_u32(indices, step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{blocked, filled, position, same_bits_on_any_threads};

    #[test]
    fn every_layout_has_the_mask_of_the_scalar_function() {
        let mask = Dropout::new(7, 3, 1, 0.35);
        for shape in [Blocked::new(2, 33, 5, 7), Blocked::new(3, 16, 1, 1), Blocked::new(1, 3, 75, 77)] {
            let (x, nchw) = blocked(shape, 1);
            let nchw: Vec<f32> = nchw.into_iter().map(|v| v as f32).collect();
            for isa in Isa::available() {
                let (mut y, mut flat) = (vec![f32::NAN; x.len()], vec![f32::NAN; nchw.len()]);
                dropout_blocked(isa, shape, &mask, Some(&x), &mut y);
                dropout(isa, &mask, Some(&nchw), &mut flat);
                for (i, x) in nchw.iter().enumerate() {
                    let expected = if keep(7, 3, 1, i as u64, 0.35) { x * (1.0 / 0.65) as f32 } else { 0.0 };
                    assert_eq!(flat[i], expected);
                    assert_eq!(y[position(shape, i)], expected);
                }
                assert_eq!(y.iter().filter(|v| **v != 0.0).count(), flat.iter().filter(|v| **v != 0.0).count());
                let (mut in_place, mut flat_in_place) = (x.clone(), nchw.clone());
                dropout_blocked(isa, shape, &mask, None, &mut in_place);
                dropout(isa, &mask, None, &mut flat_in_place);
                assert_eq!((in_place, flat_in_place), (y, flat));
            }
        }
    }

    #[test]
    fn a_part_of_a_tensor_has_its_part_of_the_mask() {
        let whole = Blocked::new(4, 19, 3, 5);
        let part = Blocked { n: 2, ..whole };
        let mask = Dropout::new(7, 3, 1, 0.35);
        let half = part.n * part.c * part.pixels();
        let (x, nchw) = blocked(part, 1);
        for isa in Isa::available() {
            let mut y = vec![f32::NAN; x.len()];
            dropout_blocked(isa, part, &mask.from_element(half as u64), Some(&x), &mut y);
            for i in 0..half {
                let kept = mask.keeps((half + i) as u64);
                assert_eq!(y[position(part, i)] != 0.0, kept && nchw[i] != 0.0);
            }
        }
    }

    /// PyTorch multiplies by the mask.
    #[test]
    fn infinity_that_falls_is_not_a_number() {
        let mask = Dropout::new(7, 3, 1, 0.5);
        let shape = Blocked::new(1, 19, 3, 5);
        let nchw = vec![f32::INFINITY; 19 * 15];
        let x = crate::testing::scattered(shape, &nchw);
        for isa in Isa::available() {
            let (mut y, mut flat) = (vec![0.0; x.len()], vec![0.0; nchw.len()]);
            dropout_blocked(isa, shape, &mask, Some(&x), &mut y);
            dropout(isa, &mask, Some(&nchw), &mut flat);
            for (i, flat) in flat.iter().enumerate() {
                for y in [*flat, y[position(shape, i)]] {
                    assert!(if mask.keeps(i as u64) { y == f32::INFINITY } else { y.is_nan() }, "element {i}: {y}");
                }
            }
        }
    }

    /// Counts over `samples` of events of probability `p` lie within six standard deviations.
    #[track_caller]
    fn expect_probability(count: usize, samples: usize, p: f64) {
        let (mean, deviation) = (samples as f64 * p, (samples as f64 * p * (1.0 - p)).sqrt());
        assert!((count as f64 - mean).abs() <= 6.0 * deviation, "{count} of {samples}, expected {mean}");
    }

    #[test]
    fn elements_fall_at_the_rate_and_independently() {
        let samples = 1 << 20;
        for rate in [0.0, 0.1, 0.35, 0.5, 0.9] {
            let fallen = |mask: Dropout| (0..samples as u64).map(move |i| !mask.keeps(i));
            let here = Dropout::new(11, 4, 2, rate);
            expect_probability(fallen(here).filter(|f| *f).count(), samples, rate);
            let neighbours = (0..samples as u64).filter(|i| !here.keeps(*i) && !here.keeps(i + 1)).count();
            expect_probability(neighbours, samples, rate * rate);
            // Another seed, step or stream is another mask.
            for other in [(12, 4, 2), (11, 5, 2), (11, 4, 3), (4, 11, 2)] {
                let other = Dropout::new(other.0, other.1, other.2, rate);
                let both = fallen(here).zip(fallen(other)).filter(|(a, b)| *a && *b).count();
                expect_probability(both, samples, rate * rate);
            }
        }
    }

    #[test]
    fn the_mask_never_changes() {
        let kept: String = (0..32).map(|i| if keep(1, 2, 3, i, 0.5) { '1' } else { '0' }).collect();
        assert_eq!(kept, "01000101011011000010001100000000");
        assert_eq!(lowbias32(0), 0);
        assert_eq!(splitmix64(0), 0xE220_A839_7B1D_CDAF, "first output of the published generator");
    }

    #[test]
    fn threads_do_not_matter() {
        let x = filled(5 * TASK_LEN + 7, 4);
        let mask = Dropout::new(1, 2, 3, 0.5);
        same_bits_on_any_threads(|isa| {
            let mut y = vec![0.0; x.len()];
            dropout(isa, &mask, Some(&x), &mut y);
            vec![y]
        });
    }
}

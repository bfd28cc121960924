//! Numbers as sums of bf16 numbers, the operands of [`crate::micro::amx`].
//!
//! bf16 has 8 bits of significand and the exponents of f32. A number of fp16 (11 bits) is the sum of two of them, hi +
//! lo, one of f32 (24 bits) of three, hi + mid + lo. Products of two bf16 numbers are exact in f32. For fp16, all four
//! are summed. For f32, six of the nine matter: mid and lo are at most 2^-8 and 2^-16 of a number, so what is left out
//! (mid * lo, lo * mid, lo * lo) is about 2^-24 of a product, as much as f32 rounds it (Henry, Tang and Heinecke,
//! "Leveraging the bfloat16 Artificial Intelligence Datatype for Higher-Precision Computations", 2019).
//!
//! An infinity has no parts: infinity times zero is NaN. Subnormal parts count as zero, so numbers below 2^-110 have
//! fewer bits.

use crate::half::HalfType;
use crate::simd::Simd;

/// Into how many bf16 numbers a number is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// A bf16 number is one itself.
    One,
    /// fp16.
    Two,
    /// f32.
    Three,
}

impl Parts {
    /// Those of a format; of f32 if there is none.
    pub(crate) const fn of(ty: Option<HalfType>) -> Self {
        match ty {
            Some(HalfType::Bf16) => Self::One,
            Some(HalfType::Fp16) => Self::Two,
            None => Self::Three,
        }
    }

    /// How many there are.
    pub(crate) const fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
        }
    }

    /// Whether tiles pay for a product of matrices with `rows` and `columns`: each number is divided once and multiplied
    /// with that many others. For f32, whose six products leave less of a tile's speed, that has to be often (measured).
    pub(crate) const fn pays(self, rows: usize, columns: usize) -> bool {
        const OFTEN: usize = 50;
        match self {
            Self::One | Self::Two => true,
            Self::Three => rows.saturating_mul(columns) / OFTEN >= rows + columns,
        }
    }
}

/// The `P` parts of 16 numbers, the largest first: bf16 in the upper half of a word whose lower half is zero.
#[inline(always)]
pub(crate) fn split<S: Simd, const P: usize>(simd: S, value: S::F32) -> [S::U32; P] {
    // Of three parts, the first two are rounded: what is left is half as large, and products that are left out a quarter.
    let half = simd.splat_u32(if P > 2 { 0x8000 } else { 0 });
    let high = simd.splat_u32(0xffff_0000);
    let mut rest = value;
    let mut parts = [half; P];
    for part in &mut parts {
        *part = simd.and_u32(simd.add_u32(simd.bits(rest), half), high);
        rest = simd.sub(rest, simd.float(*part));
    }
    parts
}

/// Stores the `P` parts of 16 numbers as half words, from `at` on and `pitch` apart.
#[inline(always)]
pub(crate) fn store_parts<S: Simd, const P: usize>(simd: S, value: S::F32, to: &mut [u16], at: usize, pitch: usize) {
    let parts = split::<S, P>(simd, value);
    for (index, part) in parts.into_iter().enumerate() {
        if let Some(to) = to.get_mut(at + index * pitch..).and_then(|to| to.first_chunk_mut()) {
            simd.store_u16(simd.shr_u32::<16>(part), to);
        }
    }
}

/// Stores the `P` parts of 16 pairs of numbers as words, the first number in the lower half, likewise.
#[inline(always)]
pub(crate) fn store_pairs<S: Simd, const P: usize>(
    simd: S,
    pair: [S::F32; 2],
    to: &mut [u32],
    at: usize,
    pitch: usize,
) {
    let (first, second) = (split::<S, P>(simd, pair[0]), split::<S, P>(simd, pair[1]));
    for index in 0..P {
        if let Some(to) = to.get_mut(at + index * pitch..).and_then(|to| to.first_chunk_mut()) {
            simd.store_u32(simd.or_u32(simd.shr_u32::<16>(first[index]), second[index]), to);
        }
    }
}

/// Calls a function for the number of parts.
macro_rules! for_parts {
    ($parts:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $parts {
            $crate::parts::Parts::One => $function::<1>($($argument),*),
            $crate::parts::Parts::Two => $function::<2>($($argument),*),
            $crate::parts::Parts::Three => $function::<3>($($argument),*),
        }
    };
}
pub(crate) use for_parts;

/// The memory of f32 numbers as that of words.
pub(crate) fn words(memory: &mut [f32]) -> &mut [u32] {
    // SAFETY: f32 and u32 have the same size and alignment, and all bits are valid for both.
    unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), memory.len()) }
}

/// The same, to be read.
pub(crate) fn read_words(memory: &[f32]) -> &[u32] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), memory.len()) }
}

/// The memory of f32 numbers as that of half words, two for each.
pub(crate) fn half_words(memory: &mut [f32]) -> &mut [u16] {
    // SAFETY: f32 is as large as two u16 and aligned for them, and all bits are valid for both.
    unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), 2 * memory.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Lanes, vectorised};
    use crate::{C0, Isa};
    use half::{bf16, f16};

    vectorised! {
        fn parts [const P: usize,] [P] (simd, values: &Lanes) -> [Lanes; P] {
            split::<S, P>(simd, simd.load(values)).map(|part| {
                let mut words = [0; C0];
                simd.store_u32(part, &mut words);
                words.map(f32::from_bits)
            })
        }
    }

    fn expect<const P: usize>(isa: Isa, values: Lanes) {
        let parts = parts::<P>(isa, &values);
        assert!(parts.iter().flatten().all(|part| part.is_nan() || bf16::from_f32(*part).to_f32() == *part));
        for (lane, value) in values.into_iter().enumerate() {
            let sum: f64 = parts.iter().map(|part| f64::from(part[lane])).sum();
            match value.is_nan() {
                true => assert!(sum.is_nan()),
                false => assert!(value.is_infinite() || sum == f64::from(value), "{sum:e} for {value:e}"),
            }
        }
    }

    #[test]
    fn every_number_is_the_sum_of_its_parts() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        for isa in Isa::available() {
            for bits in all.as_chunks::<C0>().0 {
                expect::<1>(isa, bits.map(|bits| bf16::from_bits(bits).to_f32()));
                expect::<2>(isa, bits.map(|bits| f16::from_bits(bits).to_f32()));
                // Significands of all lengths, exponents from 2^-110 to 2^119.
                let single = |bits| (17 + u32::from(bits) % 230) << 23 | u32::from(bits).wrapping_mul(0x9e37_79b9) >> 9;
                expect::<3>(isa, bits.map(|bits| f32::from_bits(single(bits))));
            }
        }
    }
}

//! Numbers of half precision as sums of bf16 numbers, the operands of [`crate::micro::amx`].
//!
//! bf16 has 8 bits of significand, fp16 has 11: x = hi + lo, where hi has the leading 8 bits of x and lo the others.
//! Both are exact in bf16, whose exponents are those of f32, and so are all products of two in f32.

use crate::half::HalfType;

/// Into how many bf16 numbers a number is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// A bf16 number is one itself.
    One,
    /// A finite fp16 number is the sum of two. An infinity is none: infinity times zero, the lower part of most numbers,
    /// is NaN.
    Two,
}

const HIGH: u32 = 0xffff_0000;

impl Parts {
    /// Those of a format.
    pub(crate) const fn of_type(ty: HalfType) -> Self {
        match ty {
            HalfType::Bf16 => Self::One,
            HalfType::Fp16 => Self::Two,
        }
    }

    /// How many there are.
    pub(crate) const fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    /// The parts of a number of the format in the upper halves of words, the larger one first; the second is zero where
    /// there is only one.
    #[inline(always)]
    pub(crate) fn wide(self, value: f32) -> [u32; 2] {
        let high = value.to_bits() & HIGH;
        match self {
            Self::One => [high, 0],
            Self::Two => [high, (value - f32::from_bits(high)).to_bits() & HIGH],
        }
    }
}

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
    use half::{bf16, f16};

    #[test]
    fn every_number_is_the_sum_of_its_parts() {
        for bits in 0..=u16::MAX {
            let (fp16, bf16) = (f16::from_bits(bits).to_f32(), bf16::from_bits(bits).to_f32());
            for (parts, value) in [(Parts::Two, fp16), (Parts::One, bf16)] {
                let [high, low] = parts.wide(value).map(f32::from_bits);
                assert!([high, low].iter().all(|part| part.is_nan() || bf16::from_f32(*part).to_f32() == *part));
                if value.is_nan() {
                    assert!(high.is_nan());
                } else if value.is_finite() {
                    assert_eq!(high + low, value, "{parts:?} of {value:e}");
                }
            }
        }
    }
}

//! Numbers of half precision, held in f32: what the registers of a simulated device can hold.
//!
//! A value of fp16 or bf16 is kept as the f32 of the same value, so that every kernel for f32 works on it: a product of
//! two is exact in f32 (11 + 11 bits of significand), and a sum, product or quotient that is rounded to f32 first and
//! to half precision then has the bits of one rounding (24 >= 2 * 11 + 2; Figueroa, "When is double rounding
//! innocuous?").

use crate::{Isa, planes::TASK_LEN, simd::vectorised};
use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// A format of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HalfType {
    /// IEEE 754 binary16: 11 bits of significand, exponents from -14 to 15.
    Fp16,
    /// bfloat16: 8 bits of significand, the exponents of f32.
    Bf16,
}

/// What becomes of results beyond the largest finite number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overflow {
    /// The largest finite number of their sign (the only mode of the Ascend 910A).
    Saturate,
    /// Infinity, as IEEE 754 has it.
    Infinite,
}

/// What becomes of results below the smallest normal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subnormals {
    /// They keep what bits there are.
    Keep,
    /// They become zero of their sign.
    Flush,
}

/// Which exponents there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Range {
    /// Those of the format.
    Format {
        /// Above them.
        overflow: Overflow,
        /// Below them.
        subnormals: Subnormals,
    },
    /// Those of f32: only the significand is rounded. What a step costs in such arithmetic is the price of the
    /// significand alone, the measure for what the range costs on top.
    Unbounded,
}

/// What rounding did to the elements of a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Elements that were not zero before.
    pub nonzero: u64,
    /// Elements that were not zero and are now.
    pub flushed: u64,
    /// Elements beyond the largest finite number, infinities and NaN among them: the device's sticky flag.
    pub overflowed: u64,
}

impl Tally {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            nonzero: self.nonzero + other.nonzero,
            flushed: self.flushed + other.flushed,
            overflowed: self.overflowed + other.overflowed,
        }
    }
}

/// Rounds values to a format, half to even, and counts. NaN stays NaN in every mode.
///
/// Kernels whose tasks round what they have just computed, while it is in their cache, spare the tensor a way to the
/// memory and back.
#[derive(Debug)]
pub struct Rounding {
    isa: Isa,
    rule: Rule,
    nonzero: AtomicU64,
    flushed: AtomicU64,
    overflowed: AtomicU64,
}

impl Rounding {
    /// To a format with these exponents; nothing is counted yet.
    #[must_use]
    pub fn new(isa: Isa, ty: HalfType, range: Range) -> Self {
        let none = AtomicU64::default;
        Self { isa, rule: Rule::of(ty, range), nonzero: none(), flushed: none(), overflowed: none() }
    }

    /// Rounds what a task has computed.
    pub fn part(&self, values: &mut [f32]) {
        for values in values.chunks_mut(TASK_LEN) {
            let [nonzero, flushed, overflowed] = round_chunk(self.isa, self.rule, values).map(u64::from);
            self.nonzero.fetch_add(nonzero, Ordering::Relaxed);
            self.flushed.fetch_add(flushed, Ordering::Relaxed);
            self.overflowed.fetch_add(overflowed, Ordering::Relaxed);
        }
    }

    /// Rounds a tensor, in parallel.
    pub fn whole(&self, values: &mut [f32]) {
        values.par_chunks_mut(TASK_LEN).for_each(|part| self.part(part));
    }

    /// What it did so far.
    pub fn tally(&self) -> Tally {
        let [nonzero, flushed, overflowed] =
            [&self.nonzero, &self.flushed, &self.overflowed].map(|count| count.load(Ordering::Relaxed));
        Tally { nonzero, flushed, overflowed }
    }
}

/// A format as the bits of f32 see it.
#[derive(Clone, Copy, Debug)]
struct Rule {
    /// Bits of f32's significand that the format lacks.
    dropped: u32,
    /// Magnitudes below (as bits) are rounded to multiples of 2^-24, fp16's smallest subnormal; 0 if there are none
    /// such.
    coarse_below: u32,
    /// Magnitudes below (as bits, after rounding) become zero.
    zero_below: u32,
    /// Largest finite magnitude, as bits.
    largest: u32,
    /// What becomes of larger ones, as bits.
    beyond: u32,
}

const INFINITY: u32 = 0x7f80_0000;
const SIGN: u32 = 0x8000_0000;

impl Rule {
    fn of(ty: HalfType, range: Range) -> Self {
        let dropped = match ty {
            HalfType::Fp16 => 13,
            HalfType::Bf16 => 16,
        };
        let largest_of_f32 = INFINITY - (1 << dropped);
        let Range::Format { overflow, subnormals } = range else {
            return Self { dropped, coarse_below: 0, zero_below: 0, largest: largest_of_f32, beyond: INFINITY };
        };
        let (largest, smallest_normal, coarse_below) = match ty {
            HalfType::Fp16 => (65504f32.to_bits(), FP16_SMALLEST_NORMAL.to_bits(), FP16_SMALLEST_NORMAL.to_bits()),
            HalfType::Bf16 => (largest_of_f32, f32::MIN_POSITIVE.to_bits(), 0),
        };
        Self {
            dropped,
            coarse_below,
            zero_below: if subnormals == Subnormals::Flush { smallest_normal } else { 0 },
            largest,
            beyond: if overflow == Overflow::Saturate { largest } else { INFINITY },
        }
    }
}

/// 2^-14.
const FP16_SMALLEST_NORMAL: f32 = 1.0 / 16384.0;

vectorised! {
    /// Counts of nonzero, flushed and overflowed elements.
    fn round_chunk(_simd, rule: Rule, values: &mut [f32]) -> [u32; 3] {
        let (mut nonzero, mut flushed, mut overflowed) = (0u32, 0u32, 0u32);
        let below_half = (1u32 << (rule.dropped - 1)) - 1;
        let kept = !((1u32 << rule.dropped) - 1);
        for value in values {
            let bits = value.to_bits();
            let (sign, magnitude) = (bits & SIGN, bits & !SIGN);
            let odd = (magnitude >> rule.dropped) & 1;
            let fine = (magnitude + below_half + odd) & kept;
            // Numbers in [0.5, 1) lie 2^-24 apart, so the addition rounds to fp16's subnormals, half to even.
            let coarse = ((f32::from_bits(magnitude) + 0.5) - 0.5).to_bits();
            let rounded = if magnitude < rule.coarse_below { coarse } else { fine };
            let rounded = if rounded < rule.zero_below { 0 } else { rounded };
            let over = rounded > rule.largest;
            let rounded = if over { rule.beyond } else { rounded };
            let rounded = if magnitude > INFINITY { magnitude } else { rounded };
            nonzero += u32::from(magnitude != 0);
            flushed += u32::from(magnitude != 0 && rounded == 0);
            overflowed += u32::from(over);
            *value = f32::from_bits(sign | rounded);
        }
        [nonzero, flushed, overflowed]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    const KEEP: Range = Range::Format { overflow: Overflow::Infinite, subnormals: Subnormals::Keep };
    const SATURATE: Range = Range::Format { overflow: Overflow::Saturate, subnormals: Subnormals::Keep };
    const FLUSH: Range = Range::Format { overflow: Overflow::Infinite, subnormals: Subnormals::Flush };

    fn rounded(range: Range, values: &mut [f32]) -> Tally {
        let rounding = Rounding::new(Isa::best(), HalfType::Fp16, range);
        rounding.whole(values);
        rounding.tally()
    }

    /// Every half, the f32 half way to the next, and their neighbours in f32: all that rounding has to decide.
    fn decisive(of_bits: impl Fn(u16) -> f32) -> Vec<f32> {
        let mut all = Vec::new();
        for bits in 0..=u16::MAX {
            let (here, next) = (of_bits(bits), of_bits(bits.wrapping_add(1)));
            let middle = ((f64::from(here) + f64::from(next)) / 2.0) as f32;
            for x in [here, middle] {
                all.extend([
                    x,
                    f32::from_bits(x.to_bits().wrapping_add(1)),
                    f32::from_bits(x.to_bits().wrapping_sub(1)),
                ]);
            }
        }
        all.extend([65504.0, 65519.99, 65520.0, 65536.0, 1e9, f32::MAX, f32::MIN_POSITIVE, 1e-45, -1e-45]);
        all
    }

    fn expect(ty: HalfType, range: Range, values: &[f32], wanted: impl Fn(f32) -> f32) {
        for isa in Isa::available() {
            let mut rounded = values.to_vec();
            Rounding::new(isa, ty, range).whole(&mut rounded);
            for (x, y) in values.iter().zip(rounded) {
                let w = wanted(*x);
                assert!(y.to_bits() == w.to_bits() || (y.is_nan() && w.is_nan()), "{x:e} became {y:e}, not {w:e}");
            }
        }
    }

    #[test]
    fn every_half_and_every_middle_rounds_as_the_half_crate_does() {
        let values = decisive(|bits| f16::from_bits(bits).to_f32());
        expect(HalfType::Fp16, KEEP, &values, |x| f16::from_f32(x).to_f32());
        let values = decisive(|bits| bf16::from_bits(bits).to_f32());
        expect(HalfType::Bf16, KEEP, &values, |x| bf16::from_f32(x).to_f32());
    }

    #[test]
    fn a_saturating_device_hides_infinities_and_counts_them() {
        let values = decisive(|bits| f16::from_bits(bits).to_f32());
        expect(HalfType::Fp16, SATURATE, &values, |x| {
            let y = f16::from_f32(x);
            if y.is_infinite() { f32::copysign(65504.0, x) } else { y.to_f32() }
        });
        let mut few = [65519.0, 65520.0, -1e9, f32::NAN, f32::NEG_INFINITY, 0.0, 1.0];
        let tally = rounded(SATURATE, &mut few);
        assert_eq!(tally, Tally { nonzero: 6, flushed: 0, overflowed: 4 });
        assert!(few[3].is_nan() && few[4] == -65504.0);
    }

    #[test]
    fn subnormals_are_flushed_or_kept() {
        let values = decisive(|bits| f16::from_bits(bits).to_f32());
        expect(HalfType::Fp16, FLUSH, &values, |x| {
            let y = f16::from_f32(x).to_f32();
            if y.abs() < FP16_SMALLEST_NORMAL { f32::copysign(0.0, x) } else { y }
        });
        let mut few = [6.2e-5, 6.0e-5, 1e-8, 0.0, -6.0e-5];
        assert_eq!(rounded(FLUSH, &mut few).flushed, 3);
        let mut few = [6.0e-5, 1e-8, 3.0e-8, 0.0];
        assert_eq!(rounded(KEEP, &mut few).flushed, 1);
        assert!(few[0] > 0.0 && few[2] > 0.0);
    }

    #[test]
    fn without_bounds_only_the_significand_is_rounded() {
        let values = decisive(|bits| f16::from_bits(bits).to_f32());
        for isa in Isa::available() {
            for scale in [1e-20f32, 1.0, 1e20] {
                let mut rounded: Vec<f32> = values.iter().map(|x| x * scale).collect();
                let exact = rounded.clone();
                Rounding::new(isa, HalfType::Fp16, Range::Unbounded).whole(&mut rounded);
                for (x, y) in exact.iter().zip(rounded).filter(|(x, _)| x.is_normal()) {
                    assert!((x - y).abs() <= x.abs() * 2f32.powi(-11) || x.abs() > 3.4e38, "{x:e} became {y:e}");
                    assert_eq!(y.to_bits() & 0x1fff, 0);
                }
            }
        }
    }

    #[test]
    fn sums_and_products_of_halves_are_rounded_once() {
        // Every half against a spread of others: f32 arithmetic, then rounding, is the exact result, then rounding.
        let others: Vec<f32> =
            (0..64).map(|i| f16::from_bits(i * 1021 + 7).to_f32()).filter(|x| x.is_finite()).collect();
        let exactly = |x: f64| f16::from_f64(x).to_f32();
        for bits in (0..=u16::MAX).step_by(3) {
            let a = f16::from_bits(bits).to_f32();
            if !a.is_finite() {
                continue;
            }
            let mut results: Vec<f32> = others.iter().flat_map(|b| [a + b, a * b]).collect();
            Rounding::new(Isa::portable(), HalfType::Fp16, KEEP).whole(&mut results);
            for (b, pair) in others.iter().zip(results.chunks(2)) {
                let (a, b) = (f64::from(a), f64::from(*b));
                assert_eq!((pair[0], pair[1]), (exactly(a + b), exactly(a * b)), "{a:e} and {b:e}");
            }
        }
    }
}

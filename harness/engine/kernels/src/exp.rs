//! The exponential function, in a form that the compiler vectorises.

use crate::simd::Simd;

/// ln 2 in two parts: the first has so few bits that its product with an exponent is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// Adding it rounds to a whole number and leaves that number in the low bits.
const ROUND: f32 = 12_582_912.0;

/// `e^x` to one unit in the last place for results that are normal numbers; zero below -104, infinity above 88.73.
///
/// `x = n ln 2 + r`, `e^x = 2^n (1 + r + r^2 p(r))` with the polynomial of Cephes' `expf` (Moshier, 1992).
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: f32) -> f32 {
    // Beyond these bounds the result does not change any more. NaN passes both.
    let x = if x > 90.0 { 90.0 } else { x };
    let x = if x < -105.0 { -105.0 } else { x };
    let (part, n) = reduced(simd, x);
    // 2^n in two factors, for n reaches from -152 to 130.
    let half = n >> 1;
    (part + 1.0) * power_of_two(half) * power_of_two(n - half)
}

/// `e^x - 1` to two units in the last place; -1 below -20, infinity above 88.73.
#[inline(always)]
pub(crate) fn expm1<S: Simd>(simd: S, x: f32) -> f32 {
    let x = if x > 90.0 { 90.0 } else { x };
    let x = if x < -20.0 { -20.0 } else { x };
    let (part, n) = reduced(simd, x);
    // 2^n (1 + p) - 1 = 2^n (p + (1 - 2^-n)), which is p itself where n is 0. The lower bound of 2^-n is lost beside 1.
    let one = 1.0 - power_of_two(-n.min(100));
    let half = n >> 1;
    (part + one) * power_of_two(half) * power_of_two(n - half)
}

/// `e^r - 1` and `n`, where `x = n ln 2 + r`.
#[inline(always)]
fn reduced<S: Simd>(simd: S, x: f32) -> (f32, i32) {
    let shifted = simd.fma(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = simd.fma(n, -LN2_LOW, simd.fma(n, -LN2_HIGH, x));
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = simd.fma(p, r, coefficient);
    }
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    (simd.fma(r * r, p, r), n)
}

/// `2^n` for n from -126 to 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) << 23).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, simd::vectorised};

    vectorised! {
        fn exponentials(simd, x: &[f32], y: &mut [f32]) -> () {
            y.iter_mut().zip(x).for_each(|(y, x)| *y = exp(simd, *x));
        }
    }

    #[test]
    fn is_right_to_one_unit_in_the_last_place() {
        // Every 1009th number of the range, of both signs.
        let x: Vec<f32> = (0..=88.72f32.to_bits())
            .step_by(1009)
            .map(f32::from_bits)
            .chain((0..=110f32.to_bits()).step_by(1009).map(|bits| -f32::from_bits(bits)))
            .collect();
        for isa in Isa::available() {
            let mut y = vec![0.0; x.len()];
            exponentials(isa, &x, &mut y);
            for (x, y) in x.iter().zip(&y) {
                let exact = f64::from(*x).exp();
                let unit = f64::from((exact as f32).next_up()) - f64::from(exact as f32);
                assert!((f64::from(*y) - exact).abs() <= unit, "exp({x}) = {y} instead of {exact}");
            }
        }
    }

    #[test]
    fn limits_and_nan() {
        let x = [0.0, -0.0, f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 1000.0, -1000.0, 88.9];
        for isa in Isa::available() {
            let mut y = [9.0; 8];
            exponentials(isa, &x, &mut y);
            assert_eq!((y[0], y[1], y[2], y[3]), (1.0, 1.0, 0.0, f32::INFINITY));
            assert!(y[4].is_nan());
            assert_eq!((y[5], y[6], y[7]), (f32::INFINITY, 0.0, f32::INFINITY));
        }
    }
}

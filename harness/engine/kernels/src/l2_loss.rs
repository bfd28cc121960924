//! L2Loss: half the sum of squares.

use crate::{
    C0, Isa, parallel,
    planes::TASK_LEN,
    simd::{pixels, vectorised},
};

/// `sum(x^2) / 2`, from exact products of f32 summed in f64.
#[must_use]
pub fn l2_loss(isa: Isa, x: &[f32]) -> f64 {
    0.5 * parallel::sum(x.len(), TASK_LEN, |range| sum_of_squares(isa, &x[range]))
}

vectorised! {
    fn sum_of_squares(simd, x: &[f32]) -> f64 {
        let whole = pixels(x);
        let mut sums = simd.load_f64(&[0.0; C0]);
        for x in whole {
            let x = simd.widen(simd.load(x));
            sums = simd.mul_add_f64(x, x, sums);
        }
        let rest = x[whole.len() * C0..].iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>();
        simd.array_f64(sums).into_iter().sum::<f64>() + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{filled, same_bits_on_any_threads};

    #[test]
    fn is_half_the_sum_of_squares() {
        for isa in Isa::available() {
            assert_eq!(l2_loss(isa, &[]), 0.0);
            assert_eq!(l2_loss(isa, &[3.0, -4.0]), 12.5);
            for len in [1, 15, 16, 17, 1000, 3 * TASK_LEN + 5] {
                let x = filled(len, 1);
                let expected = 0.5 * x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
                assert!((l2_loss(isa, &x) - expected).abs() <= 1e-12 * expected);
            }
        }
    }

    #[test]
    fn threads_do_not_matter() {
        let x = filled(7 * TASK_LEN + 5, 2);
        same_bits_on_any_threads(|isa| {
            let bits = l2_loss(isa, &x).to_bits();
            vec![vec![f32::from_bits(bits as u32), f32::from_bits((bits >> 32) as u32)]]
        });
    }
}

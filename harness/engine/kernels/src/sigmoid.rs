//! Sigmoid and its gradient, element by element.

use crate::{
    Isa,
    exp::exp,
    planes::{TASK_LEN, expect_len},
    simd::vectorised,
};
use rayon::prelude::*;

/// `y = 1 / (1 + exp(-x))`.
///
/// # Panics
/// If the lengths differ.
pub fn sigmoid(isa: Isa, x: &[f32], y: &mut [f32]) {
    expect_len("the output", y.len(), x.len());
    y.par_chunks_mut(TASK_LEN).zip(x.par_chunks(TASK_LEN)).for_each(|(y, x)| {
        y.copy_from_slice(x);
        chunk(isa, y);
    });
}

/// [`sigmoid`] with the result in the place of the input.
pub fn sigmoid_in_place(isa: Isa, x_y: &mut [f32]) {
    x_y.par_chunks_mut(TASK_LEN).for_each(|y| chunk(isa, y));
}

/// `dx = dy * y * (1 - y)`.
///
/// # Panics
/// If the lengths differ.
pub fn sigmoid_gradient(isa: Isa, y: &[f32], dy: &[f32], dx: &mut [f32]) {
    expect_len("the output gradient", dy.len(), dx.len());
    dx.copy_from_slice(dy);
    sigmoid_gradient_in_place(isa, y, dx);
}

/// [`sigmoid_gradient`] with the result in the place of the output gradient.
///
/// # Panics
/// If the lengths differ.
pub fn sigmoid_gradient_in_place(isa: Isa, y: &[f32], dy_dx: &mut [f32]) {
    expect_len("the output", y.len(), dy_dx.len());
    dy_dx.par_chunks_mut(TASK_LEN).zip(y.par_chunks(TASK_LEN)).for_each(|(dx, y)| gradient_chunk(isa, y, dx));
}

vectorised! {
    fn chunk(simd, x: &mut [f32]) -> () {
        for x in x {
            *x = 1.0 / (1.0 + exp(simd, -*x));
        }
    }
}

vectorised! {
    fn gradient_chunk(_simd, y: &[f32], dx: &mut [f32]) -> () {
        for (dx, y) in dx.iter_mut().zip(y) {
            *dx *= y * (1.0 - y);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::filled;

    #[test]
    fn values_and_slopes() {
        let x: Vec<f32> = filled(1000, 1).iter().map(|v| v * 20.0).chain([0.0, 200.0, -200.0]).collect();
        for isa in Isa::available() {
            let mut y = vec![f32::NAN; x.len()];
            sigmoid(isa, &x, &mut y);
            for (x, y) in x.iter().zip(&y) {
                let truth = 1.0 / (1.0 + (-f64::from(*x)).exp());
                assert!((f64::from(*y) - truth).abs() <= 3e-7 * truth.max(1e-30), "{x}: {y} {truth}");
            }
            let mut dx = vec![2.0; x.len()];
            sigmoid_gradient_in_place(isa, &y, &mut dx);
            assert!(dx.iter().zip(&y).all(|(d, y)| (d - 2.0 * y * (1.0 - y)).abs() < 1e-7));
            sigmoid_in_place(isa, &mut dx);
            assert!(dx.iter().all(|d| (0.5..=0.7).contains(d)));
        }
    }
}

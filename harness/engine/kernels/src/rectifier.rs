//! Rectifiers, element by element in any layout, and their gradient.

use crate::{
    Isa,
    planes::{TASK_LEN, expect_len},
    simd::{Simd, vectorised},
};
use rayon::prelude::*;

/// `max(x, 0)`, and at most a ceiling; NaN stays NaN.
#[derive(Clone, Copy, Debug)]
pub struct Rectifier {
    /// NaN without one: it is never reached.
    pub(crate) ceiling: f32,
}

impl Rectifier {
    /// Without a ceiling.
    pub const RELU: Self = Self { ceiling: f32::NAN };
    /// `min(max(x, 0), 6)`.
    pub const RELU6: Self = Self { ceiling: 6.0 };

    #[inline(always)]
    fn of(self, x: f32) -> f32 {
        let x = if x < 0.0 { 0.0 } else { x };
        if x > self.ceiling { self.ceiling } else { x }
    }

    #[inline(always)]
    fn passed(self, y: f32, dy: f32) -> f32 {
        if y <= 0.0 || y >= self.ceiling { 0.0 } else { dy }
    }

    /// Its value.
    #[inline(always)]
    pub(crate) fn apply<S: Simd>(self, simd: S, x: S::F32) -> S::F32 {
        let (y, ceiling) = (simd.relu(x), simd.splat(self.ceiling));
        simd.select(simd.greater(y, ceiling), ceiling, y)
    }

    /// What passes of the gradient `dy` where the value is `y`.
    #[inline(always)]
    pub(crate) fn pass<S: Simd>(self, simd: S, y: S::F32, dy: S::F32) -> S::F32 {
        let (zero, ceiling) = (simd.splat(0.0), simd.splat(self.ceiling));
        simd.select(simd.or(simd.at_most(y, zero), simd.at_most(ceiling, y)), zero, dy)
    }
}

/// Rectifies each element.
///
/// # Panics
/// If the lengths differ.
pub fn relu(isa: Isa, rectifier: Rectifier, x: Option<&[f32]>, y: &mut [f32]) {
    let Some(x) = x else {
        return y.par_chunks_mut(TASK_LEN).for_each(|x| relu_chunk_in_place(isa, rectifier, x));
    };
    expect_len("the output", y.len(), x.len());
    y.par_chunks_mut(TASK_LEN).zip(x.par_chunks(TASK_LEN)).for_each(|(y, x)| relu_chunk(isa, rectifier, x, y));
}

/// Gradient of [`relu`]: `dy` but zero where `y` is at a bound, as PyTorch has it (it passes where `y` is NaN).
///
/// # Panics
/// If the lengths differ.
pub fn relu_gradient(isa: Isa, rectifier: Rectifier, y: &[f32], dy: Option<&[f32]>, dx: &mut [f32]) {
    expect_len("the input gradient", dx.len(), y.len());
    let Some(dy) = dy else {
        let chunks = dx.par_chunks_mut(TASK_LEN).zip(y.par_chunks(TASK_LEN));
        return chunks.for_each(|(dx, y)| relu_gradient_chunk_in_place(isa, rectifier, y, dx));
    };
    expect_len("the output gradient", dy.len(), y.len());
    dx.par_chunks_mut(TASK_LEN)
        .zip(y.par_chunks(TASK_LEN).zip(dy.par_chunks(TASK_LEN)))
        .for_each(|(dx, (y, dy))| relu_gradient_chunk(isa, rectifier, y, dy, dx));
}

vectorised! {
    fn relu_chunk(_simd, rectifier: Rectifier, x: &[f32], y: &mut [f32]) -> () {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = rectifier.of(*x));
    }
}

vectorised! {
    fn relu_chunk_in_place(_simd, rectifier: Rectifier, x_y: &mut [f32]) -> () {
        x_y.iter_mut().for_each(|x| *x = rectifier.of(*x));
    }
}

vectorised! {
    fn relu_gradient_chunk(_simd, rectifier: Rectifier, y: &[f32], dy: &[f32], dx: &mut [f32]) -> () {
        dx.iter_mut().zip(y.iter().zip(dy)).for_each(|(dx, (y, dy))| *dx = rectifier.passed(*y, *dy));
    }
}

vectorised! {
    fn relu_gradient_chunk_in_place(_simd, rectifier: Rectifier, y: &[f32], dy_dx: &mut [f32]) -> () {
        dy_dx.iter_mut().zip(y).for_each(|(d, y)| *d = rectifier.passed(*y, *d));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{filled, same_bits_on_any_threads};

    /// Values around zero: negative, both zeros, positive, NaN, infinities; then many more.
    fn values() -> Vec<f32> {
        let mut x = vec![-1.5, -0.0, 0.0, 2.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 6.0, 7.5];
        x.extend(filled(3 * TASK_LEN + 5, 1));
        x
    }

    fn bits(x: &[f32]) -> Vec<u32> {
        x.iter().map(|v| v.to_bits()).collect()
    }

    #[test]
    fn relu_keeps_what_is_positive_and_nan() {
        let x = values();
        for isa in Isa::available() {
            let mut y = vec![9.0; x.len()];
            relu(isa, Rectifier::RELU, Some(&x), &mut y);
            assert!(y[4].is_nan());
            assert_eq!((y[0], y[1], y[2], y[3], y[5], y[6]), (0.0, 0.0, 0.0, 2.5, f32::INFINITY, 0.0));
            assert!(x.iter().zip(&y).all(|(x, y)| x.is_nan() || *y == x.max(0.0)));
            let mut in_place = x.clone();
            relu(isa, Rectifier::RELU, None, &mut in_place);
            assert_eq!(bits(&in_place), bits(&y));
        }
    }

    #[test]
    fn the_gradient_of_relu_is_zero_at_zero() {
        let y = values();
        let dy = filled(y.len(), 2);
        for (isa, rectifier) in
            Isa::available().into_iter().flat_map(|isa| [(isa, Rectifier::RELU), (isa, Rectifier::RELU6)])
        {
            let ceiling = if rectifier.ceiling.is_nan() { f32::INFINITY } else { rectifier.ceiling };
            let mut dx = vec![9.0; y.len()];
            relu_gradient(isa, rectifier, &y, Some(&dy), &mut dx);
            for i in 0..y.len() {
                let within = y[i] > 0.0 && (y[i] < ceiling || y[i] == f32::INFINITY && ceiling == y[i]);
                let expected = if within || y[i].is_nan() { dy[i] } else { 0.0 };
                assert_eq!(dx[i], expected, "y = {}", y[i]);
            }
            let mut in_place = dy.clone();
            relu_gradient(isa, rectifier, &y, None, &mut in_place);
            assert_eq!(bits(&in_place), bits(&dx));
        }
    }

    #[test]
    fn relu6_stops_at_six() {
        for isa in Isa::available() {
            let mut y = values();
            relu(isa, Rectifier::RELU6, None, &mut y);
            assert!(y[4].is_nan());
            assert_eq!((y[0], y[3], y[5], y[7], y[8]), (0.0, 2.5, 6.0, 6.0, 6.0));
        }
    }

    #[test]
    fn threads_do_not_matter() {
        let (a, b) = (filled(5 * TASK_LEN + 7, 4), filled(5 * TASK_LEN + 7, 5));
        same_bits_on_any_threads(|isa| {
            let (mut y, mut dx) = (a.clone(), vec![0.0; a.len()]);
            relu_gradient(isa, Rectifier::RELU6, &a, Some(&b), &mut dx);
            relu(isa, Rectifier::RELU, None, &mut y);
            vec![y, dx]
        });
    }
}

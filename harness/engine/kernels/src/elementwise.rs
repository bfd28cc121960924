//! Element by element, whatever the layout: ReLU and its gradient, sums of tensors, products with a constant.

use crate::{
    Isa,
    half::Rounding,
    planes::{TASK_LEN, expect_len},
    simd::vectorised,
};
use rayon::prelude::*;

/// `y = max(x, 0)`; NaN stays NaN.
///
/// # Panics
/// If the lengths differ.
pub fn relu(isa: Isa, x: &[f32], y: &mut [f32]) {
    expect_len("the output", y.len(), x.len());
    y.par_chunks_mut(TASK_LEN).zip(x.par_chunks(TASK_LEN)).for_each(|(y, x)| relu_chunk(isa, x, y));
}

/// [`relu`] with the result in the place of the input.
pub fn relu_in_place(isa: Isa, x_y: &mut [f32]) {
    x_y.par_chunks_mut(TASK_LEN).for_each(|x| relu_chunk_in_place(isa, x));
}

/// Gradient of [`relu`]: `dy` but zero where `y` is at most zero, as PyTorch has it (it passes where `y` is NaN).
///
/// # Panics
/// If the lengths differ.
pub fn relu_gradient(isa: Isa, y: &[f32], dy: &[f32], dx: &mut [f32]) {
    expect_len("the output gradient", dy.len(), y.len());
    expect_len("the input gradient", dx.len(), y.len());
    dx.par_chunks_mut(TASK_LEN)
        .zip(y.par_chunks(TASK_LEN).zip(dy.par_chunks(TASK_LEN)))
        .for_each(|(dx, (y, dy))| relu_gradient_chunk(isa, y, dy, dx));
}

/// [`relu_gradient`] with the result in the place of the output gradient.
///
/// # Panics
/// If the lengths differ.
pub fn relu_gradient_in_place(isa: Isa, y: &[f32], dy_dx: &mut [f32]) {
    expect_len("the output gradient", dy_dx.len(), y.len());
    dy_dx
        .par_chunks_mut(TASK_LEN)
        .zip(y.par_chunks(TASK_LEN))
        .for_each(|(dx, y)| relu_gradient_chunk_in_place(isa, y, dx));
}

/// `sum = terms[0] + terms[1] + ...`, added in this order; zero without terms. `rounding` is how a simulated device
/// holds it.
///
/// # Panics
/// If the lengths differ.
pub fn add(isa: Isa, terms: &[&[f32]], sum: &mut [f32], rounding: Option<&Rounding>) {
    expect_terms(terms, sum.len());
    sum.par_chunks_mut(TASK_LEN).enumerate().for_each(|(i, sum)| {
        let range = i * TASK_LEN..i * TASK_LEN + sum.len();
        let chunk = |term: usize| &terms[term][range.clone()];
        match terms.len() {
            0 => sum.fill(0.0),
            1 => sum.copy_from_slice(chunk(0)),
            count => {
                add_chunk(isa, chunk(0), chunk(1), sum);
                (2..count).for_each(|term| accumulate_chunk(isa, chunk(term), sum));
            }
        }
        rounding.inspect(|rounding| rounding.part(sum));
    });
}

/// `sum = sum + terms[0] + terms[1] + ...`, added in this order. `rounding` is how a simulated device holds it.
///
/// # Panics
/// If the lengths differ.
pub fn accumulate(isa: Isa, terms: &[&[f32]], sum: &mut [f32], rounding: Option<&Rounding>) {
    expect_terms(terms, sum.len());
    sum.par_chunks_mut(TASK_LEN).enumerate().for_each(|(i, sum)| {
        for term in terms {
            accumulate_chunk(isa, &term[i * TASK_LEN..][..sum.len()], sum);
        }
        rounding.inspect(|rounding| rounding.part(sum));
    });
}

/// `y = x * factor`.
///
/// # Panics
/// If the lengths differ.
pub fn scale(isa: Isa, factor: f32, x: &[f32], y: &mut [f32]) {
    expect_len("the output", y.len(), x.len());
    y.par_chunks_mut(TASK_LEN).zip(x.par_chunks(TASK_LEN)).for_each(|(y, x)| scale_chunk(isa, factor, x, y));
}

/// [`scale`] with the result in the place of the input.
pub fn scale_in_place(isa: Isa, factor: f32, x_y: &mut [f32]) {
    x_y.par_chunks_mut(TASK_LEN).for_each(|x| scale_chunk_in_place(isa, factor, x));
}

#[track_caller]
fn expect_terms(terms: &[&[f32]], len: usize) {
    for term in terms {
        expect_len("a term", term.len(), len);
    }
}

#[inline(always)]
fn positive(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

#[inline(always)]
fn passed(y: f32, dy: f32) -> f32 {
    if y <= 0.0 { 0.0 } else { dy }
}

vectorised! {
    fn relu_chunk(_simd, x: &[f32], y: &mut [f32]) -> () {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = positive(*x));
    }
}

vectorised! {
    fn relu_chunk_in_place(_simd, x_y: &mut [f32]) -> () {
        x_y.iter_mut().for_each(|x| *x = positive(*x));
    }
}

vectorised! {
    fn relu_gradient_chunk(_simd, y: &[f32], dy: &[f32], dx: &mut [f32]) -> () {
        dx.iter_mut().zip(y.iter().zip(dy)).for_each(|(dx, (y, dy))| *dx = passed(*y, *dy));
    }
}

vectorised! {
    fn relu_gradient_chunk_in_place(_simd, y: &[f32], dy_dx: &mut [f32]) -> () {
        dy_dx.iter_mut().zip(y).for_each(|(d, y)| *d = passed(*y, *d));
    }
}

vectorised! {
    fn add_chunk(_simd, a: &[f32], b: &[f32], sum: &mut [f32]) -> () {
        sum.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum = a + b);
    }
}

vectorised! {
    fn accumulate_chunk(_simd, term: &[f32], sum: &mut [f32]) -> () {
        sum.iter_mut().zip(term).for_each(|(sum, term)| *sum += term);
    }
}

vectorised! {
    fn scale_chunk(_simd, factor: f32, x: &[f32], y: &mut [f32]) -> () {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x * factor);
    }
}

vectorised! {
    fn scale_chunk_in_place(_simd, factor: f32, x_y: &mut [f32]) -> () {
        x_y.iter_mut().for_each(|x| *x *= factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{filled, same_bits_on_any_threads};

    /// Values around zero: negative, both zeros, positive, NaN, infinities; then many more.
    fn values() -> Vec<f32> {
        let mut x = vec![-1.5, -0.0, 0.0, 2.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
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
            relu(isa, &x, &mut y);
            assert!(y[4].is_nan());
            assert_eq!((y[0], y[1], y[2], y[3], y[5], y[6]), (0.0, 0.0, 0.0, 2.5, f32::INFINITY, 0.0));
            assert!(x.iter().zip(&y).all(|(x, y)| x.is_nan() || *y == x.max(0.0)));
            let mut in_place = x.clone();
            relu_in_place(isa, &mut in_place);
            assert_eq!(bits(&in_place), bits(&y));
        }
    }

    #[test]
    fn the_gradient_of_relu_is_zero_at_zero() {
        let y = values();
        let dy = filled(y.len(), 2);
        for isa in Isa::available() {
            let mut dx = vec![9.0; y.len()];
            relu_gradient(isa, &y, &dy, &mut dx);
            for i in 0..y.len() {
                let expected = if y[i] > 0.0 || y[i].is_nan() { dy[i] } else { 0.0 };
                assert_eq!(dx[i], expected, "y = {}", y[i]);
            }
            let mut in_place = dy.clone();
            relu_gradient_in_place(isa, &y, &mut in_place);
            assert_eq!(bits(&in_place), bits(&dx));
        }
    }

    #[test]
    fn sums_are_formed_from_left_to_right() {
        let len = TASK_LEN + 3;
        let terms: Vec<_> = (0..4).map(|salt| filled(len, salt)).collect();
        for isa in Isa::available() {
            for count in 0..=4 {
                let slices: Vec<&[f32]> = terms[..count].iter().map(Vec::as_slice).collect();
                let mut sum = vec![f32::NAN; len];
                add(isa, &slices, &mut sum, None);
                for i in 0..len {
                    let expected = slices.iter().map(|t| t[i]).reduce(|a, b| a + b).unwrap_or(0.0);
                    assert_eq!(sum[i], expected);
                }
                if let Some((first, others)) = slices.split_first() {
                    let mut accumulated = first.to_vec();
                    accumulate(isa, others, &mut accumulated, None);
                    assert_eq!(bits(&accumulated), bits(&sum));
                }
            }
        }
    }

    #[test]
    fn scaling_multiplies() {
        let x = filled(TASK_LEN + 1, 3);
        for isa in Isa::available() {
            let mut y = vec![0.0; x.len()];
            scale(isa, 0.3, &x, &mut y);
            assert!(x.iter().zip(&y).all(|(x, y)| *y == x * 0.3));
            let mut in_place = x.clone();
            scale_in_place(isa, 0.3, &mut in_place);
            assert_eq!(in_place, y);
        }
    }

    #[test]
    fn threads_do_not_matter() {
        let (a, b) = (filled(5 * TASK_LEN + 7, 4), filled(5 * TASK_LEN + 7, 5));
        same_bits_on_any_threads(|isa| {
            let mut sum = vec![0.0; a.len()];
            add(isa, &[&a, &b], &mut sum, None);
            let mut dx = vec![0.0; a.len()];
            relu_gradient(isa, &a, &b, &mut dx);
            relu_in_place(isa, &mut sum);
            scale_in_place(isa, 1.7, &mut sum);
            vec![sum, dx]
        });
    }
}

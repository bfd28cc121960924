//! Element by element, whatever the layout: sums of tensors, products with a constant, bounds.

use crate::{
    Isa,
    half::Rounding,
    planes::{TASK_LEN, expect_len},
    simd::vectorised,
};
use rayon::prelude::*;

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
pub fn scale(isa: Isa, factor: f32, x: Option<&[f32]>, y: &mut [f32]) {
    let Some(x) = x else {
        return y.par_chunks_mut(TASK_LEN).for_each(|x| scale_chunk_in_place(isa, factor, x));
    };
    expect_len("the output", y.len(), x.len());
    y.par_chunks_mut(TASK_LEN).zip(x.par_chunks(TASK_LEN)).for_each(|(y, x)| scale_chunk(isa, factor, x, y));
}

#[track_caller]
fn expect_terms(terms: &[&[f32]], len: usize) {
    for term in terms {
        expect_len("a term", term.len(), len);
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

/// Brings each element into `[-bound, bound]`; NaN stays NaN.
pub fn clip(isa: Isa, bound: f32, gradient: &mut [f32]) {
    gradient.par_chunks_mut(TASK_LEN).for_each(|g| clip_chunk(isa, bound, g));
}

vectorised! {
    fn clip_chunk(_simd, bound: f32, gradient: &mut [f32]) -> () {
        for g in gradient {
            *g = if *g > bound { bound } else if *g < -bound { -bound } else { *g };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{filled, same_bits_on_any_threads};

    fn bits(x: &[f32]) -> Vec<u32> {
        x.iter().map(|v| v.to_bits()).collect()
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
            scale(isa, 0.3, Some(&x), &mut y);
            assert!(x.iter().zip(&y).all(|(x, y)| *y == x * 0.3));
            let mut in_place = x.clone();
            scale(isa, 0.3, None, &mut in_place);
            assert_eq!(in_place, y);
        }
    }

    #[test]
    fn threads_do_not_matter() {
        let (a, b) = (filled(5 * TASK_LEN + 7, 4), filled(5 * TASK_LEN + 7, 5));
        same_bits_on_any_threads(|isa| {
            let mut sum = vec![0.0; a.len()];
            add(isa, &[&a, &b], &mut sum, None);
            scale(isa, 1.7, None, &mut sum);
            vec![sum]
        });
    }

    #[test]
    fn bounds() {
        for isa in Isa::available() {
            let mut gradient = vec![0.5, -3.0, 3.0, f32::NAN];
            clip(isa, 1.0, &mut gradient);
            assert_eq!(gradient[..3], [0.5, -1.0, 1.0]);
            assert!(gradient[3].is_nan());
        }
    }
}

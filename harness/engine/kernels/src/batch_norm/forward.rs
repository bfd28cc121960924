//! BNTrainingUpdate and BNInfer: normalisation with what is fused behind it.

use super::{Block, Parameters};
use crate::{
    Blocked, Isa,
    half::Rounding,
    planes::{by_block, expect_len, for_each_image},
    rectifier::Rectifier,
    simd::{Lanes, Pixels, pixels, pixels_mut, vectorised},
};
use rayon::prelude::*;
use std::cell::Cell;

/// What is fused behind a normalisation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fused<'a> {
    /// A tensor of the input's shape that is added.
    pub residual: Option<&'a [f32]>,
    /// The ReLU that ends it.
    pub relu: Option<Rectifier>,
    /// How a simulated device holds the result.
    pub rounding: Option<&'a Rounding>,
}

/// `y = (x - mean) / sqrt(variance + epsilon) * gamma + beta`, then what is fused behind it. Without `x`, the input lies
/// where the result goes.
///
/// # Panics
/// If a length does not match the shape.
pub fn normalise(
    isa: Isa,
    shape: Blocked,
    x: Option<&[f32]>,
    parameters: &Parameters<'_>,
    fused: Fused<'_>,
    y: &mut [f32],
) {
    check(shape, x.map_or(y.len(), <[f32]>::len), fused, y.len());
    parameters.check(shape);
    by_block(shape, y).into_par_iter().enumerate().for_each(|(c1, planes)| {
        let block = parameters.block(c1);
        for_each_image(shape, planes, |n, plane| {
            let place = shape.plane(n, c1);
            let residual = fused.residual.map(|r| pixels(&r[place.clone()]));
            let y = pixels_mut(plane);
            match x {
                Some(x) => apply(isa, pixels(&x[place]), residual, &block, fused.relu, y),
                None => apply(isa, y, residual, &block, fused.relu, y),
            }
            fused.rounding.inspect(|rounding| rounding.part(plane));
        });
    });
}

/// [`normalise`] with the result in the place of the residual; one that `fused` names is ignored.
///
/// # Panics
/// If a length does not match the shape.
pub fn normalise_onto(
    isa: Isa,
    shape: Blocked,
    x: &[f32],
    parameters: &Parameters<'_>,
    fused: Fused<'_>,
    residual_y: &mut [f32],
) {
    check(shape, x.len(), fused, residual_y.len());
    parameters.check(shape);
    by_block(shape, residual_y).into_par_iter().enumerate().for_each(|(c1, planes)| {
        let block = parameters.block(c1);
        for_each_image(shape, planes, |n, plane| {
            let y = pixels_mut(plane);
            apply(isa, pixels(&x[shape.plane(n, c1)]), Some(y), &block, fused.relu, y);
            fused.rounding.inspect(|rounding| rounding.part(plane));
        });
    });
}

#[track_caller]
fn check(shape: Blocked, x: usize, fused: Fused<'_>, y: usize) {
    expect_len("the input", x, shape.len());
    expect_len("the output", y, shape.len());
    if let Some(residual) = fused.residual {
        expect_len("the residual", residual.len(), shape.len());
    }
}

vectorised! {
    /// One plane.
    fn apply [X: Pixels, R: Pixels,] [X, R]
    (simd, x: X, residual: Option<R>, block: &Block, relu: Option<Rectifier>, y: &[Cell<Lanes>]) -> () {
        let block = block.load(simd);
        assert!(x.count() == y.len() && residual.is_none_or(|r| r.count() == y.len()));
        for (i, y) in y.iter().enumerate() {
            let mut value = block.normalise(simd, x.load(simd, i));
            if let Some(residual) = residual {
                value = simd.add(value, residual.load(simd, i));
            }
            if let Some(rectifier) = relu {
                value = rectifier.apply(simd, value);
            }
            simd.store(value, y);
        }
    }
}

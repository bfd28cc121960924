//! BNInferGrad: input gradient of a normalisation with stored statistics.

use super::{Block, Parameters, gradient::Gate};
use crate::{
    Blocked, Isa,
    planes::{by_block, expect_len, for_each_image},
    simd::{Lanes, Pixels, pixels, pixels_mut, vectorised},
};
use rayon::prelude::*;
use std::cell::Cell;

/// Gradient of the normalisation with stored statistics: `dx = dy * gamma / sqrt(variance + epsilon)`, where the ReLU
/// of output `y` passes it if there is one. Its scale and shift have the gradients of [`gradient_sums`].
///
/// # Panics
/// If a length does not match the shape.
pub fn stored_input_gradient(
    isa: Isa,
    shape: Blocked,
    parameters: &Parameters<'_>,
    y: Option<&[f32]>,
    dy: &[f32],
    dx: &mut [f32],
) {
    expect_len("the output gradient", dy.len(), shape.len());
    stored_gradient(isa, shape, parameters, y, dx, |isa, n, c1, gate, block, dx| {
        scale(isa, pixels(&dy[shape.plane(n, c1)]), gate, block, dx);
    });
}

/// [`stored_input_gradient`] with the result in the place of the output gradient.
///
/// # Panics
/// If a length does not match the shape.
pub fn stored_input_gradient_in_place(
    isa: Isa,
    shape: Blocked,
    parameters: &Parameters<'_>,
    y: Option<&[f32]>,
    dy_dx: &mut [f32],
) {
    stored_gradient(isa, shape, parameters, y, dy_dx, |isa, _, _, gate, block, dx| scale(isa, dx, gate, block, dx));
}

fn stored_gradient(
    isa: Isa,
    shape: Blocked,
    parameters: &Parameters<'_>,
    y: Option<&[f32]>,
    dx: &mut [f32],
    plane: impl Fn(Isa, usize, usize, Gate<'_>, &Block, &[Cell<Lanes>]) + Sync + Send,
) {
    parameters.check(shape);
    expect_len("the input gradient", dx.len(), shape.len());
    if let Some(y) = y {
        expect_len("the output", y.len(), shape.len());
    }
    by_block(shape, dx).into_par_iter().enumerate().for_each(|(c1, planes)| {
        let block = parameters.block(c1);
        for_each_image(shape, planes, |n, dx| {
            let gate = y.map_or(Gate::Absent, |y| Gate::Output(pixels(&y[shape.plane(n, c1)])));
            plane(isa, n, c1, gate, &block, pixels_mut(dx));
        });
    });
}

vectorised! {
    /// Input gradient of a plane where the statistics are stored ones.
    fn scale [D: Pixels,] [D]
    (simd, dy: D, gate: Gate<'_>, block: &Block, dx: &[Cell<Lanes>]) -> () {
        let count = dx.len();
        assert!(dy.count() == count && gate.fits(count));
        let block = block.load(simd);
        for (i, dx) in dx.iter().enumerate() {
            let dy = dy.load(simd, i);
            let dy = gate.pass(simd, block, i, dy, dy);
            simd.store(simd.mul(dy, block.scale), dx);
        }
    }
}

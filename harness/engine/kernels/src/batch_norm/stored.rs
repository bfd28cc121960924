//! BNInferGrad: input gradient of a normalisation with stored statistics.

use super::{Block, Parameters};
use crate::{
    Blocked, Isa,
    planes::{by_block, expect_len, for_each_image},
    simd::{Lanes, Pixels, pixels, pixels_mut, vectorised},
};
use rayon::prelude::*;
use std::cell::Cell;

/// Gradient of the normalisation with stored statistics: `dx = dy * gamma / sqrt(variance + epsilon)`. Its scale and
/// shift have the gradients of [`gradient_sums`](super::gradient_sums). Without `dy`, the output gradient lies where the
/// result goes.
///
/// # Panics
/// If a length does not match the shape.
pub fn stored_input_gradient(
    isa: Isa,
    shape: Blocked,
    parameters: &Parameters<'_>,
    dy: Option<&[f32]>,
    dx: &mut [f32],
) {
    parameters.check(shape);
    expect_len("the output gradient", dy.map_or(dx.len(), <[f32]>::len), shape.len());
    expect_len("the input gradient", dx.len(), shape.len());
    by_block(shape, dx).into_par_iter().enumerate().for_each(|(c1, planes)| {
        let block = parameters.block(c1);
        for_each_image(shape, planes, |n, dx| {
            let dx = pixels_mut(dx);
            match dy {
                Some(dy) => scale(isa, pixels(&dy[shape.plane(n, c1)]), &block, dx),
                None => scale(isa, dx, &block, dx),
            }
        });
    });
}

vectorised! {
    /// Input gradient of a plane where the statistics are stored ones.
    fn scale [D: Pixels,] [D]
    (simd, dy: D, block: &Block, dx: &[Cell<Lanes>]) -> () {
        assert!(dy.count() == dx.len());
        let block = block.load(simd);
        for (i, dx) in dx.iter().enumerate() {
            simd.store(simd.mul(dy.load(simd, i), block.scale), dx);
        }
    }
}

//! BNTrainingUpdateGrad and BNTrainingReduceGrad: gradients, through a fused ReLU where there is one.

use super::{Block, Pairs, Parameters, Sums, Vectors, map_images};
use crate::{
    Blocked, C0, Isa,
    half::Rounding,
    planes::{by_block, expect_len, for_each_image, planes_per_task},
    rectifier::Rectifier,
    simd::{Lanes, Pixels, Simd, pixels, pixels_mut, vectorised},
};
use rayon::prelude::*;
use std::{array, cell::Cell};

/// Where the gradient of a ReLU behind the normalisation passes ([`crate::rectifier::relu_gradient`]).
#[derive(Clone, Copy, Debug)]
pub enum Relu<'a> {
    /// There is none: everywhere.
    Absent,
    /// As the output of the ReLU says.
    Output(Rectifier, &'a [f32]),
    /// As the normalisation of the input says, which is computed once more; only without residual.
    Recomputed(Rectifier),
}

/// What the gradient has to know of the forward direction.
#[derive(Clone, Copy, Debug)]
pub struct Normalised<'a> {
    /// Input of the normalisation.
    pub x: &'a [f32],
    /// Its parameters.
    pub parameters: Parameters<'a>,
    /// The ReLU behind it.
    pub relu: Relu<'a>,
    /// How a simulated device holds the input gradient.
    pub rounding: Option<&'a Rounding>,
}

/// Gradients of scale and shift, per channel.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// Of the scale.
    pub gamma: &'a mut [f32],
    /// Of the shift.
    pub beta: &'a mut [f32],
}

/// `dgamma = sum(dy * (x - mean) / sqrt(variance + epsilon))` and `dbeta = sum(dy)`, of training and of stored
/// statistics alike.
///
/// # Panics
/// If a length does not match the shape.
pub fn gradient_sums(isa: Isa, shape: Blocked, forward: &Normalised<'_>, dy: &[f32], gradients: Gradients<'_>) {
    forward.check(shape, dy.len(), &gradients);
    let Gradients { gamma, beta } = gradients;
    gamma.par_chunks_mut(C0).zip(beta.par_chunks_mut(C0)).enumerate().for_each(|(c1, (gamma, beta))| {
        let block = forward.parameters.block(c1);
        let total = Sums::total(map_images(shape, |n| {
            let (gate, x) = forward.plane(shape, n, c1);
            sums(isa, pixels(&dy[shape.plane(n, c1)]), gate, x, &block, None)
        }));
        for (lane, (gamma, beta)) in gamma.iter_mut().zip(beta).enumerate() {
            (*gamma, *beta) = forward.channel_gradients(&total, c1 * C0 + lane, lane);
        }
    });
}

/// `dx = gamma * s * (dy - dbeta / m - (x - mean) * s * dgamma / m)` with `s = 1 / sqrt(variance + epsilon)` and `m`
/// values per channel; `gradients` are those of [`gradient_sums`]. Without `dy`, the output gradient lies where the
/// result goes.
///
/// # Panics
/// If a length does not match the shape.
pub fn input_gradient(
    isa: Isa,
    shape: Blocked,
    forward: &Normalised<'_>,
    dy: Option<&[f32]>,
    gradients: &Gradients<'_>,
    dx: &mut [f32],
) {
    forward.check(shape, dy.map_or(dx.len(), <[f32]>::len), gradients);
    expect_len("the input gradient", dx.len(), shape.len());
    by_block(shape, dx).into_par_iter().enumerate().for_each(|(c1, planes)| {
        let (block, slope) = forward.coefficients(shape, c1, gradients);
        for_each_image(shape, planes, |n, dx| {
            let dy = dy.map(|dy| &dy[shape.plane(n, c1)]);
            forward.plane_gradient(isa, forward.plane(shape, n, c1), dy, (&block, &slope), dx);
        });
    });
}

/// [`gradient_sums`] and [`input_gradient`].
///
/// # Panics
/// If a length does not match the shape.
pub fn backward(
    isa: Isa,
    shape: Blocked,
    forward: &Normalised<'_>,
    dy: Option<&[f32]>,
    dx: &mut [f32],
    gradients: Gradients<'_>,
) {
    forward.check(shape, dy.map_or(dx.len(), <[f32]>::len), &gradients);
    expect_len("the input gradient", dx.len(), shape.len());
    forward.each_block(shape, by_block(shape, dx), gradients, |c1, block, planes, slope_of| {
        let dy = |n| dy.map(|dy| &dy[shape.plane(n, c1)]);
        let slope = slope_of(map_images(shape, |n| {
            let (gate, x) = forward.plane(shape, n, c1);
            sums(isa, pixels(dy(n).unwrap_or(&*planes[n])), gate, x, block, None)
        }));
        for_each_image(shape, planes, |n, dx| {
            forward.plane_gradient(isa, forward.plane(shape, n, c1), dy(n), (block, &slope), dx);
        });
    });
}

/// [`backward`] that leaves what passes the ReLU in the place of the output gradient: the gradient of the residual.
///
/// # Panics
/// If a length does not match the shape.
pub fn backward_residual(
    isa: Isa,
    shape: Blocked,
    forward: &Normalised<'_>,
    dy_dresidual: &mut [f32],
    dx: &mut [f32],
    gradients: Gradients<'_>,
) {
    forward.check(shape, dy_dresidual.len(), &gradients);
    expect_len("the input gradient", dx.len(), shape.len());
    let passed = Normalised { relu: Relu::Absent, ..*forward };
    let pairs = by_block(shape, dy_dresidual).into_iter().zip(by_block(shape, dx)).collect();
    forward.each_block(shape, pairs, gradients, |c1, block, (mut dy, dx): (Vec<&mut [f32]>, _), slope_of| {
        let planes = dy
            .par_iter_mut()
            .enumerate()
            .with_min_len(planes_per_task(shape))
            .map(|(n, dy)| {
                let (gate, x) = forward.plane(shape, n, c1);
                let dy = pixels_mut(dy);
                sums(isa, dy, gate, x, block, Some(dy))
            })
            .collect();
        let slope = slope_of(planes);
        for_each_image(shape, dx, |n, dx| {
            forward.plane_gradient(isa, passed.plane(shape, n, c1), Some(&*dy[n]), (block, &slope), dx);
        });
    });
}

impl<'a> Normalised<'a> {
    #[track_caller]
    fn check(&self, shape: Blocked, dy: usize, gradients: &Gradients<'_>) {
        self.parameters.check(shape);
        expect_len("the input", self.x.len(), shape.len());
        expect_len("the output gradient", dy, shape.len());
        expect_len("the gradient of gamma", gradients.gamma.len(), shape.c);
        expect_len("the gradient of beta", gradients.beta.len(), shape.c);
        if let Relu::Output(_, y) = self.relu {
            expect_len("the output", y.len(), shape.len());
        }
    }

    /// ReLU and input of one plane.
    fn plane(&self, shape: Blocked, n: usize, c1: usize) -> (Gate<'a>, &'a [Lanes]) {
        let plane = shape.plane(n, c1);
        let gate = match self.relu {
            Relu::Absent => Gate::Absent,
            Relu::Output(rectifier, y) => Gate::Output(rectifier, pixels(&y[plane.clone()])),
            Relu::Recomputed(rectifier) => Gate::Recomputed(rectifier),
        };
        (gate, pixels(&self.x[plane]))
    }

    /// Input gradient of one plane, rounded. Without `dy`, the output gradient lies where the result goes.
    fn plane_gradient(
        &self,
        isa: Isa,
        (gate, x): (Gate<'_>, &[Lanes]),
        dy: Option<&[f32]>,
        (block, slope): (&Block, &Slope),
        plane: &mut [f32],
    ) {
        let dx = pixels_mut(plane);
        match dy {
            Some(dy) => gradient(isa, pixels(dy), gate, x, block, slope, dx),
            None => gradient(isa, dx, gate, x, block, slope, dx),
        }
        self.rounding.inspect(|rounding| rounding.part(plane));
    }

    /// Gradients of scale and shift of channel `c`, in `lane` of its block, from the block's sums of `dy` and `dy * x`.
    fn channel_gradients(&self, sums: &Sums, c: usize, lane: usize) -> (f32, f32) {
        let centred = sums.product[lane] - f64::from(self.parameters.mean[c]) * sums.plain[lane];
        ((centred * self.parameters.inverse_deviation(c)) as f32, sums.plain[lane] as f32)
    }

    /// What [`gradient`] needs of the gradients of scale and shift of a block.
    fn slope(&self, shape: Blocked, c1: usize, gamma: &[f32], beta: &[f32]) -> Slope {
        let first = c1 * C0;
        let count = (shape.n * shape.pixels()) as f64;
        let lane = |value: &dyn Fn(usize) -> f64| {
            array::from_fn(|lane| if lane < gamma.len() { value(lane) as f32 } else { 0.0 })
        };
        Slope {
            by_x: lane(&|i| -f64::from(gamma[i]) * self.parameters.inverse_deviation(first + i) / count),
            mean: lane(&|i| f64::from(beta[i]) / count),
        }
    }

    /// Coefficients of the normalisation and of the input gradient of a block.
    fn coefficients(&self, shape: Blocked, c1: usize, gradients: &Gradients<'_>) -> (Block, Slope) {
        let channels = c1 * C0..c1 * C0 + shape.lanes(c1);
        let slope = self.slope(shape, c1, &gradients.gamma[channels.clone()], &gradients.beta[channels]);
        (self.parameters.block(c1), slope)
    }

    /// Runs `task(c1, coefficients, item, slope_of)` for the item of every channel block in parallel. `slope_of` takes
    /// the sums of the block's planes, writes the gradients of its scale and shift, and gives the slope.
    fn each_block<T: Send>(
        &self,
        shape: Blocked,
        items: Vec<T>,
        gradients: Gradients<'_>,
        task: impl Fn(usize, &Block, T, &mut dyn FnMut(Vec<Sums>) -> Slope) + Sync + Send,
    ) {
        let Gradients { gamma, beta } = gradients;
        items.into_par_iter().zip(gamma.par_chunks_mut(C0).zip(beta.par_chunks_mut(C0))).enumerate().for_each(
            |(c1, (item, (gamma, beta)))| {
                task(c1, &self.parameters.block(c1), item, &mut |planes| {
                    let sums = Sums::total(planes);
                    for (lane, (gamma, beta)) in gamma.iter_mut().zip(beta.iter_mut()).enumerate() {
                        (*gamma, *beta) = self.channel_gradients(&sums, c1 * C0 + lane, lane);
                    }
                    self.slope(shape, c1, gamma, beta)
                });
            },
        );
    }
}

/// [`Relu`] of one plane.
#[derive(Clone, Copy)]
pub(super) enum Gate<'a> {
    Absent,
    Output(Rectifier, &'a [Lanes]),
    Recomputed(Rectifier),
}

impl Gate<'_> {
    /// What passes of `dy` at pixel `i`; `x` is the input there.
    #[inline(always)]
    pub(super) fn pass<S: Simd>(self, simd: S, block: Vectors<S>, i: usize, x: S::F32, dy: S::F32) -> S::F32 {
        match self {
            Self::Absent => dy,
            Self::Output(rectifier, y) => rectifier.pass(simd, simd.load(&y[i]), dy),
            Self::Recomputed(rectifier) => rectifier.pass(simd, block.normalise(simd, x), dy),
        }
    }

    /// Whether it belongs to a plane of so many pixels.
    pub(super) fn fits(self, pixels: usize) -> bool {
        match self {
            Self::Output(_, y) => y.len() == pixels,
            Self::Absent | Self::Recomputed(_) => true,
        }
    }
}

/// Coefficients of the input gradient of one channel block: `dx = scale * (dy - mean + (x - x_mean) * by_x)`.
struct Slope {
    /// `-dgamma / (sqrt(variance + epsilon) * m)`.
    by_x: Lanes,
    /// `dbeta / m`.
    mean: Lanes,
}

/// What passes of `dy`, and `x`. Stores what passes if asked to.
#[derive(Clone, Copy)]
struct Passing<'a, D, S: Simd> {
    dy: D,
    gate: Gate<'a>,
    x: &'a [Lanes],
    block: Vectors<S>,
    passed: Option<&'a [Cell<Lanes>]>,
}

impl<D: Pixels, S: Simd> Pairs<S> for Passing<'_, D, S> {
    #[inline(always)]
    fn at(self, simd: S, pixel: usize) -> (S::F32, S::F32) {
        let x = simd.load(&self.x[pixel]);
        let dy = self.gate.pass(simd, self.block, pixel, x, self.dy.load(simd, pixel));
        if let Some(passed) = self.passed {
            simd.store(dy, &passed[pixel]);
        }
        (dy, x)
    }
}

vectorised! {
    /// Sums of what passes of `dy`, and of its product with `x`, over a plane. Stores what passes if asked to.
    fn sums [D: Pixels,] [D]
    (simd, dy: D, gate: Gate<'_>, x: &[Lanes], block: &Block, passed: Option<&[Cell<Lanes>]>) -> Sums {
        let count = x.len();
        assert!(dy.count() == count && gate.fits(count) && passed.is_none_or(|p| p.len() == count));
        Sums::over(simd, count, Passing { dy, gate, x, block: block.load(simd), passed })
    }
}

vectorised! {
    /// Input gradient of a plane.
    fn gradient [D: Pixels,] [D]
    (simd, dy: D, gate: Gate<'_>, x: &[Lanes], block: &Block, slope: &Slope, dx: &[Cell<Lanes>]) -> () {
        let count = dx.len();
        assert!(dy.count() == count && gate.fits(count) && x.len() == count);
        let block = block.load(simd);
        let (by_x, mean) = (simd.load(&slope.by_x), simd.load(&slope.mean));
        for (i, dx) in dx.iter().enumerate() {
            let x = simd.load(&x[i]);
            let dy = gate.pass(simd, block, i, x, dy.load(simd, i));
            let centred = simd.sub(dy, mean);
            let sloped = simd.mul_add(simd.sub(x, block.mean), by_x, centred);
            simd.store(simd.mul(sloped, block.scale), dx);
        }
    }
}

//! Normalisations: sums per channel are formed in f64, everything else is element by element in f32.

use super::{Farthest, LAMBDA, PIECE, Ran, UNIT, WIDE, farthest, farthest_of, product::arity};
use crate::{KernelError, elements::Elements};
use rayon::prelude::*;
use zoo_graph::ops::{BnTrainingGrad, BnTrainingUpdate, GradRelu, Rectifier};

/// Roundings between an element and what becomes of it: the difference from the mean, scale (and its own rounding),
/// shift, result; in the gradient also those of the two slopes.
const ROUNDINGS: f64 = 6.0;

/// Elements of a tile of a convolution, whose statistics are summed in f32 about a pivot: see `zoo_kernels::conv`.
const TILE: f64 = 14.0;

/// Opened operands.
struct Operands<'a> {
    elements: Vec<Elements<'a>>,
}

impl<'a> Operands<'a> {
    fn of(ran: &Ran<'a>) -> Result<Self, KernelError> {
        Ok(Self { elements: ran.operands.iter().map(Elements::of).collect::<candle_core::Result<_>>()? })
    }

    fn get(&self, place: usize) -> Result<&[f32], KernelError> {
        let missing = KernelError::Operand { place, expected: "a tensor of numbers" };
        Ok(self.elements.get(place).ok_or(missing)?.slice()?)
    }
}

/// A tensor `[n, c, ...]`.
#[derive(Clone, Copy)]
struct Channels {
    n: usize,
    c: usize,
    plane: usize,
}

impl Channels {
    fn of(dims: &[usize]) -> Self {
        let [n, c] = [0, 1].map(|axis| dims.get(axis).copied().unwrap_or(1));
        Self { n, c, plane: dims.iter().skip(2).product() }
    }

    /// Values per channel.
    fn count(self) -> f64 {
        (self.n * self.plane) as f64
    }

    /// The farthest element of a result, given what each element of a channel should be and its bound.
    fn farthest(self, result: usize, found: &[f32], of: impl Fn(usize, usize) -> (f64, f64) + Sync) -> Farthest {
        let look = |(plane, found): (usize, &[f32])| {
            let (channel, start) = (plane % self.c.max(1), plane * self.plane);
            farthest_of(result, start, found, |element| of(channel, element))
        };
        let planes = found.par_chunks(self.plane.max(1)).enumerate().with_min_len(self.planes_at_once());
        planes.map(look).reduce(|| Farthest::NONE, Farthest::or)
    }

    /// The bound on a sum over a channel that is formed in f64 and rounded once: the kernel's sum and the verdict's are
    /// random walks (see the [module](super)), and a term has some roundings of its own.
    fn wide(self, exact: f64, magnitudes: f64) -> f64 {
        let walk = (2.0 * LAMBDA * self.count().sqrt() + 8.0) * f64::EPSILON / 2.0;
        2.0 * UNIT * exact.abs() + walk.min(WIDE) * magnitudes
    }

    /// Sums per channel over its number of values.
    fn means(self, sums: [&[f32]; 2]) -> Vec<[f64; 2]> {
        let [first, second] = sums;
        first.iter().zip(second).map(|(a, b)| [a, b].map(|sum| f64::from(*sum) / self.count())).collect()
    }

    /// Planes that a task looks at, at least.
    fn planes_at_once(self) -> usize {
        PIECE.div_ceil(self.plane.max(1))
    }

    /// For each channel the sum of `f` over its elements' indices.
    fn sums<const N: usize>(self, f: impl Fn(usize, usize) -> [f64; N] + Sync) -> Vec<[f64; N]> {
        let channel = |c: usize| {
            let planes = (0..self.n).map(|n| (n * self.c + c) * self.plane);
            let elements = planes.flat_map(|start| start..start + self.plane);
            elements.fold([0.0; N], |mut all, element| {
                all.iter_mut().zip(f(c, element)).for_each(|(all, x)| *all += x);
                all
            })
        };
        (0..self.c).into_par_iter().map(channel).collect()
    }
}

fn widened(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// Numbers per channel against what they should be.
fn per_channel(result: usize, found: &[f32], of: &[(f64, f64)]) -> Farthest {
    farthest(result, found, |channel| of.get(channel).copied().unwrap_or((f64::NAN, 0.0)))
}

/// Mean and variance of each channel.
fn moments(channels: Channels, x: &[f32]) -> Vec<[f64; 2]> {
    let sums = channels.sums(|_, i| [f64::from(x[i])]);
    let means: Vec<f64> = sums.into_iter().map(|[sum]| sum / channels.count()).collect();
    let squares = channels.sums(|c, i| [(f64::from(x[i]) - means[c]).powi(2)]);
    means.iter().zip(squares).map(|(mean, [squares])| [*mean, squares / channels.count()]).collect()
}

/// Mean and variance, from sums in f64.
pub(super) fn statistics(ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, KernelError> {
    let (operands, [mean, variance]) = (Operands::of(ran)?, found) else { return Err(arity(ran)) };
    let channels = Channels::of(ran.operands[0].dims());
    let moments = moments(channels, operands.get(0)?);
    let second = |[mean, variance]: &[f64; 2]| variance + mean * mean;
    let means: Vec<_> = moments.iter().map(|m| (m[0], channels.wide(m[0], second(m).sqrt()))).collect();
    let variances: Vec<_> = moments.iter().map(|m| (m[1], channels.wide(m[1], second(m)))).collect();
    Ok(per_channel(0, mean, &means).or(per_channel(1, variance, &variances)))
}

/// Mean and variance of a convolution's results `y`, as results 1 and 2: sums over tiles in f32 about a pivot, of tiles
/// in f64. The pivot is a mean of some of the channel's values, and no farther from the mean than the farthest of them.
pub(super) fn statistics_in_tiles(dims: &[usize], y: &[f32], [mean, variance]: [&[f32]; 2]) -> Farthest {
    let channels = Channels::of(dims);
    let moments = moments(channels, y);
    let planes = |c: usize| (0..channels.n).map(move |n| (n * channels.c + c) * channels.plane);
    let reach = |c: usize| {
        let values = planes(c).flat_map(|start| &y[start..start + channels.plane]);
        values.fold(0.0f64, |most, y| most.max((f64::from(*y) - moments[c][0]).abs()))
    };
    let bounds = |c: usize| {
        let ([mean, variance], reach) = (moments[c], reach(c));
        // Magnitudes about the pivot, and their squares; each meets a rounding of its own and those of its tile's sum.
        // The roundings of all values together are a random walk, as those of a sum of products are.
        let (first, second) = (variance.sqrt() + reach, variance + reach * reach);
        let roundings = (TILE + 2.0) * UNIT;
        let walk = LAMBDA * (second / channels.count()).sqrt();
        [
            (mean, 2.0 * UNIT * mean.abs() + roundings * first.min(walk)),
            (variance, 2.0 * UNIT * variance + 2.0 * roundings * second),
        ]
    };
    let bounds: Vec<[(f64, f64); 2]> = (0..channels.c).into_par_iter().map(bounds).collect();
    let each = |which: usize| bounds.iter().map(|b| b[which]).collect::<Vec<_>>();
    per_channel(1, mean, &each(0)).or(per_channel(2, variance, &each(1)))
}

/// `(x - mean) * factor + beta` of every channel.
struct Affine {
    mean: Vec<f64>,
    inverse: Vec<f64>,
    factor: Vec<f64>,
    beta: Vec<f64>,
}

impl Affine {
    fn new([mean, variance, gamma, beta]: [&[f32]; 4], eps: f64) -> Self {
        let inverse: Vec<f64> = variance.iter().map(|v| 1.0 / (f64::from(*v) + eps).sqrt()).collect();
        let factor = gamma.iter().zip(&inverse).map(|(gamma, inverse)| f64::from(*gamma) * inverse).collect();
        Self { mean: widened(mean), inverse, factor, beta: widened(beta) }
    }

    /// The value, and its bound.
    fn of(&self, c: usize, x: f32) -> (f64, f64) {
        let scaled = (f64::from(x) - self.mean[c]) * self.factor[c];
        (scaled + self.beta[c], ROUNDINGS * UNIT * (scaled.abs() + self.beta[c].abs()))
    }
}

/// Normalisation with what fusion may have added.
pub(super) fn normalised(op: &BnTrainingUpdate, ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, KernelError> {
    let (operands, [y]) = (Operands::of(ran)?, found) else { return Err(arity(ran)) };
    let [mean, variance, gamma, beta] = [operands.get(1)?, operands.get(2)?, operands.get(3)?, operands.get(4)?];
    let affine = Affine::new([mean, variance, gamma, beta], op.eps);
    let residual = if ran.operands.len() > 5 { Some(operands.get(5)?) } else { None };
    let (x, channels) = (operands.get(0)?, Channels::of(ran.operands[0].dims()));
    Ok(channels.farthest(0, y, |c, i| {
        let (y, bound) = affine.of(c, x[i]);
        let residual = residual.map_or(0.0, |residual| f64::from(residual[i]));
        let y = y + residual;
        (op.relu.map_or(y, |rectifier| rectifier.of(y)), bound + UNIT * (residual.abs() + y.abs()))
    }))
}

/// Normalisation by stored statistics.
pub(super) fn stored(eps: f64, ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, KernelError> {
    let (operands, [y]) = (Operands::of(ran)?, found) else { return Err(arity(ran)) };
    let [gamma, beta, mean, variance] = [operands.get(1)?, operands.get(2)?, operands.get(3)?, operands.get(4)?];
    let affine = Affine::new([mean, variance, gamma, beta], eps);
    let (x, channels) = (operands.get(0)?, Channels::of(ran.operands[0].dims()));
    Ok(channels.farthest(0, y, |c, i| affine.of(c, x[i])))
}

/// What passes the ReLU behind a normalisation.
struct Passing<'a> {
    dy: &'a [f32],
    /// Whether an element passes; empty where all do.
    passes: Vec<bool>,
    /// Whether that is so by rounding alone; empty where no ReLU is computed again.
    doubtful: Vec<bool>,
}

impl<'a> Passing<'a> {
    fn all(dy: &'a [f32]) -> Self {
        Self { dy, passes: Vec::new(), doubtful: Vec::new() }
    }

    /// What passes of an element.
    fn value(&self, i: usize) -> f64 {
        if self.passes.get(i).is_none_or(|passes| *passes) { f64::from(self.dy[i]) } else { 0.0 }
    }

    /// What may as well pass.
    fn other(&self, i: usize) -> Option<f64> {
        let doubtful = self.doubtful.get(i).is_some_and(|doubtful| *doubtful);
        doubtful.then(|| f64::from(self.dy[i]) - self.value(i))
    }
}

/// Bounds on dgamma and dbeta, whose sums are formed in f64. What passes by rounding alone may be missing or surplus.
fn gradient_sums(
    channels: Channels,
    affine: &Affine,
    x: &[f32],
    passing: &Passing<'_>,
    found: [(usize, &[f32]); 2],
) -> Farthest {
    let sums = channels.sums(|c, i| {
        let (dy, x) = (passing.value(i), f64::from(x[i]));
        let doubt = passing.other(i).map_or(0.0, |other| other - dy);
        let centred = x - affine.mean[c];
        [dy, dy.abs(), dy * centred, (dy * x).abs(), doubt.abs(), (doubt * centred).abs()]
    });
    let shift: Vec<_> = sums.iter().map(|s| (s[0], channels.wide(s[0], s[1]) + s[4])).collect();
    let scale = |(c, s): (usize, &[f64; 6])| {
        let (inverse, exact) = (affine.inverse[c], s[2] * affine.inverse[c]);
        (exact, channels.wide(exact, inverse * (s[3] + affine.mean[c].abs() * s[1])) + inverse * s[5])
    };
    let scale: Vec<_> = sums.iter().enumerate().map(scale).collect();
    let [(first, dgamma), (second, dbeta)] = found;
    per_channel(first, dgamma, &scale).or(per_channel(second, dbeta, &shift))
}

/// Gradients of scale and shift.
pub(super) fn sums(eps: f64, ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, KernelError> {
    let (operands, [dgamma, dbeta]) = (Operands::of(ran)?, found) else { return Err(arity(ran)) };
    let [dy, x, mean, variance] = [operands.get(0)?, operands.get(1)?, operands.get(2)?, operands.get(3)?];
    let affine = Affine::new([mean, variance, mean, mean], eps);
    let channels = Channels::of(ran.operands[1].dims());
    Ok(gradient_sums(channels, &affine, x, &Passing::all(dy), [(0, dgamma), (1, dbeta)]))
}

/// Input gradient of an element, and its bound, where `dy` is what passed, and `means` are the gradients of scale and
/// shift over the values of the channel.
fn slope(affine: &Affine, c: usize, x: f32, dy: f64, means: [f64; 2]) -> (f64, f64) {
    let normalised = (f64::from(x) - affine.mean[c]) * affine.inverse[c];
    let (by_x, mean) = (normalised * means[0], means[1]);
    let magnitude = dy.abs() + by_x.abs() + mean.abs();
    (affine.factor[c] * (dy - mean - by_x), ROUNDINGS * UNIT * (affine.factor[c] * magnitude).abs())
}

/// Gradient by the input, given those of scale and shift.
pub(super) fn input_gradient(eps: f64, ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, KernelError> {
    let (operands, [dx]) = (Operands::of(ran)?, found) else { return Err(arity(ran)) };
    let [dy, x, mean, variance, gamma] =
        [operands.get(0)?, operands.get(1)?, operands.get(2)?, operands.get(3)?, operands.get(4)?];
    let affine = Affine::new([mean, variance, gamma, mean], eps);
    let channels = Channels::of(ran.operands[1].dims());
    let means = channels.means([operands.get(5)?, operands.get(6)?]);
    Ok(channels.farthest(0, dx, |c, i| slope(&affine, c, x[i], f64::from(dy[i]), means[c])))
}

/// All gradients, through the ReLU behind. The input gradient is made of the other two as they were rounded.
pub(super) fn gradient(op: &BnTrainingGrad, ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, KernelError> {
    let (operands, [dx, dgamma, dbeta, rest @ ..]) = (Operands::of(ran)?, found) else { return Err(arity(ran)) };
    let [dy, x, mean, variance, gamma] =
        [operands.get(0)?, operands.get(1)?, operands.get(2)?, operands.get(3)?, operands.get(4)?];
    let beta = if matches!(op.relu, GradRelu::Recomputed(_)) { operands.get(5)? } else { mean };
    let affine = Affine::new([mean, variance, gamma, beta], op.eps);
    let channels = Channels::of(ran.operands[1].dims());
    let passing = match op.relu {
        GradRelu::Absent => Passing::all(dy),
        GradRelu::Output(rectifier) => {
            let passes = operands.get(5)?.par_iter().with_min_len(PIECE).map(|y| rectifier.passes(f64::from(*y)));
            Passing { passes: passes.collect(), ..Passing::all(dy) }
        }
        GradRelu::Recomputed(rectifier) => recomputed(rectifier, channels, &affine, x, dy),
    };
    let sums = gradient_sums(channels, &affine, x, &passing, [(1, dgamma), (2, dbeta)]);
    let means = channels.means([dgamma, dbeta]);
    let by_input = channels.farthest(0, dx, |c, i| {
        let of = |dy: f64| slope(&affine, c, x[i], dy, means[c]);
        let (first, other) = (of(passing.value(i)), passing.other(i).map(of));
        // Either decision of the ReLU is right where rounding alone makes it.
        let distance = |(exact, bound): (f64, f64)| (f64::from(dx[i]) - exact).abs() / bound;
        other.filter(|other| distance(*other) < distance(first)).unwrap_or(first)
    });
    let passed = rest.iter().map(|passed| farthest(3, passed, |i| (passing.value(i), 0.0)));
    Ok(passed.fold(sums.or(by_input), Farthest::or))
}

/// What passes a ReLU on the normalised value, which is computed again.
fn recomputed<'a>(rectifier: Rectifier, channels: Channels, affine: &Affine, x: &[f32], dy: &'a [f32]) -> Passing<'a> {
    let [mut passes, mut doubtful] = [vec![false; dy.len()], vec![false; dy.len()]];
    let plane = channels.plane.max(1);
    let planes = passes.par_chunks_mut(plane).zip(doubtful.par_chunks_mut(plane)).zip(x.par_chunks(plane));
    planes.enumerate().with_min_len(channels.planes_at_once()).for_each(|(n, ((passes, doubtful), x))| {
        for ((passes, doubtful), x) in passes.iter_mut().zip(doubtful).zip(x) {
            let (y, bound) = affine.of(n % channels.c.max(1), *x);
            *passes = rectifier.passes(y);
            *doubtful = rectifier.passes(y - bound) != rectifier.passes(y + bound);
        }
    });
    Passing { dy, passes, doubtful }
}

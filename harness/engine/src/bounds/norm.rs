//! Bounds of normalisations: sums per channel are computed in f64, everything else element by element in f32.

use super::{Along, Farthest, LAMBDA, PIECE, Ran, UNIT, WIDE, farthest, product::arity};
use crate::{KernelError, elements::Elements};
use rayon::prelude::*;
use zoo_graph::ops::{BnTrainingGrad, BnTrainingUpdate, GradRelu};
use zoo_kernels::{Isa, Loops};

/// Parallel sums, which form vectors.
const LANES: usize = 16;

/// Roundings between an element and the result: the difference from the mean, the scale (and its own rounding), the
/// shift, the result; in the gradient also those of the two slopes.
const ROUNDINGS: f64 = 6.0;

/// Elements per tile of a convolution with statistics, which are summed in f32 around a pivot: see
/// `zoo_kernels::conv`.
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

    /// The worst element of a result. `of(channel)` maps the operands' elements at a position to the exact result and
    /// its bound.
    fn farthest<const N: usize, F: Fn([f32; N]) -> (f64, f64)>(
        self,
        isa: Isa,
        result: usize,
        found: &[f32],
        operands: [&[f32]; N],
        of: impl Fn(usize) -> F + Sync,
    ) -> Farthest {
        let look = |farthest: Farthest, (plane, found): (usize, &[f32])| {
            let (channel, start) = (plane % self.c.max(1), plane * self.plane);
            let operands = operands.map(|operand| &operand[start..start + found.len()]);
            isa.run(Along { farthest, place: (result, start), found, operands, of: of(channel) })
        };
        // Groups depend only on shapes, so the same one of nearly equal elements is found with any number of threads.
        let (plane, together) = (self.plane.max(1), self.planes_at_once());
        let group =
            |(group, found): (usize, &[f32])| (group * together..).zip(found.chunks(plane)).fold(Farthest::NONE, look);
        let groups = found.par_chunks(plane * together).enumerate();
        groups.map(group).reduce(|| Farthest::NONE, Farthest::or)
    }

    /// The bound of a sum over a channel in f64 that is rounded once. The sums of the kernel and of this check are
    /// random walks (see the [module](super)), and each term has a few roundings of its own.
    fn wide(self, exact: f64, magnitudes: f64) -> f64 {
        let walk = (2.0 * LAMBDA * self.count().sqrt() + 8.0) * f64::EPSILON / 2.0;
        2.0 * UNIT * exact.abs() + walk.min(WIDE) * magnitudes
    }

    /// Sums per channel, divided by the number of values.
    fn means(self, sums: [&[f32]; 2]) -> Vec<[f64; 2]> {
        let [first, second] = sums;
        first.iter().zip(second).map(|(a, b)| [a, b].map(|sum| f64::from(*sum) / self.count())).collect()
    }

    /// Planes per task.
    fn planes_at_once(self) -> usize {
        PIECE.div_ceil(self.plane.max(1))
    }

    /// For each channel, the sums of `of(channel)` over the operands' elements.
    fn sums<const N: usize, const M: usize, F: Fn([f32; N]) -> [f64; M]>(
        self,
        isa: Isa,
        operands: [&[f32]; N],
        of: impl Fn(usize) -> F + Sync,
    ) -> Vec<[f64; M]> {
        self.folded(isa, operands, of, |a, b| a + b)
    }

    /// For each channel, `of(channel)` of the operands' elements, folded with `join` starting from zero.
    fn folded<const N: usize, const M: usize, F: Fn([f32; N]) -> [f64; M]>(
        self,
        isa: Isa,
        operands: [&[f32]; N],
        of: impl Fn(usize) -> F + Sync,
        join: impl Fn(f64, f64) -> f64 + Sync,
    ) -> Vec<[f64; M]> {
        let channel =
            |channel: usize| isa.run(Fold { channels: self, channel, operands, of: of(channel), join: &join });
        (0..self.c).into_par_iter().map(channel).collect()
    }
}

/// Folds `of` of a channel's elements with `join`, starting from zero.
struct Fold<'a, const N: usize, F, J> {
    channels: Channels,
    channel: usize,
    operands: [&'a [f32]; N],
    of: F,
    join: J,
}

impl<const N: usize, const M: usize, F, J> Loops for Fold<'_, N, F, J>
where
    F: Fn([f32; N]) -> [f64; M],
    J: Fn(f64, f64) -> f64,
{
    type Output = [f64; M];

    #[inline(always)]
    fn run(self) -> [f64; M] {
        let Channels { n, c, plane } = self.channels;
        let mut lanes = [[0.0; LANES]; M];
        for start in (0..n).map(|n| (n * c + self.channel) * plane) {
            for at in (start..start + plane).step_by(LANES) {
                let len = LANES.min(start + plane - at);
                let mut read = [[0.0; LANES]; N];
                for (read, operand) in read.iter_mut().zip(self.operands) {
                    read[..len].copy_from_slice(&operand[at..at + len]);
                }
                let mut of_lanes = [[0.0; LANES]; M];
                for lane in 0..LANES {
                    let values = (self.of)(std::array::from_fn(|n| read[n][lane]));
                    (0..M).for_each(|m| of_lanes[m][lane] = values[m]);
                }
                for (lanes, of_lanes) in lanes.iter_mut().zip(&of_lanes) {
                    for (all, x) in lanes[..len].iter_mut().zip(of_lanes) {
                        *all = (self.join)(*all, *x);
                    }
                }
            }
        }
        lanes.map(|lanes| lanes.into_iter().fold(0.0, &self.join))
    }
}

fn widened(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// Compares values per channel with the exact ones and their bounds.
fn per_channel(result: usize, found: &[f32], of: &[(f64, f64)]) -> Farthest {
    farthest(result, found, |channel| of.get(channel).copied().unwrap_or((f64::NAN, 0.0)))
}

/// Mean and variance of each channel.
fn moments(isa: Isa, channels: Channels, x: &[f32]) -> Vec<[f64; 2]> {
    let sums = channels.sums(isa, [x], |_| |[x]: [f32; 1]| [f64::from(x)]);
    let means: Vec<f64> = sums.into_iter().map(|[sum]| sum / channels.count()).collect();
    let squares = channels.sums(isa, [x], |c| {
        let mean = means[c];
        move |[x]: [f32; 1]| [(f64::from(x) - mean).powi(2)]
    });
    means.iter().zip(squares).map(|(mean, [squares])| [*mean, squares / channels.count()]).collect()
}

/// Judges mean and variance from sums in f64.
pub(super) fn statistics(isa: Isa, ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, KernelError> {
    let (operands, [mean, variance]) = (Operands::of(ran)?, found) else { return Err(arity(ran)) };
    let channels = Channels::of(ran.operands[0].dims());
    let moments = moments(isa, channels, operands.get(0)?);
    let second = |[mean, variance]: &[f64; 2]| variance + mean * mean;
    let means: Vec<_> = moments.iter().map(|m| (m[0], channels.wide(m[0], second(m).sqrt()))).collect();
    let variances: Vec<_> = moments.iter().map(|m| (m[1], channels.wide(m[1], second(m)))).collect();
    Ok(per_channel(0, mean, &means).or(per_channel(1, variance, &variances)))
}

/// Judges mean and variance of a convolution's results `y`, which are results 1 and 2: sums in f32 within tiles
/// around a pivot, and sums of tiles in f64. The pivot is a mean of some of the channel's values, so its distance
/// from the mean is at most that of the farthest value.
pub(super) fn statistics_in_tiles(isa: Isa, dims: &[usize], y: &[f32], [mean, variance]: [&[f32]; 2]) -> Farthest {
    let channels = Channels::of(dims);
    let moments = moments(isa, channels, y);
    let distance = |c: usize| {
        let [mean, _] = moments[c];
        move |[y]: [f32; 1]| [(f64::from(y) - mean).abs()]
    };
    let reaches = channels.folded(isa, [y], distance, |a, b| if b > a { b } else { a });
    let bounds = |(moments, [reach]): (&[f64; 2], [f64; 1])| {
        let [mean, variance] = *moments;
        // Magnitudes around the pivot, and their squares. Each has its own rounding and those of its tile's sum. The
        // rounding errors of all values are a random walk, as in a sum of products.
        let (first, second) = (variance.sqrt() + reach, variance + reach * reach);
        let roundings = (TILE + 2.0) * UNIT;
        let walk = LAMBDA * (second / channels.count()).sqrt();
        [
            (mean, 2.0 * UNIT * mean.abs() + roundings * first.min(walk)),
            (variance, 2.0 * UNIT * variance + 2.0 * roundings * second),
        ]
    };
    let bounds: Vec<[(f64, f64); 2]> = moments.iter().zip(reaches).map(bounds).collect();
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

    /// The value of an element of a channel, and its bound.
    fn of(&self, c: usize) -> impl Fn(f32) -> (f64, f64) + Copy + use<> {
        let (mean, factor, beta) = (self.mean[c], self.factor[c], self.beta[c]);
        move |x| {
            let scaled = (f64::from(x) - mean) * factor;
            (scaled + beta, ROUNDINGS * UNIT * (scaled.abs() + beta.abs()))
        }
    }
}

/// Judges a normalisation with fused operators.
pub(super) fn normalised(
    isa: Isa,
    op: &BnTrainingUpdate,
    ran: &Ran<'_>,
    found: &[&[f32]],
) -> Result<Farthest, KernelError> {
    let (operands, [y]) = (Operands::of(ran)?, found) else { return Err(arity(ran)) };
    let [mean, variance, gamma, beta] = [operands.get(1)?, operands.get(2)?, operands.get(3)?, operands.get(4)?];
    let affine = Affine::new([mean, variance, gamma, beta], op.eps);
    let (x, channels, relu) = (operands.get(0)?, Channels::of(ran.operands[0].dims()), op.relu);
    let of = |c: usize| {
        let of = affine.of(c);
        move |x: f32, residual: f64| {
            let (y, bound) = of(x);
            let y = y + residual;
            (relu.map_or(y, |rectifier| rectifier.of(y)), bound + UNIT * (residual.abs() + y.abs()))
        }
    };
    Ok(if ran.operands.len() > 5 {
        channels.farthest(isa, 0, y, [x, operands.get(5)?], |c| {
            let of = of(c);
            move |[x, residual]: [f32; 2]| of(x, f64::from(residual))
        })
    } else {
        channels.farthest(isa, 0, y, [x], |c| {
            let of = of(c);
            move |[x]: [f32; 1]| of(x, 0.0)
        })
    })
}

/// Judges a normalisation with stored statistics.
pub(super) fn stored(isa: Isa, eps: f64, ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, KernelError> {
    let (operands, [y]) = (Operands::of(ran)?, found) else { return Err(arity(ran)) };
    let [gamma, beta, mean, variance] = [operands.get(1)?, operands.get(2)?, operands.get(3)?, operands.get(4)?];
    let affine = Affine::new([mean, variance, gamma, beta], eps);
    let (x, channels) = (operands.get(0)?, Channels::of(ran.operands[0].dims()));
    Ok(channels.farthest(isa, 0, y, [x], |c| {
        let of = affine.of(c);
        move |[x]: [f32; 1]| of(x)
    }))
}

/// The gradient that passes the ReLU after a normalisation. It has no branches, so that its loops become vectors.
#[derive(Clone, Copy)]
struct Passing<F> {
    /// The outputs of the ReLU between which the gradient passes.
    bounds: [f64; 2],
    /// Whether the outputs are recomputed.
    recomputed: bool,
    /// The normalised value of an element, and its bound.
    normalised: F,
}

impl<F: Fn(f32) -> (f64, f64)> Passing<F> {
    fn new(relu: GradRelu, normalised: F) -> Self {
        let (bounds, recomputed) = match relu {
            // No comparison with NaN is true.
            GradRelu::Absent => ([f64::NAN; 2], false),
            GradRelu::Output(rectifier) => (rectifier.bounds(), false),
            GradRelu::Recomputed(rectifier) => (rectifier.bounds(), true),
        };
        Self { bounds, recomputed, normalised }
    }

    /// The part of `dy` that passes, and what passes if rounding decides otherwise where the ReLU is recomputed. `x`
    /// is the normalised value, and `y` the output of the ReLU, if it is known.
    fn of(&self, x: f32, dy: f32, y: f32) -> [f64; 2] {
        let (again, bound) = (self.normalised)(x);
        let (y, bound) = if self.recomputed { (again, bound) } else { (f64::from(y), 0.0) };
        let [low, high] = self.bounds;
        let passes = |y: f64| !((y <= low) | (y >= high));
        let (passes, doubtful) = (passes(y), passes(y - bound) != passes(y + bound));
        [passes, passes != doubtful].map(|passes| if passes { f64::from(dy) } else { 0.0 })
    }
}

/// Judges dgamma and dbeta, with sums in f64. Where rounding decides whether the gradient passes, both decisions are
/// accepted.
fn gradient_sums(
    isa: Isa,
    channels: Channels,
    affine: &Affine,
    relu: GradRelu,
    [x, dy, y]: [&[f32]; 3],
    found: [(usize, &[f32]); 2],
) -> Farthest {
    let sums = channels.sums(isa, [x, dy, y], |c| {
        let (mean, passing) = (affine.mean[c], Passing::new(relu, affine.of(c)));
        move |[x, dy, y]: [f32; 3]| {
            let [dy, other] = passing.of(x, dy, y);
            let (x, doubt) = (f64::from(x), other - dy);
            let centred = x - mean;
            [dy, dy.abs(), dy * centred, (dy * x).abs(), doubt.abs(), (doubt * centred).abs()]
        }
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

/// Judges the gradients of scale and shift.
pub(super) fn sums(isa: Isa, eps: f64, ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, KernelError> {
    let (operands, [dgamma, dbeta]) = (Operands::of(ran)?, found) else { return Err(arity(ran)) };
    let [dy, x, mean, variance] = [operands.get(0)?, operands.get(1)?, operands.get(2)?, operands.get(3)?];
    let affine = Affine::new([mean, variance, mean, mean], eps);
    let channels = Channels::of(ran.operands[1].dims());
    Ok(gradient_sums(isa, channels, &affine, GradRelu::Absent, [x, dy, dy], [(0, dgamma), (1, dbeta)]))
}

impl Affine {
    /// Input gradient of an element `x` of a channel, and its bound. `dy` is the gradient that passed the ReLU, and
    /// `means` are the gradients of scale and shift, divided by the number of values in the channel.
    fn slope(&self, c: usize, means: [f64; 2]) -> impl Fn(f32, f64) -> (f64, f64) + Copy + use<> {
        let (mean, inverse, factor) = (self.mean[c], self.inverse[c], self.factor[c]);
        let [by_scale, by_shift] = means;
        move |x, dy| {
            let by_x = (f64::from(x) - mean) * inverse * by_scale;
            let magnitude = dy.abs() + by_x.abs() + by_shift.abs();
            (factor * (dy - by_shift - by_x), ROUNDINGS * UNIT * (factor * magnitude).abs())
        }
    }
}

/// Judges the input gradient, given those of scale and shift.
pub(super) fn input_gradient(isa: Isa, eps: f64, ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, KernelError> {
    let (operands, [dx]) = (Operands::of(ran)?, found) else { return Err(arity(ran)) };
    let [dy, x, mean, variance, gamma] =
        [operands.get(0)?, operands.get(1)?, operands.get(2)?, operands.get(3)?, operands.get(4)?];
    let affine = Affine::new([mean, variance, gamma, mean], eps);
    let channels = Channels::of(ran.operands[1].dims());
    let means = channels.means([operands.get(5)?, operands.get(6)?]);
    Ok(channels.farthest(isa, 0, dx, [x, dy], |c| {
        let slope = affine.slope(c, means[c]);
        move |[x, dy]: [f32; 2]| slope(x, f64::from(dy))
    }))
}

/// Judges all gradients, through the ReLU. The input gradient is computed from the other two after their rounding.
pub(super) fn gradient(
    isa: Isa,
    op: &BnTrainingGrad,
    ran: &Ran<'_>,
    found: &[&[f32]],
) -> Result<Farthest, KernelError> {
    let (operands, [dx, dgamma, dbeta, rest @ ..]) = (Operands::of(ran)?, found) else { return Err(arity(ran)) };
    let [dy, x, mean, variance, gamma] =
        [operands.get(0)?, operands.get(1)?, operands.get(2)?, operands.get(3)?, operands.get(4)?];
    let beta = if matches!(op.relu, GradRelu::Recomputed(_)) { operands.get(5)? } else { mean };
    let affine = Affine::new([mean, variance, gamma, beta], op.eps);
    let channels = Channels::of(ran.operands[1].dims());
    let y = if matches!(op.relu, GradRelu::Output(_)) { operands.get(5)? } else { dy };
    let passing = |c: usize| Passing::new(op.relu, affine.of(c));
    let sums = gradient_sums(isa, channels, &affine, op.relu, [x, dy, y], [(1, dgamma), (2, dbeta)]);
    let means = channels.means([dgamma, dbeta]);
    let by_input = channels.farthest(isa, 0, dx, [dx, x, dy, y], |c| {
        let (passing, slope) = (passing(c), affine.slope(c, means[c]));
        move |[dx, x, dy, y]: [f32; 4]| {
            let [first, other] = passing.of(x, dy, y).map(|dy| slope(x, dy));
            // Both decisions of the ReLU are right if rounding determines them.
            let distance = |(exact, bound): (f64, f64)| (f64::from(dx) - exact).abs() / bound;
            if distance(other) < distance(first) { other } else { first }
        }
    });
    let passed = rest.iter().map(|passed| {
        channels.farthest(isa, 3, passed, [x, dy, y], |c| {
            let passing = passing(c);
            move |[x, dy, y]: [f32; 3]| (passing.of(x, dy, y)[0], 0.0)
        })
    });
    Ok(passed.fold(sums.or(by_input), Farthest::or))
}

//! Batch normalisation in its parts, and sums per channel.

use super::activation::relu_grad;
use crate::KernelError;
use crate::elements::{Elements, by_chunks, map, vector, widened};
use candle_core::{FloatDType, Tensor};
use rayon::prelude::*;
use zoo_graph::ops::{BnInfer, BnInferGrad, BnRunningUpdate, BnTrainingGrad, BnTrainingUpdate, GradRelu};

/// A tensor `[n, c, ...]` as planes, one per image and channel.
#[derive(Clone, Copy)]
struct Planes {
    n: usize,
    c: usize,
    len: usize,
}

impl Planes {
    fn of(x: &Tensor) -> candle_core::Result<Self> {
        match x.dims() {
            [n, c, rest @ ..] => Ok(Self { n: *n, c: *c, len: rest.iter().product() }),
            dims => Err(candle_core::Error::Msg(format!("a tensor {dims:?} without channels"))),
        }
    }

    /// Values per channel.
    fn values(&self) -> f64 {
        (self.n * self.len) as f64
    }

    /// For each channel, `f(channel, ranges of its elements, plane by plane)`.
    fn per_channel<R: Send>(
        self,
        f: impl Fn(usize, &mut dyn Iterator<Item = std::ops::Range<usize>>) -> R + Sync,
    ) -> Vec<R> {
        let plane = |image: usize, channel: usize| (image * self.c + channel) * self.len;
        (0..self.c)
            .into_par_iter()
            .map(|channel| f(channel, &mut (0..self.n).map(|i| plane(i, channel)..plane(i, channel) + self.len)))
            .collect()
    }

    /// A new tensor with the shape of `x`, whose elements are `f(channel, index)`.
    fn map<T: FloatDType>(self, x: &Tensor, f: impl Fn(usize, usize) -> f64 + Sync) -> candle_core::Result<Tensor> {
        by_chunks::<T>(x.dims(), self.len, |plane, elements| {
            let channel = plane % self.c;
            for (i, y) in elements.iter_mut().enumerate() {
                *y = T::from_f64(f(channel, plane * self.len + i));
            }
        })
    }
}

/// `1 / sqrt(variance + eps)` per channel.
fn inverse_deviation<T: FloatDType>(variance: &Tensor, eps: f64) -> candle_core::Result<Vec<f64>> {
    Ok(widened::<T>(variance)?.iter().map(|v| 1.0 / (v + eps).sqrt()).collect())
}

/// `sum(dy)` per channel.
pub(super) fn bias_grad<T: FloatDType>([dy]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let planes = Planes::of(dy)?;
    let dy = Elements::of(dy)?;
    let dy = dy.slice::<T>()?;
    let sums = planes.per_channel(|_, planes| planes.map(|p| total(dy[p].iter().map(|g| g.to_f64()))).sum::<f64>());
    Ok(vector::<T>(sums)?)
}

/// Mean and biased variance per channel. A second pass computes the variance around the mean.
pub(super) fn statistics<T: FloatDType>([x]: [&Tensor; 1]) -> super::Results {
    let planes = Planes::of(x)?;
    let x = Elements::of(x)?;
    let x = x.slice::<T>()?;
    let sums = planes.per_channel(|_, planes| planes.map(|p| total(x[p].iter().map(|x| x.to_f64()))).sum::<f64>());
    let means: Vec<f64> = sums.iter().map(|sum| sum / planes.values()).collect();
    let squares = planes.per_channel(|channel, planes| {
        let square = |x: &T| (x.to_f64() - means[channel]).powi(2);
        planes.map(|p| total(x[p].iter().map(square))).sum::<f64>()
    });
    let variances = squares.iter().map(|sum| sum / planes.values());
    Ok(vec![vector::<T>(means.iter().copied())?, vector::<T>(variances)?])
}

/// Sum in eight interleaved parts: the order is fixed, and additions do not wait for each other.
fn total(values: impl Iterator<Item = f64>) -> f64 {
    let mut parts = [0.0; 8];
    for (i, value) in values.enumerate() {
        parts[i % 8] += value;
    }
    parts.iter().sum()
}

/// Normalisation with batch statistics, with optional fused operators.
pub(super) fn normalize<T: FloatDType>(
    op: &BnTrainingUpdate,
    [x, mean, var, gamma, beta]: [&Tensor; 5],
    residual: Option<&Tensor>,
) -> Result<Tensor, KernelError> {
    let affine = Affine::new::<T>([mean, var, gamma, beta], op.eps)?;
    let y = Elements::of(x)?;
    let (planes, values) = (Planes::of(x)?, y.slice::<T>()?);
    let residual = residual.map(Elements::of).transpose()?;
    let residual = residual.as_ref().map(Elements::slice::<T>).transpose()?;
    Ok(planes.map::<T>(x, |c, i| {
        let y = affine.apply(c, values[i].to_f64()) + residual.map_or(0.0, |r| r[i].to_f64());
        op.relu.map_or(y, |rectifier| rectifier.of(y))
    })?)
}

/// Normalisation with stored statistics.
pub(super) fn infer<T: FloatDType>(
    op: &BnInfer,
    [x, gamma, beta, mean, var]: [&Tensor; 5],
) -> Result<Tensor, KernelError> {
    let affine = Affine::new::<T>([mean, var, gamma, beta], op.eps)?;
    let opened = Elements::of(x)?;
    let values = opened.slice::<T>()?;
    Ok(Planes::of(x)?.map::<T>(x, |c, i| affine.apply(c, values[i].to_f64()))?)
}

/// `(x - mean) / sqrt(variance + eps) * gamma + beta`, with a mean, variance, gamma and beta per channel.
struct Affine {
    mean: Vec<f64>,
    factor: Vec<f64>,
    beta: Vec<f64>,
}

impl Affine {
    fn new<T: FloatDType>([mean, var, gamma, beta]: [&Tensor; 4], eps: f64) -> candle_core::Result<Self> {
        let inverse = inverse_deviation::<T>(var, eps)?;
        let factor = widened::<T>(gamma)?.iter().zip(inverse).map(|(gamma, s)| gamma * s).collect();
        Ok(Self { mean: widened::<T>(mean)?, factor, beta: widened::<T>(beta)? })
    }

    fn apply(&self, channel: usize, x: f64) -> f64 {
        (x - self.mean[channel]) * self.factor[channel] + self.beta[channel]
    }
}

/// `dy * gamma / sqrt(variance + eps)`.
pub(super) fn infer_grad<T: FloatDType>(
    op: &BnInferGrad,
    [dy, gamma, var]: [&Tensor; 3],
) -> Result<Tensor, KernelError> {
    let inverse = inverse_deviation::<T>(var, op.eps)?;
    let factor: Vec<f64> = widened::<T>(gamma)?.iter().zip(inverse).map(|(gamma, s)| gamma * s).collect();
    let opened = Elements::of(dy)?;
    let values = opened.slice::<T>()?;
    Ok(Planes::of(dy)?.map::<T>(dy, |c, i| values[i].to_f64() * factor[c])?)
}

/// Gradients of scale and shift.
pub(super) fn scale_shift_grad<T: FloatDType>(eps: f64, [dy, x, mean, var]: [&Tensor; 4]) -> super::Results {
    let planes = Planes::of(x)?;
    let (mean, inverse) = (widened::<T>(mean)?, inverse_deviation::<T>(var, eps)?);
    let (dy, x) = (Elements::of(dy)?, Elements::of(x)?);
    let (dy, x) = (dy.slice::<T>()?, x.slice::<T>()?);
    let sums = planes.per_channel(|c, planes| {
        planes.fold([0.0; 2], |[dgamma, dbeta], plane| {
            let centred = plane.clone().map(|i| dy[i].to_f64() * (x[i].to_f64() - mean[c]));
            [dgamma + total(centred) * inverse[c], dbeta + total(dy[plane].iter().map(|dy| dy.to_f64()))]
        })
    });
    Ok(vec![vector::<T>(sums.iter().map(|s| s[0]))?, vector::<T>(sums.iter().map(|s| s[1]))?])
}

/// Input gradient, including the paths through mean and variance.
pub(super) fn input_grad<T: FloatDType>(
    eps: f64,
    [dy, x, mean, var, gamma, dgamma, dbeta]: [&Tensor; 7],
) -> Result<Tensor, KernelError> {
    let planes = Planes::of(x)?;
    let m = planes.values();
    let inverse = inverse_deviation::<T>(var, eps)?;
    let [mean, gamma] = [widened::<T>(mean)?, widened::<T>(gamma)?];
    let [dgamma, dbeta] = [widened::<T>(dgamma)?, widened::<T>(dbeta)?];
    let (dy, values) = (Elements::of(dy)?, Elements::of(x)?);
    let (dy, values) = (dy.slice::<T>()?, values.slice::<T>()?);
    Ok(planes.map::<T>(x, |c, i| {
        let normalised = (values[i].to_f64() - mean[c]) * inverse[c];
        gamma[c] * inverse[c] * (dy[i].to_f64() - dbeta[c] / m - normalised * dgamma[c] / m)
    })?)
}

/// All gradients of a normalisation with a fused ReLU: input gradient, dgamma, dbeta, and the gradient after the ReLU
/// if a residual needs it.
pub(super) fn all_grads<T: FloatDType>(
    op: &BnTrainingGrad,
    [dy, x, mean, var, gamma]: [&Tensor; 5],
    behind: Option<&Tensor>,
) -> super::Results {
    let passed = match (op.relu, behind) {
        (GradRelu::Absent, None) => dy.clone(),
        (GradRelu::Recomputed(rectifier), Some(beta)) => {
            let forward = BnTrainingUpdate { eps: op.eps, residual: false, relu: None, ranks: Vec::new() };
            relu_grad::<T>(rectifier, [dy, &normalize::<T>(&forward, [x, mean, var, gamma, beta], None)?])?
        }
        (GradRelu::Output(rectifier), Some(y)) => relu_grad::<T>(rectifier, [dy, y])?,
        (GradRelu::Absent, Some(_)) => return Err(KernelError::Arity { found: 6 }),
        (GradRelu::Recomputed(_) | GradRelu::Output(_), None) => return Err(KernelError::Arity { found: 5 }),
    };
    let mut sums = scale_shift_grad::<T>(op.eps, [&passed, x, mean, var])?;
    let [dgamma, dbeta] = &sums[..] else { return Err(KernelError::Arity { found: sums.len() }) };
    let dx = input_grad::<T>(op.eps, [&passed, x, mean, var, gamma, dgamma, dbeta])?;
    sums.insert(0, dx);
    if matches!(op.relu, GradRelu::Output(_)) {
        sums.push(passed);
    }
    Ok(sums)
}

/// Running mean and variance, updated with those of the batch.
pub(super) fn running_statistics<T: FloatDType>(op: &BnRunningUpdate, operands: [&Tensor; 4]) -> super::Results {
    let unbiased = op.count as f64 / (op.count as f64 - 1.0);
    let towards = |running: f64, batch: f64| (1.0 - op.momentum) * running + op.momentum * batch;
    let after = map::<T, 4, 2>(operands, |[mean, var, batch_mean, batch_var]| {
        [towards(mean, batch_mean), towards(var, batch_var * unbiased)]
    })?;
    Ok(after.into())
}

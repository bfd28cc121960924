//! Softmax cross entropy.

use crate::KernelError;
use crate::elements::{Elements, by_chunks, scalar};
use candle_core::{FloatDType, Tensor};
use zoo_graph::ops::SoftmaxCrossEntropy;

/// The mean loss over all rows of the logits whose label is not ignored, and the gradient of the logits.
pub(super) fn softmax_cross_entropy<T: FloatDType>(
    op: &SoftmaxCrossEntropy,
    [logits, labels]: [&Tensor; 2],
) -> super::Results {
    let k = logits.dims().last().copied().unwrap_or(1);
    let (on, off) = op.targets(k);
    let (x, labels) = (Elements::of(logits)?, Elements::of(labels)?);
    let (x, labels) = (x.slice::<T>()?, labels.slice::<u32>()?);
    let counts = |label: u32| op.ignored != Some(label);
    if let Some((sample, &label)) =
        labels.iter().enumerate().find(|(_, label)| counts(**label) && **label as usize >= k)
    {
        return Err(KernelError::Label { label, sample, classes: k });
    }
    let n = labels.iter().filter(|label| counts(**label)).count();
    let target = |class: usize, label: u32| if class == label as usize { on } else { off };
    let row = |i: usize| &x[i * k..][..k];
    let sums: Vec<(f64, f64)> = (0..labels.len()).map(|i| log_sum_exp(row(i))).collect();
    let samples = labels.iter().zip(&sums).enumerate().filter(|(_, (label, _))| counts(**label));
    let losses = samples.map(|(i, (&label, (greatest, log_sum)))| {
        let classes = row(i).iter().enumerate();
        // The logit of a class without a target may be -infinity.
        let targets = classes.map(|(class, x)| (target(class, label), x)).filter(|(target, _)| *target != 0.0);
        targets.map(|(target, x)| target * (log_sum - (x.to_f64() - greatest))).sum::<f64>()
    });
    let loss = losses.sum::<f64>() / n as f64;
    let gradient = by_chunks::<T>(logits.dims(), k, |i, gradient| {
        if !counts(labels[i]) {
            return gradient.fill(T::from_f64(0.0));
        }
        let (greatest, log_sum) = sums[i];
        for (class, (g, x)) in gradient.iter_mut().zip(row(i)).enumerate() {
            let probability = libm::exp(x.to_f64() - greatest - log_sum);
            *g = T::from_f64((probability - target(class, labels[i])) / n as f64);
        }
    })?;
    Ok(vec![scalar::<T>(loss)?, gradient])
}

/// The greatest x and `log(sum(exp(x - greatest)))`: their sum would lose digits of small differences between large x.
fn log_sum_exp<T: FloatDType>(x: &[T]) -> (f64, f64) {
    let greatest = x.iter().map(|x| x.to_f64()).fold(f64::NEG_INFINITY, f64::max);
    (greatest, libm::log(x.iter().map(|x| libm::exp(x.to_f64() - greatest)).sum()))
}

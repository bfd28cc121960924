//! Losses and their sums.

use super::call::Call;
use crate::KernelError;
use rayon::prelude::*;
use zoo_graph::ops::SoftmaxCrossEntropy;
use zoo_kernels::{l2_loss, softmax_cross_entropy as kernel};

pub(super) fn softmax_cross_entropy(op: &SoftmaxCrossEntropy, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, logits, labels) = (call.isa, call.operand(0)?, call.indices(1)?);
    let classes = logits.len() / labels.len().max(1);
    let (label, other) = op.targets(classes);
    let targets = kernel::Targets { label, other, ignored: op.ignored };
    let [loss, gradient] = call.results()?;
    let value = kernel::softmax_cross_entropy(isa, logits, labels, targets, gradient, None);
    loss[0] = value.map_err(|e| KernelError::Label { label: e.label, sample: e.row, classes: e.classes })? as f32;
    Ok(())
}

pub(super) fn l2(mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, x) = (call.isa, call.operand(0)?);
    let [loss] = call.results()?;
    loss[0] = l2_loss::l2_loss(isa, x) as f32;
    Ok(())
}

pub(super) fn weighted_sum(weights: &[f64], mut call: Call<'_>) -> Result<(), KernelError> {
    let terms = (0..weights.len()).map(|i| call.operand(i)).collect::<Result<Vec<_>, _>>()?;
    let [sum] = call.results()?;
    sum.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, sum)| {
        for (i, sum) in (chunk * CHUNK..).zip(sum) {
            *sum = weights.iter().zip(&terms).map(|(weight, term)| weight * f64::from(term[i])).sum::<f64>() as f32;
        }
    });
    Ok(())
}

/// Elements per task.
const CHUNK: usize = 1 << 14;

//! Balanced cross entropy on probability maps.

use crate::elements::{Elements, by_chunks, scalar};
use candle_core::{FloatDType, Tensor};
use rayon::prelude::*;
use std::cmp::Ordering;
use zoo_graph::ops::{BalancedBce, HardNegatives, MiningScope};

/// Smallest value of a logarithm (`torch.nn.functional.binary_cross_entropy`).
const LOG_FLOOR: f64 = -100.0;
/// Smallest denominator in the gradient of the cross entropy (the same).
const VARIANCE_FLOOR: f64 = 1e-12;

/// Loss, gradient, number of positives, number of selected negatives, and the smallest loss of the selected
/// negatives.
pub(super) fn balanced_bce<T: FloatDType>(op: &BalancedBce, [p, target, mask]: [&Tensor; 3]) -> super::Results {
    let dims = p.dims();
    let [p, target, mask] = [p, target, mask].map(Elements::of);
    let (p, target, mask) = (p?, target?, mask?);
    let (p, target, mask) = (p.slice::<T>()?, target.slice::<T>()?, mask.slice::<T>()?);
    let at = |values: &[T], i: usize| values[i].to_f64();
    let positive = |i: &usize| at(target, *i) * at(mask, *i) >= 1.0;
    let negative = |i: &usize| (1.0 - at(target, *i)) * at(mask, *i) >= 1.0;
    let entropy = |i: usize| {
        let (p, t) = (at(p, i), at(target, i));
        -(t * libm::log(p).max(LOG_FLOOR) + (1.0 - t) * libm::log1p(-p).max(LOG_FLOOR))
    };
    let pixels = match op.scope {
        MiningScope::Batch => p.len(),
        MiningScope::Image => p.len() / dims.first().copied().unwrap_or(1).max(1),
    };
    let (mut positives, mut negatives) = (Vec::new(), Vec::new());
    for start in (0..p.len()).step_by(pixels.max(1)) {
        let scope = start..start + pixels;
        let before = positives.len();
        positives.extend(scope.clone().filter(positive));
        let candidates: Vec<(usize, f64)> = scope.into_par_iter().filter(negative).map(|i| (i, entropy(i))).collect();
        let count = op.count(positives.len() - before, candidates.len());
        negatives.extend(match op.hard_negatives {
            HardNegatives::TopK => top_k(candidates, count),
            HardNegatives::RankMask => rank_mask(candidates, count),
        });
    }
    let total: f64 = positives.iter().map(|i| entropy(*i)).sum::<f64>() + negatives.iter().map(|n| n.1).sum::<f64>();
    let divisor = (positives.len() + negatives.len()) as f64 + op.eps;
    let mut counts = vec![false; p.len()];
    positives.iter().chain(negatives.iter().map(|(i, _)| i)).for_each(|i| counts[*i] = true);
    let gradient = by_chunks::<T>(dims, 1 << 12, |chunk, out| {
        for (i, out) in (chunk << 12..).zip(out).filter(|(i, _)| counts[*i]) {
            let (p, t) = (at(p, i), at(target, i));
            *out = T::from_f64((p - t) / (p * (1.0 - p)).max(VARIANCE_FLOOR) / divisor);
        }
    })?;
    let least = negatives.iter().map(|n| n.1).reduce(f64::min).unwrap_or(0.0);
    let [positives, negatives] = [positives.len(), negatives.len()].map(|n| n as f64);
    let [loss, positives, negatives, least] = [total / divisor, positives, negatives, least].map(scalar::<T>);
    Ok(vec![loss?, gradient, positives?, negatives?, least?])
}

/// Larger losses come first; of equal ones, the earlier pixel.
fn harder(a: &(usize, f64), b: &(usize, f64)) -> Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

/// The `count` hardest by selection, in the order of the pixels.
fn top_k(mut candidates: Vec<(usize, f64)>, count: usize) -> Vec<(usize, f64)> {
    if count < candidates.len() {
        candidates.select_nth_unstable_by(count, harder);
        candidates.truncate(count);
    }
    candidates.sort_unstable_by_key(|(i, _)| *i);
    candidates
}

/// The `count` hardest by rank: all are sorted, and the rank decides. In the order of the pixels.
fn rank_mask(candidates: Vec<(usize, f64)>, count: usize) -> Vec<(usize, f64)> {
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by(|a, b| harder(&candidates[*a], &candidates[*b]));
    let mut rank = vec![0; candidates.len()];
    order.iter().enumerate().for_each(|(place, candidate)| rank[*candidate] = place);
    candidates.into_iter().zip(rank).filter(|(_, rank)| *rank < count).map(|(candidate, _)| candidate).collect()
}

//! Losses of a siamese tracker: classes of anchors, offsets of boxes, masks at selected positions.

use super::dense_loss::sign;
use crate::elements::{Elements, by_chunks, scalar, sum};
use crate::{KernelError, mask_windows::Enlarged};
use candle_core::{FloatDType, Tensor};
use zoo_graph::{
    Shape,
    ops::{LogitLayout, MaskSoftMargin},
};

/// Log-softmax over pairs: `[n, 2a, h, w]` to `[n, a, h, w, 2]`.
pub(super) fn pair_log_softmax<T: FloatDType>([x]: [&Tensor; 1]) -> Result<Tensor, KernelError> {
    let (n, c, h, w) = x.dims4()?;
    let x = Elements::of(x)?;
    let x = x.slice::<T>()?;
    // The offset of the other score of a pair, and the number of pairs per sample.
    let half = c / 2 * h * w;
    Ok(by_chunks::<T>(&[n, c / 2, h, w, 2], 2, |pair, out| {
        let first = pair / half.max(1) * 2 * half + pair % half.max(1);
        let [a, b] = [first, first + half].map(|i| x[i].to_f64());
        let greatest = a.max(b);
        let log_sum = greatest + libm::log(libm::exp(a - greatest) + libm::exp(b - greatest));
        (out[0], out[1]) = (T::from_f64(a - log_sum), T::from_f64(b - log_sum));
    })?)
}

/// Gradient of [`pair_log_softmax`].
pub(super) fn pair_log_softmax_grad<T: FloatDType>([dy, y]: [&Tensor; 2]) -> Result<Tensor, KernelError> {
    let (n, a, h, w, _) = dy.dims5()?;
    let (dy, y) = (Elements::of(dy)?, Elements::of(y)?);
    let (dy, y) = (dy.slice::<T>()?, y.slice::<T>()?);
    let half = a * h * w;
    Ok(by_chunks::<T>(&[n, 2 * a, h, w], half, |part, out| {
        let (sample, side) = (part / 2, part % 2);
        for (i, out) in out.iter_mut().enumerate() {
            let pair = 2 * (sample * half + i);
            let total = dy[pair].to_f64() + dy[pair + 1].to_f64();
            *out = T::from_f64(dy[pair + side].to_f64() - libm::exp(y[pair + side].to_f64()) * total);
        }
    })?)
}

/// Half the mean over positives plus half the mean over negatives, and its gradient.
pub(super) fn select_cross_entropy<T: FloatDType>([p, labels]: [&Tensor; 2]) -> super::Results {
    let dims = p.dims();
    let (p, labels) = (Elements::of(p)?, Elements::of(labels)?);
    let (p, labels) = (p.slice::<T>()?, labels.slice::<T>()?);
    let class = |i: usize| match labels[i].to_f64() {
        1.0 => Some(1),
        0.0 => Some(0),
        _ => None,
    };
    let mut loss = 0.0;
    let mut shares = [0.0; 2];
    for (side, share) in shares.iter_mut().enumerate() {
        let members = (0..labels.len()).filter(|i| class(*i) == Some(side));
        let count = members.clone().count();
        if count > 0 {
            *share = 0.5 / count as f64;
            loss -= members.map(|i| p[2 * i + side].to_f64()).sum::<f64>() * *share;
        }
    }
    let gradient = by_chunks::<T>(dims, 2, |i, out| {
        if let Some(side) = class(i) {
            out[side] = T::from_f64(-shares[side]);
        }
    })?;
    Ok(vec![scalar::<T>(loss)?, gradient])
}

/// Weighted distance of the offsets over the batch, and its gradient.
pub(super) fn weighted_l1<T: FloatDType>([p, target, weights]: [&Tensor; 3]) -> super::Results {
    let (n, c, h, w) = p.dims4()?;
    let [p, target, weights] = [p, target, weights].map(Elements::of);
    let (p, target, weights) = (p?, target?, weights?);
    let (p, target, weights) = (p.slice::<T>()?, target.slice::<T>()?, weights.slice::<T>()?);
    let anchors = c / 4 * h * w;
    let weight = |i: usize| weights[i / (4 * anchors) * anchors + i % anchors].to_f64();
    let difference = |i: usize| p[i].to_f64() - target[i].to_f64();
    let total = sum(p.len(), |i| difference(i).abs() * weight(i));
    let gradient = by_chunks::<T>(&[n, c, h, w], h * w, |plane, out| {
        for (i, out) in (plane * h * w..).zip(out) {
            *out = T::from_f64(sign(difference(i)) * weight(i) / n as f64);
        }
    })?;
    Ok(vec![scalar::<T>(total / n as f64)?, gradient])
}

/// Logistic loss at the selected positions, its gradient, and the overlap of the masks.
pub(super) fn mask_soft_margin<T: FloatDType>(
    op: &MaskSoftMargin,
    [logits, windows, select]: [&Tensor; 3],
) -> super::Results {
    let (n, one, h, w) = select.dims4()?;
    let dims = logits.dims();
    let layout = op.logit_layout(&Shape::from(dims), [n, one, h, w]);
    let layout = layout.map_err(|e| candle_core::Error::Msg(e.to_string()))?;
    let [logits, windows, select] = [logits, windows, select].map(Elements::of);
    let (logits, windows, select) = (logits?, windows?, select?);
    let (logits, windows, select) = (logits.slice::<T>()?, windows.slice::<T>()?, select.slice::<T>()?);
    let (places, pixels) = (h * w, op.size * op.size);
    let chosen: Vec<usize> = (0..n * places).filter(|i| select[*i].to_f64() == 1.0).collect();
    let share = 1.0 / (chosen.len() * pixels).max(1) as f64;
    let enlarged = match layout {
        LogitLayout::Channels { side } => Some(Enlarged::new(side, op.size, op.align_corners)),
        LogitLayout::Rows => None,
    };
    // The offset of the k-th logit of a position.
    let logit_at = |position: usize, k: usize| match layout {
        LogitLayout::Channels { side } => (position / places * side * side + k) * places + position % places,
        LogitLayout::Rows => position * pixels + k,
    };
    let mut gradient = vec![T::from_f64(0.0); logits.len()];
    let (mut loss, mut overlaps) = (0.0, Vec::new());
    for &position in &chosen {
        let count = enlarged.as_ref().map_or(pixels, |e| e.side * e.side);
        let own: Vec<f64> = (0..count).map(|k| logits[logit_at(position, k)].to_f64()).collect();
        let shown = enlarged.as_ref().map_or_else(|| own.clone(), |e| e.enlarge(&own));
        let window = &windows[position * pixels..][..pixels];
        let (mut slopes, mut both, mut either) = (vec![0.0; pixels], 0usize, 0usize);
        for ((slope, x), mask) in slopes.iter_mut().zip(&shown).zip(window) {
            let mask = mask.to_f64();
            let margin = -mask * x;
            loss += margin.max(0.0) + libm::log1p(libm::exp(-margin.abs()));
            *slope = -mask * share / (1.0 + libm::exp(-margin));
            let (predicted, inside) = (*x >= 0.0, mask == 1.0);
            both += usize::from(predicted && inside);
            either += usize::from(predicted || inside);
        }
        overlaps.push(if either == 0 { 0.0 } else { both as f64 / either as f64 });
        let own_slopes = enlarged.as_ref().map_or_else(|| slopes.clone(), |e| e.reduce(&slopes));
        for (k, slope) in own_slopes.into_iter().enumerate() {
            gradient[logit_at(position, k)] = T::from_f64(slope);
        }
    }
    let mean =
        |value: &dyn Fn(f64) -> f64| overlaps.iter().map(|o| value(*o)).sum::<f64>() / overlaps.len().max(1) as f64;
    let above = |bound: f64| mean(&|overlap| f64::from(overlap > bound));
    let gradient = Tensor::from_vec(gradient, dims, &candle_core::Device::Cpu)?;
    let [loss, iou, half, most] = [loss * share, mean(&|o| o), above(0.5), above(0.7)].map(scalar::<T>);
    Ok(vec![loss?, gradient, iou?, half?, most?])
}

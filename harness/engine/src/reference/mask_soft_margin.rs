//! Losses of masks at selected positions.

use crate::elements::{Elements, scalar};
use crate::mask_windows::Enlarged;
use candle_core::{FloatDType, Tensor};
use zoo_graph::{
    Shape,
    ops::{LogitLayout, MaskSoftMargin},
};

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

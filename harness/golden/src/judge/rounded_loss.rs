//! The cross entropy as PyTorch's autocast on CUDA computes it: log-probabilities are rounded to the half-precision type
//! of the logits, because `cross_entropy` passes this type to `log_softmax`, and their sum is in f32. Autocast on a CPU
//! and MindSpore keep them in f32. A recording may be either; a loss with another formula is neither.
//!
//! Does not apply to f32 and devices, to other losses, or without recorded logits.

use super::{Given, given, targets::Targets};
use crate::{
    GoldenError,
    foreign::{Entry, Quantity},
    golden::Golden,
    weights,
};
use candle_core::{DType as CandleType, Device, Tensor};
use std::collections::BTreeMap;
use zoo_engine::EngineError;
use zoo_graph::{DType, Graph, Op, ops::SoftmaxCrossEntropy};

/// The place of the loss, and its value with rounded log-probabilities, if the step has one cross entropy and its
/// logits are recorded.
///
/// # Errors
/// A recording or golden that cannot be read.
pub(super) fn rounded_loss(
    graph: &Graph,
    golden: &Golden,
    targets: &Targets,
    entries: &BTreeMap<usize, &Entry>,
    dtype: DType,
) -> Result<Option<(usize, f64)>, GoldenError> {
    let mut terms = graph.nodes.iter().filter_map(|node| match &node.op {
        Op::SoftmaxCrossEntropy(op) => Some((node, op)),
        _ => None,
    });
    let (Some((node, op)), None) = (terms.next(), terms.next()) else { return Ok(None) };
    let ([logits, labels], Some(loss)) = (&node.inputs[..], node.outputs.first()) else { return Ok(None) };
    let place = |value| (0..targets.list.len()).find(|n| targets.list[*n].value == value && entries.contains_key(n));
    let label = graph.inputs.iter().find(|input| input.value == *labels);
    let (Some(loss), Some(logits), Some(label)) = (place(*loss), place(*logits), label) else { return Ok(None) };
    let recorded = |place: usize| match given(entries[&place], 1.0)? {
        Given::Elements(array) => Ok(Some(array.values)),
        Given::Statistics(..) => Ok::<_, GoldenError>(None),
    };
    let Some(logits) = recorded(logits)? else { return Ok(None) };
    let labels = match targets.find(&Quantity::Input(label.name.clone())).filter(|place| entries.contains_key(place)) {
        Some(place) => recorded(place)?,
        None => None,
    };
    let labels = labels.map_or_else(|| weights::input(golden, &label.name), Ok)?;
    let value = cross_entropy(op, &logits, &labels, dtype).map_err(EngineError::from)?;
    Ok(value.map(|value| (loss, value)))
}

/// The mean over rows of logits, of which the label is not ignored.
fn cross_entropy(
    op: &SoftmaxCrossEntropy,
    logits: &[f64],
    labels: &[f64],
    dtype: DType,
) -> Result<Option<f64>, candle_core::Error> {
    if labels.is_empty() || !logits.len().is_multiple_of(labels.len()) {
        return Ok(None);
    }
    let classes = logits.len() / labels.len();
    let narrow = match dtype {
        DType::F16 => CandleType::F16,
        DType::Bf16 => CandleType::BF16,
        DType::F32 | DType::F64 | DType::U32 => return Ok(None),
    };
    let (of_label, of_other) = op.targets(classes);
    let (mut sum, mut rows) = (0.0, 0);
    for (row, label) in logits.chunks_exact(classes).zip(labels) {
        if op.ignored.is_some_and(|ignored| f64::from(ignored) == *label) {
            continue;
        }
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let log_sum = row.iter().map(|x| (x - largest).exp()).sum::<f64>().ln() + largest;
        // PyTorch computes them in f32 before it rounds them.
        let exact: Vec<f32> = row.iter().map(|x| (x - log_sum) as f32).collect();
        let rounded = Tensor::from_vec(exact, classes, &Device::Cpu)?.to_dtype(narrow)?;
        let rounded: Vec<f64> = rounded.to_dtype(CandleType::F64)?.to_vec1()?;
        let Some(own) = rounded.get(*label as usize) else { return Ok(None) };
        sum -= of_label * own + of_other * (rounded.iter().sum::<f64>() - own);
        rows += 1;
    }
    Ok((rows > 0).then(|| sum / f64::from(rows)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_graph::ops::SmoothingOver;

    /// Two equal logits: ln 2 = 0.69315 lies between 0.69141 and 0.69531 of bf16.
    #[test]
    fn log_probabilities_are_rounded() {
        let op = |smoothing| SoftmaxCrossEntropy { smoothing, over: SmoothingOver::AllClasses, ignored: Some(9) };
        let of = |smoothing, labels: &[f64]| cross_entropy(&op(smoothing), &[1.5; 6], labels, DType::Bf16).unwrap();
        assert_eq!(of(0.0, &[0.0, 1.0, 9.0]), Some(0.69140625));
        assert_eq!(of(0.5, &[0.0, 1.0, 1.0]), Some(0.69140625));
        assert_eq!(of(0.0, &[9.0, 9.0, 9.0]), None);
        assert_eq!(of(0.0, &[0.0, 1.0, 2.0]), None);
        assert_eq!(of(0.0, &[0.0; 4]), None);
    }
}

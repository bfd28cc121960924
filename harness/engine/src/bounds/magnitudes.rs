//! Bounds of operators with few roundings or with sums of few terms. They are computed by applying the operator
//! itself to other operands.

use super::{Farthest, Ran, UNIT, farthest};
use crate::{EngineError, elements::Elements, reference};
use candle_core::{DType, Tensor};
use zoo_graph::{
    Op, Shape,
    ops::{LogitLayout, LrnGrad, MaskSoftMargin, SoftmaxCrossEntropy, Summed},
};

/// Judges all elements at once: `bound` of the index of a result, the index of an element and its exact value.
pub(super) fn within(
    ran: &Ran<'_>,
    found: &[&[f32]],
    bound: impl Fn(usize, usize, f64) -> f64 + Sync,
) -> Result<Farthest, EngineError> {
    compare(found, &evaluate(ran, &widened(ran)?)?, bound)
}

fn compare(
    found: &[&[f32]],
    exact: &[Vec<f64>],
    bound: impl Fn(usize, usize, f64) -> f64 + Sync,
) -> Result<Farthest, EngineError> {
    let each = found.iter().zip(exact).enumerate().map(|(result, (found, exact))| {
        farthest(result, found, |element| (exact[element], bound(result, element, exact[element])))
    });
    Ok(each.fold(Farthest::NONE, Farthest::or))
}

/// The results are the operands.
pub(super) fn converted(ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, EngineError> {
    compare(found, &numbers(&widened(ran)?)?, |_, _, _| 0.0)
}

/// See [`Rounding::Elementwise`]. Judges piece by piece if elements are independent: otherwise the parameters of a
/// large layer would fill the memory several times.
///
/// [`Rounding::Elementwise`]: zoo_graph::ops::Rounding::Elementwise
pub(super) fn elementwise(roundings: f64, ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, EngineError> {
    let len = found.first().map_or(0, |found| found.len());
    let pieces = if alike(ran) { PIECE } else { len };
    if len > pieces {
        let mut farthest = Farthest::NONE;
        for start in (0..len).step_by(pieces) {
            let piece = pieces.min(len - start);
            let cut = |tensor: &Tensor| tensor.flatten_all()?.narrow(0, start, piece)?.contiguous();
            let [operands, results] = [ran.operands, ran.results]
                .map(|tensors| tensors.iter().map(cut).collect::<candle_core::Result<Vec<_>>>());
            let found: Vec<&[f32]> = found.iter().map(|found| &found[start..start + piece]).collect();
            let of_piece = elementwise(roundings, &Ran { operands: &operands?, results: &results?, ..*ran }, &found)?;
            farthest = farthest.or(Farthest { element: start + of_piece.element, ..of_piece });
        }
        return Ok(farthest);
    }
    let operands = widened(ran)?;
    let exact = evaluate(ran, &operands)?;
    let magnitudes = sensitivities(ran, &operands, &exact)?;
    compare(found, &exact, |result, element, exact| roundings * UNIT * (exact.abs() + magnitudes[result][element]))
}

/// The magnitude of each result: the sum of the magnitudes of its terms.
pub(super) fn of_sums(ran: &Ran<'_>, summed: Summed) -> Result<Vec<Vec<f64>>, EngineError> {
    let operands = widened(ran)?;
    let absolute = |(n, operand): (usize, &Tensor)| match summed {
        Summed::Last if n + 1 < operands.len() => Ok(operand.clone()),
        Summed::All | Summed::Last if operand.dtype() == DType::U32 => Ok(operand.clone()),
        Summed::All | Summed::Last => operand.abs(),
    };
    let operands = operands.iter().enumerate().map(absolute).collect::<candle_core::Result<Vec<_>>>()?;
    evaluate(ran, &operands)
}

/// Elements that are computed at once, if operands and results have the same shape.
const PIECE: usize = 1 << 18;

/// Whether all operands and results have the same shape.
fn alike(ran: &Ran<'_>) -> bool {
    let mut all = ran.operands.iter().chain(ran.results);
    let first = all.next().map(Tensor::dims);
    all.all(|tensor| Some(tensor.dims()) == first)
}

/// Operators that move elements have the same results in f32 as in f64.
pub(super) fn moved(ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, EngineError> {
    let exact = reference::evaluate(&ran.node.name, &ran.node.op, ran.operands, ran.scalars)?;
    let exact = exact.iter().map(|exact| exact.flatten_all()?.contiguous()).collect::<candle_core::Result<Vec<_>>>()?;
    let each = found.iter().zip(&exact).enumerate().map(|(result, (found, exact))| {
        let opened = Elements::of(exact)?;
        let exact = opened.slice::<f32>()?;
        Ok(farthest(result, found, |element| (f64::from(exact[element]), 0.0)))
    });
    Ok(each.collect::<candle_core::Result<Vec<_>>>()?.into_iter().fold(Farthest::NONE, Farthest::or))
}

/// The operands in f64; class indices are not converted.
fn widened(ran: &Ran<'_>) -> candle_core::Result<Vec<Tensor>> {
    let widen = |tensor: &Tensor| {
        if tensor.dtype() == DType::U32 { Ok(tensor.clone()) } else { tensor.to_dtype(DType::F64) }
    };
    ran.operands.iter().map(widen).collect()
}

/// The operator's results in f64.
fn evaluate(ran: &Ran<'_>, operands: &[Tensor]) -> Result<Vec<Vec<f64>>, EngineError> {
    Ok(numbers(&reference::evaluate(&ran.node.name, &ran.node.op, operands, ran.scalars)?)?)
}

/// The elements of tensors.
fn numbers(tensors: &[Tensor]) -> candle_core::Result<Vec<Vec<f64>>> {
    tensors.iter().map(|tensor| tensor.to_dtype(DType::F64)?.flatten_all()?.to_vec1()).collect()
}

/// Step of a difference quotient: its rounding error and the effect of curvature are both about a millionth.
const STEP: f64 = 1.0 / (1u64 << 20) as f64;

/// For each element of a result, the sum over the operands of `|x dy/dx|`: its change if each operand changes by its
/// own size.
fn sensitivities(ran: &Ran<'_>, operands: &[Tensor], exact: &[Vec<f64>]) -> Result<Vec<Vec<f64>>, EngineError> {
    let mut all: Vec<Vec<f64>> = exact.iter().map(|result| vec![0.0; result.len()]).collect();
    for (n, operand) in operands.iter().enumerate().filter(|(_, operand)| operand.dtype() == DType::F64) {
        let mut moved = operands.to_vec();
        moved[n] = operand.affine(1.0 + STEP, 0.0)?;
        let moved = evaluate(ran, &moved)?;
        for ((all, moved), exact) in all.iter_mut().zip(moved).zip(exact) {
            all.iter_mut().zip(moved).zip(exact).for_each(|((all, moved), exact)| *all += (moved - exact).abs() / STEP);
        }
    }
    Ok(all)
}

/// Effect of one rounding of a logit or of e^x on the gradient of the mean loss, in units: `p (1 + |x - max|) / n`,
/// and zero if the label is ignored.
pub(super) fn probabilities(op: &SoftmaxCrossEntropy, ran: &Ran<'_>) -> Result<Vec<f64>, EngineError> {
    let operands = widened(ran)?;
    let [logits, labels] = &operands[..] else {
        return Err(candle_core::Error::Msg("a cross entropy reads logits and labels".into()).into());
    };
    let classes = logits.dims().last().copied().unwrap_or(1).max(1);
    let (opened, labels) = (Elements::of(logits)?, Elements::of(labels)?);
    let labels = labels.slice::<u32>()?;
    let rows = labels.iter().filter(|label| op.ignored != Some(**label)).count();
    let mut all = Vec::with_capacity(logits.elem_count());
    for (row, label) in opened.slice::<f64>()?.chunks_exact(classes).zip(labels) {
        if op.ignored == Some(*label) {
            all.extend(row.iter().map(|_| 0.0));
            continue;
        }
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|x| libm::exp(x - largest)).sum();
        let magnitude = |x: &f64| match libm::exp(x - largest) / sum {
            // Infinitely far below the largest, too.
            0.0 => 0.0,
            probability => probability * (1.0 + largest - x) / rows as f64,
        };
        all.extend(row.iter().map(magnitude));
    }
    Ok(all)
}

/// Magnitudes of both terms in the gradient of a local response normalisation. If `dy` is
/// replaced by `|dy|` with the sign of `x`, nothing cancels in the sum over neighbours.
pub(super) fn through_neighbours(op: &LrnGrad, ran: &Ran<'_>) -> Result<Vec<f64>, EngineError> {
    let operands = widened(ran)?;
    let [x, dy] = &operands[..] else {
        return Err(candle_core::Error::Msg("the gradient of a normalisation reads x and dy".into()).into());
    };
    let ones = x.ones_like()?;
    let aligned = dy.abs()?.mul(&x.sign()?)?;
    // d^-beta, the factor of the normalisation.
    let y = reference::evaluate(&ran.node.name, &Op::from(op.lrn.clone()), std::slice::from_ref(x), ran.scalars)?;
    let power = x.eq(0.0)?.where_cond(&ones, &y[0].div(x)?)?;
    let own = dy.abs()?.mul(&power)?;
    let both = reference::evaluate(&ran.node.name, &ran.node.op, &[x.clone(), aligned.clone()], ran.scalars)?;
    let neighbours = aligned.mul(&power)?.sub(&both[0])?.abs()?;
    Ok(own.add(&neighbours)?.flatten_all()?.to_vec1()?)
}

/// Upper limit of the sum of magnitudes in the gradient of a logit. The slope of a pixel is at most its share of the
/// loss, and along an axis the weights of a logit in the enlarged map add up to at most `size / side + 1`.
pub(super) fn share_of_a_logit(op: &MaskSoftMargin, ran: &Ran<'_>) -> Result<f64, EngineError> {
    let [logits, _, select] = ran.operands else { return Ok(1.0) };
    let (n, one, h, w) = select.dims4()?;
    let side = match op.logit_layout(&Shape::from(logits.dims()), [n, one, h, w]) {
        Ok(LogitLayout::Channels { side }) => side,
        Ok(LogitLayout::Rows) | Err(_) => op.size,
    };
    let chosen = Elements::of(select)?.slice::<f32>()?.iter().filter(|chosen| **chosen == 1.0).count();
    let along_an_axis = op.size as f64 / side as f64 + 1.0;
    Ok(along_an_axis * along_an_axis / (chosen * op.size * op.size).max(1) as f64)
}

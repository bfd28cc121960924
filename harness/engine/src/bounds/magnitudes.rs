//! Bounds of operators with few roundings or with sums of few terms. They are computed by applying the operator
//! itself to other operands.

use super::{Farthest, Ran, UNIT, WIDE, farthest, narrow};
use crate::{EngineError, elements::Elements, reference};
use candle_core::{DType, Tensor};
use zoo_graph::Op;

/// How an operator rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rounding {
    /// The results are elements of the operands.
    Moves,
    /// The result is the operand in another layout or type.
    Converts,
    /// This many roundings, each relative to the result: products, quotients, sums of terms with the same sign, and
    /// values computed in f64.
    Relative(f64),
    /// The same, plus a sum in f64 of terms whose magnitudes add up to at most this value.
    Shares(f64),
    /// Each element of a result is a function of one element of each operand, with this many roundings of intermediate
    /// values. A rounding of an intermediate value changes the result by no more than one additional rounding of the
    /// operands and the result.
    Elementwise(f64),
    /// A sum in f64 of the operands, or of their products, with non-negative factors.
    Wide(Summed),
    /// The same in f32, with this many roundings per term. No partial sum exceeds the sum of the magnitudes.
    Narrow(usize, Summed),
    /// Probabilities are computed in f32, from differences of logits.
    Softmax,
    /// See [`zoo_graph::ops::LrnGrad`]: a term of the element itself, and a sum over its neighbours.
    LrnGrad,
}

/// The operands in which an operator is linear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Summed {
    All,
    /// The last one. The others determine the positions of its elements.
    Last,
}

impl Rounding {
    /// The worst element of the results of a node.
    pub(super) fn farthest(self, ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, EngineError> {
        match (self, found.first().map(|found| found.len())) {
            (Self::Moves, _) => moved(ran, found),
            (Self::Elementwise(_), Some(len)) if len > PIECE && alike(ran) => self.in_pieces(ran, found, len),
            _ => self.whole(ran, found),
        }
    }

    /// Judges piece by piece if elements are independent: otherwise the parameters of a large layer would fill the
    /// memory several times.
    fn in_pieces(self, ran: &Ran<'_>, found: &[&[f32]], len: usize) -> Result<Farthest, EngineError> {
        let mut farthest = Farthest::NONE;
        for start in (0..len).step_by(PIECE) {
            let piece = PIECE.min(len - start);
            let cut = |tensor: &Tensor| tensor.flatten_all()?.narrow(0, start, piece)?.contiguous();
            let operands = ran.operands.iter().map(cut).collect::<candle_core::Result<Vec<_>>>()?;
            let found: Vec<&[f32]> = found.iter().map(|found| &found[start..start + piece]).collect();
            let of_piece = self.whole(&Ran { operands: &operands, ..*ran }, &found)?;
            farthest = farthest.or(Farthest { element: start + of_piece.element, ..of_piece });
        }
        Ok(farthest)
    }

    /// Judges all elements at once.
    fn whole(self, ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, EngineError> {
        let operands = ran.operands.iter().map(to_f64).collect::<candle_core::Result<Vec<_>>>()?;
        let exact = evaluate(ran, self, &operands)?;
        let magnitudes: Vec<Vec<f64>> = match self {
            Self::Moves | Self::Converts | Self::Relative(_) | Self::Shares(_) => Vec::new(),
            Self::Elementwise(_) => sensitivities(ran, &operands, &exact)?,
            Self::Wide(summed) | Self::Narrow(_, summed) => {
                let absolute = |(n, operand): (usize, &Tensor)| match summed {
                    Summed::Last if n + 1 < operands.len() => Ok(operand.clone()),
                    Summed::All | Summed::Last if operand.dtype() == DType::U32 => Ok(operand.clone()),
                    Summed::All | Summed::Last => operand.abs(),
                };
                let operands = operands.iter().enumerate().map(absolute).collect::<candle_core::Result<Vec<_>>>()?;
                evaluate(ran, self, &operands)?
            }
            Self::Softmax => vec![Vec::new(), probabilities(ran, &operands)?],
            Self::LrnGrad => vec![through_neighbours(ran, &operands)?],
        };
        let bound = |result: usize, element: usize, exact: f64| {
            let magnitude = || magnitudes[result][element].abs();
            match self {
                Self::Moves | Self::Converts => 0.0,
                Self::Relative(roundings) => roundings * UNIT * exact.abs(),
                Self::Shares(magnitude) => 16.0 * UNIT * exact.abs() + WIDE * magnitude,
                Self::Elementwise(roundings) => roundings * UNIT * (exact.abs() + magnitude()),
                Self::Wide(_) => 2.0 * UNIT * exact.abs() + WIDE * magnitude(),
                Self::Narrow(terms, _) => narrow(terms, exact, magnitude()),
                // The loss is a logarithm: the relative error of its argument is its absolute error.
                Self::Softmax if result == 0 => 16.0 * UNIT * (1.0 + exact.abs()),
                Self::Softmax | Self::LrnGrad => 16.0 * UNIT * (exact.abs() + magnitude()),
            }
        };
        let each = found.iter().zip(&exact).enumerate().map(|(result, (found, exact))| {
            farthest(result, found, |element| (exact[element], bound(result, element, exact[element])))
        });
        Ok(each.fold(Farthest::NONE, Farthest::or))
    }
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
fn moved(ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, EngineError> {
    let exact = reference::evaluate(&ran.node.name, &ran.node.op, ran.operands, ran.scalars)?;
    let exact = exact.iter().map(|exact| exact.flatten_all()?.contiguous()).collect::<candle_core::Result<Vec<_>>>()?;
    let each = found.iter().zip(&exact).enumerate().map(|(result, (found, exact))| {
        let opened = Elements::of(exact)?;
        let exact = opened.slice::<f32>()?;
        Ok(farthest(result, found, |element| (f64::from(exact[element]), 0.0)))
    });
    Ok(each.collect::<candle_core::Result<Vec<_>>>()?.into_iter().fold(Farthest::NONE, Farthest::or))
}

/// A tensor in f64; class indices are not converted.
fn to_f64(tensor: &Tensor) -> candle_core::Result<Tensor> {
    if tensor.dtype() == DType::U32 { Ok(tensor.clone()) } else { tensor.to_dtype(DType::F64) }
}

/// The operator's results in f64.
fn evaluate(ran: &Ran<'_>, rounding: Rounding, operands: &[Tensor]) -> Result<Vec<Vec<f64>>, EngineError> {
    let results = if rounding == Rounding::Converts {
        operands.to_vec()
    } else {
        reference::evaluate(&ran.node.name, &ran.node.op, operands, ran.scalars)?
    };
    Ok(results
        .iter()
        .map(|result| result.to_dtype(DType::F64)?.flatten_all()?.to_vec1())
        .collect::<candle_core::Result<_>>()?)
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
        let moved = evaluate(ran, Rounding::Elementwise(0.0), &moved)?;
        for ((all, moved), exact) in all.iter_mut().zip(moved).zip(exact) {
            all.iter_mut().zip(moved).zip(exact).for_each(|((all, moved), exact)| *all += (moved - exact).abs() / STEP);
        }
    }
    Ok(all)
}

/// Effect of one rounding of a logit or of e^x on the gradient of the mean loss, in units: `p (1 + |x - max|) / n`,
/// and zero if the label is ignored.
fn probabilities(ran: &Ran<'_>, operands: &[Tensor]) -> Result<Vec<f64>, EngineError> {
    let (Op::SoftmaxCrossEntropy(op), [logits, labels]) = (&ran.node.op, operands) else {
        return Err(candle_core::Error::Msg("not a cross entropy".into()).into());
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
fn through_neighbours(ran: &Ran<'_>, operands: &[Tensor]) -> Result<Vec<f64>, EngineError> {
    let (Op::LrnGrad(op), [x, dy]) = (&ran.node.op, operands) else {
        return Err(candle_core::Error::Msg("not the gradient of a normalisation".into()).into());
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

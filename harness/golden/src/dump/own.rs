//! The error that a node adds to those of its operands.

use crate::{GoldenError, compare::relative_l2, probe::to_f64};
use candle_core::{Device, Tensor};
use serde::{Deserialize, Serialize};
use zoo_datasets::Rng;
use zoo_engine::{EngineError, Scalars, reference};
use zoo_graph::{DType, Node, Op};

/// Largest own error of a node, relative to the expected effect of rounding.
pub(super) const TOLERANCE: f64 = 3.0;

/// Smaller errors are due to rounding in f32 and the order of sums.
pub(super) const F32_LEVEL: f64 = 1e-6;

/// A node's own error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Own {
    /// Relative distance of its results from those of the operator in f64 on the same operands; null if it is not
    /// finite.
    pub error: Option<f64>,
    /// The expected effect of rounding operands, sums and results; null if the exact result is zero and only rounding
    /// errors are left.
    pub expected: Option<f64>,
}

impl Own {
    /// Error divided by the expected error; infinite if the error is not finite, and 1 if there is no expectation.
    pub fn ratio(&self) -> f64 {
        match (self.error, self.expected) {
            (_, None) => 1.0,
            (None, Some(_)) => f64::INFINITY,
            (Some(error), Some(expected)) => error / expected,
        }
    }

    /// Whether the error exceeds rounding.
    pub fn is_fault(&self) -> bool {
        self.ratio() > TOLERANCE
    }

    /// The one with the larger ratio.
    fn worse(self, other: Self) -> Self {
        if other.ratio() > self.ratio() { other } else { self }
    }
}

/// Operand of a node, as stored in a dump.
pub(super) enum Operand {
    /// Numbers in row-major order, and their shape.
    Float(Vec<f64>, Vec<usize>),
    /// Class indices.
    Index(Tensor),
}

/// The own error of a node: its `results` against those of its operator on these operands.
///
/// The expected error is the larger of two: the change of the exact result if every operand changes by one rounding
/// of the type in which sums are computed (so that sums of terms that cancel have a larger expectation), and the
/// distance of the exact result from its rounding to the type of the result.
pub(super) fn own(
    node: &Node,
    operands: &[Operand],
    results: &[Vec<f64>],
    dtypes: &[DType],
    scalars: Scalars,
) -> Result<Own, GoldenError> {
    let exact = evaluate(node, operands, scalars, None)?;
    let unit = if dtypes.contains(&DType::F64) { 2f64.powi(-53) } else { 2f64.powi(-24) };
    let moved = evaluate(node, operands, scalars, Some(unit))?;
    let of = |found: &[f64], truth: &[f64]| {
        let norm = truth.iter().map(|x| x * x).sum::<f64>().sqrt();
        let error = relative_l2(found, truth, norm, truth.len());
        error.is_finite().then_some(error)
    };
    let level = if unit < 2f64.powi(-24) { F32_LEVEL * 2f64.powi(-29) } else { F32_LEVEL };
    let each = exact.iter().zip(&moved).zip(results.iter().zip(dtypes)).map(|((exact, moved), (found, dtype))| {
        let rounded: Vec<f64> = exact.iter().map(|x| rounded(*x, significand(*dtype))).collect();
        let expected = of(moved, exact).zip(of(&rounded, exact)).map(|(a, b)| a.max(b).max(level));
        let finite = |values: &[f64]| values.iter().all(|x| x.is_finite());
        // If only the exact result is finite, this is never expected.
        let expected = if finite(exact) && !finite(found) { Some(level) } else { expected };
        Own { error: of(found, exact), expected }
    });
    let none = Own { error: Some(0.0), expected: Some(level) };
    Ok(each.fold(none, Own::worse))
}

/// Results of the node's operator in f64, with each operand changed at random by up to `unit`, relatively.
fn evaluate(
    node: &Node,
    operands: &[Operand],
    scalars: Scalars,
    unit: Option<f64>,
) -> Result<Vec<Vec<f64>>, GoldenError> {
    let operand = |(i, operand): (usize, &Operand)| match operand {
        Operand::Index(tensor) => Ok(tensor.clone()),
        Operand::Float(numbers, shape) => {
            let mut rng = Rng::new(i as u64, 0, 0);
            let by = unit.unwrap_or(0.0);
            let numbers: Vec<f64> = numbers.iter().map(|x| x * (1.0 + rng.uniform(-by, by))).collect();
            Tensor::from_vec(numbers, shape.as_slice(), &Device::Cpu)
        }
    };
    let operands =
        operands.iter().enumerate().map(operand).collect::<Result<Vec<_>, _>>().map_err(EngineError::from)?;
    let results = match (&node.op, operands.as_slice()) {
        (Op::Cast(_) | Op::TransData(_), [tensor]) => vec![tensor.clone()],
        (op, operands) => reference::evaluate(&node.name, op, operands, scalars)?,
    };
    Ok(results.iter().map(to_f64).collect::<Result<_, _>>().map_err(EngineError::from)?)
}

/// Number of bits in the significand of a type.
fn significand(dtype: DType) -> i32 {
    match dtype {
        DType::F16 => 11,
        DType::Bf16 => 8,
        DType::F32 => 24,
        DType::F64 | DType::U32 => 53,
    }
}

/// The nearest number with `bits` significant bits and any exponent, half to even.
fn rounded(x: f64, bits: i32) -> f64 {
    if bits >= 53 || x == 0.0 || !x.is_finite() {
        return x;
    }
    let exponent = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let unit = 2f64.powi(exponent - bits + 1);
    let ratio = (x / unit).round_ties_even() * unit;
    if ratio.is_finite() { ratio } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_graph::{Phase, Place, ops::Scale};

    fn scale_by_three(results: Vec<f64>, dtype: DType) -> Own {
        let node = Node {
            name: "x".into(),
            op: Scale { factor: 3.0 }.into(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            phase: Phase::Forward,
            origin: None,
            place: Place::Device,
        };
        let operands = [Operand::Float(vec![1.0, 2.0, 1.0 / 3.0], vec![3])];
        own(&node, &operands, &[results], &[dtype], Scalars::default()).unwrap()
    }

    #[test]
    fn halves_are_rounded_to_their_bits() {
        assert_eq!(rounded(2049.0, 11), 2048.0, "half to even");
        assert_eq!(rounded(2051.0, 11), 2052.0);
        assert_eq!(rounded(-1.0 - 2f64.powi(-12), 11), -1.0);
        assert_eq!(rounded(1e-30, 11).log2().floor(), (1e-30f64).log2().floor(), "any exponent");
        assert_eq!([rounded(0.0, 11), rounded(0.1, 53)], [0.0, 0.1]);
    }

    #[test]
    fn an_operator_is_held_against_its_own_operands() {
        let sound = scale_by_three(vec![3.0, 6.0, 1.0], DType::F16);
        assert!(sound.error.unwrap() < 1e-15 && !sound.is_fault());
        // Rounded to 11 bits, which is expected for f16.
        let rounded = scale_by_three(vec![3.0, 6.0, 1.0 + 2f64.powi(-11)], DType::F32);
        assert!(rounded.is_fault(), "{rounded:?}: f32 rounds no more than 24 bits away");
        let lost = scale_by_three(vec![3.0, 6.0, 0.0], DType::F16);
        assert!(lost.is_fault() && (lost.error.unwrap() - 1.0 / 46f64.sqrt()).abs() < 1e-9, "{lost:?}");
        let broken = scale_by_three(vec![3.0, f64::NAN, 1.0], DType::F16);
        assert!(broken.error.is_none() && broken.is_fault());
    }
}

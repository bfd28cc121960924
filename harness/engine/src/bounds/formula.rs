//! Bounds of formulas: running error analysis, term by term.

use super::{BLOCK, Farthest, Ran, UNIT, WIDE, are_nearer, farther};
use crate::{
    EngineError,
    elements::Elements,
    formula::{Evaluation, Number, Prepared, Values},
};
use zoo_graph::{
    Shape,
    formula::{Binary, Unary},
    ops::{Assign, Map},
};
use zoo_kernels::{Isa, Loops};

/// Error of the kernels' functions in units (tested in `zoo_kernels::formula`), with a margin.
const FUNCTION: f64 = 8.0;

/// A number with a bound on the error of a kernel in f32.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Near {
    value: f64,
    error: f64,
}

impl Near {
    /// After a number of roundings of the value. Infinities, as in masks, are not rounded.
    #[inline(always)]
    fn rounded(value: f64, inherited: f64, roundings: f64) -> Self {
        let own = if value.is_finite() { roundings * UNIT * value.abs() } else { 0.0 };
        Self { value, error: inherited + own }
    }

    /// After one rounding of an exact sum or product. The result of exact numbers is not rounded if f32 has it: so
    /// masks and positions remain exact, and what they select is not in doubt.
    #[inline(always)]
    fn rounded_once(value: f64, inherited: f64) -> Self {
        let exact = inherited == 0.0 && f64::from(value as f32) == value;
        Self::rounded(value, inherited, if exact { 0.0 } else { 1.0 })
    }
}

impl Number for Near {
    /// Sums of the terms, of their errors and of their magnitudes.
    type Sum = [f64; 3];

    fn exactly(value: f64) -> Self {
        Self { value, error: 0.0 }
    }

    /// Rounded to f32 where it is combined with a tensor, if it is not exact in f32.
    fn constant(value: f64) -> Self {
        Self::rounded(value, 0.0, if f64::from(value as f32) == value { 0.0 } else { 1.0 })
    }

    /// The bound of a function: its largest change at the ends of the argument's error interval, plus its own
    /// rounding.
    fn unary(self, function: Unary) -> Self {
        let value = function.of(self.value);
        let end = |by: f64| (function.of(self.value + by) - value).abs();
        let inherited = if self.error > 0.0 { end(self.error).max(end(-self.error)) } else { 0.0 };
        // If the interval exceeds the function's domain, the bound is the value itself.
        let inherited = if inherited.is_nan() { value.abs() } else { inherited };
        let roundings = match function {
            Unary::Neg | Unary::Abs | Unary::Sign | Unary::Floor | Unary::Detach => 0.0,
            Unary::Exp
            | Unary::Expm1
            | Unary::Log
            | Unary::Sqrt
            | Unary::Rsqrt
            | Unary::Tanh
            | Unary::Sigmoid
            | Unary::Softplus
            | Unary::Erf
            | Unary::Sin
            | Unary::Cos => FUNCTION,
        };
        Self::rounded(value, inherited, roundings)
    }

    #[inline(always)]
    fn binary(self, function: Binary, other: Self) -> Self {
        let (a, b) = (self, other);
        let value = function.of(a.value, b.value);
        match function {
            Binary::Add | Binary::Sub => Self::rounded_once(value, a.error + b.error),
            Binary::Mul => {
                let inherited = a.value.abs() * b.error + b.value.abs() * a.error + a.error * b.error;
                Self::rounded_once(value, inherited)
            }
            Binary::Div => {
                let least = b.value.abs() - b.error;
                let inherited = if least > 0.0 { (a.error + value.abs() * b.error) / least } else { f64::INFINITY };
                Self::rounded(value, if a.error + b.error > 0.0 { inherited } else { 0.0 }, 1.0)
            }
            Binary::Max | Binary::Min => {
                let doubtful = (a.value - b.value).abs() <= a.error + b.error;
                let chosen = if value == a.value { a.error } else { b.error };
                Self { value, error: if doubtful { a.error.max(b.error) } else { chosen } }
            }
            Binary::Pow => {
                let ends = [-1.0, 1.0].into_iter().flat_map(|s| [-1.0, 1.0].map(|t| (s, t)));
                let end =
                    |(s, t): (f64, f64)| (function.of(a.value + s * a.error, b.value + t * b.error) - value).abs();
                let inherited = ends.map(end).fold(0.0, f64::max);
                Self::rounded(value, inherited, FUNCTION)
            }
            Binary::Greater | Binary::AtLeast | Binary::Equal => {
                let error = a.error + b.error;
                let doubtful = error > 0.0 && (a.value - b.value).abs() <= error;
                Self { value, error: if doubtful { 1.0 } else { 0.0 } }
            }
        }
    }

    fn select(self, yes: Self, no: Self) -> Self {
        let (chosen, other) = if self.value != 0.0 { (yes, no) } else { (no, yes) };
        match self.error {
            0.0 => chosen,
            _ => {
                Self { value: chosen.value, error: chosen.error.max((other.value - chosen.value).abs() + other.error) }
            }
        }
    }
    fn larger(self, other: Self) -> Self {
        let value = if other.value > self.value || other.value.is_nan() { other.value } else { self.value };
        Self { value, error: self.error.max(other.error) }
    }

    fn add([value, error, magnitudes]: Self::Sum, term: Self) -> Self::Sum {
        [value + term.value, error + term.error, magnitudes + term.value.abs()]
    }

    fn join(sum: Self::Sum, other: Self::Sum) -> Self::Sum {
        std::array::from_fn(|n| sum[n] + other[n])
    }

    /// Kernels compute sums in f64.
    fn sum([value, error, magnitudes]: Self::Sum) -> Self {
        Self::rounded(value, error + WIDE * magnitudes, 1.0)
    }
}

/// Judges all results of a formula over broadcast tensors.
pub(super) fn map(isa: Isa, op: &Map, ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, EngineError> {
    let prepared = Prepared::map(op);
    let strides = |tensors: &[candle_core::Tensor]| {
        tensors.iter().map(|tensor| prepared.strides(&Shape::from(tensor.dims()))).collect()
    };
    run(isa, &prepared, [strides(ran.operands), strides(ran.results)], ran, found)
}

/// Judges all results of an update.
pub(super) fn assign(isa: Isa, op: &Assign, ran: &Ran<'_>, found: &[&[f32]]) -> Result<Farthest, EngineError> {
    let elements = found.first().map_or(0, |found| found.len());
    let prepared = Prepared::assign(op, elements, ran.scalars);
    run(isa, &prepared, [vec![vec![1]; ran.operands.len()], vec![vec![1]; ran.results.len()]], ran, found)
}

fn run(
    isa: Isa,
    prepared: &Prepared,
    [strides, result_strides]: [Vec<Vec<usize>>; 2],
    ran: &Ran<'_>,
    found: &[&[f32]],
) -> Result<Farthest, EngineError> {
    let opened = ran.operands.iter().map(Elements::of).collect::<candle_core::Result<Vec<_>>>()?;
    let operands = ran.operands.iter().zip(&opened).map(|(tensor, opened)| Values::<f32>::of(tensor, opened));
    let operands = operands.collect::<candle_core::Result<Vec<_>>>()?;
    let sizes: Vec<usize> = found.iter().map(|found| found.len()).collect();
    let evaluation = Evaluation {
        prepared,
        operands: &operands,
        strides: &strides,
        result_strides: &result_strides,
        result_sizes: &sizes,
    };
    let look = |all: &mut Farthest, result: usize, first: usize, near: &[Near]| {
        let found = &found[result][first..first + near.len()];
        *all = isa.run(InBlocks { farthest: *all, place: (result, first), found, near });
    };
    let parts = evaluation.run(|| Farthest::NONE, look);
    let parts =
        parts.map_err(|source| EngineError::Node { name: ran.node.name.clone(), op: ran.node.op.name(), source })?;
    Ok(parts.into_iter().fold(Farthest::NONE, Farthest::or))
}

/// The worst element so far, compared with the elements of a result from `place.1` on.
struct InBlocks<'a> {
    farthest: Farthest,
    place: (usize, usize),
    found: &'a [f32],
    near: &'a [Near],
}

impl Loops for InBlocks<'_> {
    type Output = Farthest;

    #[inline(always)]
    fn run(self) -> Farthest {
        let (result, first) = self.place;
        let mut farthest = self.farthest;
        let (mut exact, mut bound) = ([0.0; BLOCK], [0.0; BLOCK]);
        let blocks = self.found.chunks(BLOCK).zip(self.near.chunks(BLOCK));
        for (start, (found, near)) in (first..).step_by(BLOCK).zip(blocks) {
            for ((exact, bound), near) in exact.iter_mut().zip(&mut bound).zip(near) {
                (*exact, *bound) = (near.value, near.error);
            }
            if !are_nearer(farthest, found, &exact, &bound) {
                farthest = farther(farthest, result, start, found, &exact, &bound);
            }
        }
        farthest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shift of a softmax is the larger of the maximum of a row and the lowest number of f32. The rounding of the
    /// latter must not affect it.
    #[test]
    fn a_number_that_is_not_taken_leaves_no_error() {
        let near = |value, error| Near { value, error };
        let shift = near(2.0, 1e-7).binary(Binary::Max, Near::constant(f64::from(f32::MIN)));
        assert_eq!(shift, near(2.0, 1e-7));
        assert_eq!(near(2.0, 1e-7).binary(Binary::Max, near(2.0, 3e-7)).error, 3e-7);
        assert!(Near::constant(0.1).error > 0.0 && Near::constant(0.5).error == 0.0);
        assert!(Near::constant(1e8).binary(Binary::Add, Near::constant(1.0)).error > 0.0);
        let hidden = Near::constant(f64::NEG_INFINITY).binary(Binary::Sub, shift).unary(Unary::Exp);
        assert_eq!(hidden, near(0.0, 0.0));
    }

    /// A query that is known to see a key: the rounding of its score is all that its softmax inherits.
    #[test]
    fn what_several_masks_select_is_not_in_doubt() {
        let [one, position] = [1.0, 5.0].map(Near::exactly);
        let causal = position.binary(Binary::Add, Near::constant(-2.0)).binary(Binary::AtLeast, Near::exactly(3.0));
        let seen = causal.binary(Binary::Mul, one);
        let score = Near { value: 0.3, error: 1e-8 };
        assert_eq!(seen.select(score, Near::constant(f64::NEG_INFINITY)), score);
        assert_eq!(one.binary(Binary::Sub, seen), Near::exactly(0.0));
    }
}

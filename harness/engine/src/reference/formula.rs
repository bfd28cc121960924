//! Formulas, element by element in f64, rounded once.

use super::{Call, Results};
use crate::{
    KernelError,
    elements::Elements,
    formula::{Prepared, plain_strides},
};
use candle_core::{Device, FloatDType, Tensor};
use rayon::prelude::*;
use zoo_graph::{
    DType,
    formula::{Extent, Fold, Term, TermId},
    ops::Map,
};

/// Elements that are computed together where nothing is folded.
const CHUNK: usize = 1 << 12;

/// Most pieces whose sums are kept apart before they are added.
const MOST_PIECES: usize = 32;

/// An operand's elements.
enum Values<'a, T> {
    Float(&'a [T]),
    Index(&'a [u32]),
}

/// A piece of the results: elements, or one number per row, or sums.
type Part<T> = Vec<Vec<T>>;

/// The results of a formula.
pub(super) fn map<T: FloatDType>(op: &Map, call: &Call<'_>) -> Results {
    let Prepared { formula, numbers } = Prepared::new(op, call.scalars);
    let total = op.space.numel();
    let row: usize = op.space[op.space.len() - formula.rows()..].iter().product();
    let unit = if formula.rows() == 0 { CHUNK } else { row }.max(1);
    let opened = call.operands.iter().map(Elements::of).collect::<candle_core::Result<Vec<_>>>()?;
    let values = opened.iter().zip(call.operand_types).map(|(elements, ty)| match ty.dtype {
        DType::U32 => elements.slice().map(Values::Index),
        DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => elements.slice::<T>().map(Values::Float),
    });
    let values = values.collect::<candle_core::Result<Vec<Values<'_, T>>>>()?;
    let strides: Vec<Vec<usize>> = call.operand_types.iter().map(|ty| plain_strides(op, &ty.shape)).collect();
    let result_strides: Vec<Vec<usize>> = call.result_types.iter().map(|ty| plain_strides(op, &ty.shape)).collect();
    let place = |strides: &[usize], mut element: usize| {
        let mut at = 0;
        for (extent, stride) in op.space.iter().zip(strides).rev() {
            at += element % extent * stride;
            element /= extent;
        }
        at
    };
    let operand = |n: usize, element: usize| match &values[n] {
        Values::Float(values) => values[place(&strides[n], element)].to_f64(),
        Values::Index(values) => f64::from(values[place(&strides[n], element)]),
    };
    let extents = formula.extents();
    let compute = |start: usize, len: usize| {
        let mut terms: Vec<Vec<f64>> = Vec::with_capacity(formula.terms().len());
        for (term, number) in formula.terms().iter().zip(&numbers) {
            let of = |id: &TermId| &terms[id.0];
            let value: Vec<f64> = match (number, term) {
                (Some(number), _) => vec![*number; len],
                (None, Term::Operand(n)) => (start..start + len).map(|element| operand(*n, element)).collect(),
                (None, Term::Coordinate(axis)) => {
                    let inner: usize = op.space[axis + 1..].iter().product();
                    (start..start + len).map(|element| (element / inner % op.space[*axis]) as f64).collect()
                }
                (None, Term::Unary(function, x)) => of(x).iter().map(|x| function.of(*x)).collect(),
                (None, Term::Binary(function, a, b)) => {
                    of(a).iter().zip(of(b)).map(|(a, b)| function.of(*a, *b)).collect()
                }
                (None, Term::Select(condition, yes, no)) => {
                    let choice =
                        |((condition, yes), no): ((&f64, &f64), &f64)| if *condition != 0.0 { *yes } else { *no };
                    of(condition).iter().zip(of(yes)).zip(of(no)).map(choice).collect()
                }
                (None, Term::Row(Fold::Max, x)) => {
                    let largest = |all: f64, x: &f64| if *x > all || x.is_nan() { *x } else { all };
                    vec![of(x).iter().fold(f64::NEG_INFINITY, largest); len]
                }
                (None, Term::Row(Fold::Sum, x)) => vec![of(x).iter().sum(); len],
                (None, Term::Constant(_) | Term::Step(_) | Term::RowSize) => vec![f64::NAN; len],
                (None, Term::Softmax(_) | Term::Row(Fold::LogSumExp, _)) => {
                    return Err(KernelError::Unexpanded);
                }
            };
            terms.push(value);
        }
        Ok(terms)
    };
    let units = total.div_ceil(unit);
    let sums = |n: usize| !formula.results()[n].over.is_empty();
    let per_piece = match (0..formula.results().len()).any(sums) {
        true => units.div_ceil(MOST_PIECES).max(1),
        false => 1,
    };
    let piece = |piece: usize| {
        let mut parts: Part<f64> = call
            .result_types
            .iter()
            .enumerate()
            .map(|(n, ty)| if sums(n) { vec![0.0; ty.shape.numel()] } else { Vec::new() })
            .collect();
        for start in (piece * per_piece..((piece + 1) * per_piece).min(units)).map(|n| n * unit) {
            let len = unit.min(total - start);
            let terms = compute(start, len)?;
            for (n, result) in formula.results().iter().enumerate() {
                let value = &terms[result.term.0];
                let by_row = extents[result.term.0] == Extent::Row && !result.whole;
                if sums(n) {
                    let elements = (start..).zip(if by_row { &value[..1] } else { value });
                    elements.for_each(|(element, value)| parts[n][place(&result_strides[n], element)] += value);
                } else if by_row {
                    parts[n].push(value[0]);
                } else {
                    parts[n].extend(value);
                }
            }
        }
        Ok(parts)
    };
    let pieces = (0..units.div_ceil(per_piece)).into_par_iter().map(piece).collect::<Result<Vec<_>, KernelError>>()?;
    let tensor = |(n, ty): (usize, &&zoo_graph::TensorType)| {
        let mut all = vec![0.0; if sums(n) { ty.shape.numel() } else { 0 }];
        for part in &pieces {
            match sums(n) {
                true => all.iter_mut().zip(&part[n]).for_each(|(all, part)| *all += part),
                false => all.extend(&part[n]),
            }
        }
        let rounded: Vec<T> = all.into_iter().map(T::from_f64).collect();
        Ok(Tensor::from_vec(rounded, ty.shape.to_vec(), &Device::Cpu)?)
    };
    call.result_types.iter().enumerate().map(tensor).collect()
}

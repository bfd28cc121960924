//! Evaluates a formula with plain loops for any number type: f64 for the reference, f64 with an error bound for the
//! check.

use super::Prepared;
use crate::{KernelError, elements::Elements};
use candle_core::{DType, FloatDType, Tensor};
use rayon::prelude::*;
use std::{ops::Range, slice::from_ref};
use zoo_graph::formula::{Binary, Extent, Fold, Term, TermId, Unary};
use zoo_kernels::{Isa, Loops};

/// Elements that are computed together; fewer if a row is shorter.
const CHUNK: usize = 1 << 10;

/// Largest number of groups of chunks. Each group computes its own sums, in an order that only depends on shapes.
const GROUPS: usize = 32;

/// The number type of a formula.
pub(crate) trait Number: Copy + Send + Sync {
    /// The number type of a sum.
    type Sum: Copy + Default + Send + Sync;

    /// An operand's element, or a coordinate.
    fn exactly(value: f64) -> Self;
    /// A constant for all elements.
    fn constant(value: f64) -> Self;
    fn unary(self, function: Unary) -> Self;
    fn binary(self, function: Binary, other: Self) -> Self;
    fn select(self, yes: Self, no: Self) -> Self;
    /// The larger one, or the one that is NaN.
    fn larger(self, other: Self) -> Self;
    fn add(sum: Self::Sum, term: Self) -> Self::Sum;
    fn join(sum: Self::Sum, other: Self::Sum) -> Self::Sum;
    fn sum(sum: Self::Sum) -> Self;
}

/// A sum and what its roundings lost: in a plain sum of equal numbers, the roundings of all steps have one sign and add
/// up. Where gradients cancel, they would be all that is left.
impl Number for f64 {
    type Sum = [f64; 2];

    fn exactly(value: f64) -> Self {
        value
    }

    fn constant(value: f64) -> Self {
        value
    }

    fn unary(self, function: Unary) -> Self {
        function.of(self)
    }

    #[inline]
    fn binary(self, function: Binary, other: Self) -> Self {
        function.of(self, other)
    }

    fn select(self, yes: Self, no: Self) -> Self {
        if self != 0.0 { yes } else { no }
    }

    fn larger(self, other: Self) -> Self {
        if other > self || other.is_nan() { other } else { self }
    }

    /// Knuth's exact sum of two numbers (TAOCP 2, 4.2.2, theorem B).
    #[inline]
    fn add([sum, lost]: [f64; 2], term: Self) -> [f64; 2] {
        let next = sum + term;
        let added = next - sum;
        [next, lost + ((sum - (next - added)) + (term - added))]
    }

    fn join(sum: [f64; 2], [other, lost]: [f64; 2]) -> [f64; 2] {
        let [sum, own] = Self::add(sum, other);
        [sum, own + lost]
    }

    /// Beyond the numbers, what is lost is NaN.
    fn sum([sum, lost]: [f64; 2]) -> Self {
        if sum.is_finite() { sum + lost } else { sum }
    }
}

/// An operand's elements.
pub(crate) enum Values<'a, T> {
    Float(&'a [T]),
    Index(&'a [u32]),
}

impl<'a, T: FloatDType> Values<'a, T> {
    /// From an open tensor.
    pub fn of(tensor: &Tensor, opened: &'a Elements<'_>) -> candle_core::Result<Self> {
        if tensor.dtype() == DType::U32 { opened.slice().map(Self::Index) } else { opened.slice().map(Self::Float) }
    }

    fn get(&self, at: usize) -> f64 {
        match self {
            Self::Float(values) => values[at].to_f64(),
            Self::Index(values) => f64::from(values[at]),
        }
    }
}

/// The folded value of a row or of a part of it.
#[derive(Clone, Copy)]
enum Folded<N: Number> {
    Sum(N::Sum),
    Max(N),
}

impl<N: Number> Folded<N> {
    fn of(fold: Fold, values: &[N]) -> Result<Self, KernelError> {
        match fold {
            Fold::Sum => Ok(Self::Sum(values.iter().fold(N::Sum::default(), |sum, x| N::add(sum, *x)))),
            Fold::Max => Ok(Self::Max(values.iter().fold(N::exactly(f64::NEG_INFINITY), |all, x| all.larger(*x)))),
            Fold::LogSumExp => Err(KernelError::Unexpanded),
        }
    }

    fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Sum(a), Self::Sum(b)) => Self::Sum(N::join(a, b)),
            (Self::Max(a), Self::Max(b)) => Self::Max(a.larger(b)),
            (Self::Sum(_), Self::Max(_)) | (Self::Max(_), Self::Sum(_)) => other,
        }
    }

    fn value(self) -> N {
        match self {
            Self::Sum(sum) => N::sum(sum),
            Self::Max(largest) => largest,
        }
    }
}

/// Applies a function to pairs of elements.
struct Pairs<'a, N> {
    function: Binary,
    a: &'a [N],
    b: &'a [N],
}

impl<N: Number> Loops for Pairs<'_, N> {
    type Output = Vec<N>;

    /// A separate loop for each function, because most functions are single instructions.
    #[inline(always)]
    fn run(self) -> Vec<N> {
        let mut all = vec![N::exactly(0.0); self.a.len()];
        macro_rules! loops {
            ($($name:ident)*) => {
                match self.function {
                    $(Binary::$name => {
                        for ((all, a), b) in all.iter_mut().zip(self.a).zip(self.b) {
                            *all = a.binary(Binary::$name, *b);
                        }
                    })*
                }
            };
        }
        loops!(Add Sub Mul Div Max Min Pow Greater AtLeast Equal);
        all
    }
}

/// Converts each element to a number.
struct Each<'a, T, F> {
    values: &'a [T],
    of: F,
}

impl<T: Copy, N: Number, F: Fn(T) -> N> Loops for Each<'_, T, F> {
    type Output = Vec<N>;

    #[inline(always)]
    fn run(self) -> Vec<N> {
        let mut all = vec![N::exactly(0.0); self.values.len()];
        for (all, value) in all.iter_mut().zip(self.values) {
            *all = (self.of)(*value);
        }
        all
    }
}

/// A formula over operands in memory.
pub(crate) struct Evaluation<'a, T> {
    pub prepared: &'a Prepared,
    pub operands: &'a [Values<'a, T>],
    /// Strides by operand and axis of the space.
    pub strides: &'a [Vec<usize>],
    /// The same by result.
    pub result_strides: &'a [Vec<usize>],
    /// Number of elements by result.
    pub result_sizes: &'a [usize],
}

impl<T: FloatDType> Evaluation<'_, T> {
    /// Computes all results. `take` receives each element of each result once: the state of its part, the index of
    /// the result, the row-major index of an element, and the values from this one on. Within a part, the elements of
    /// a result are in order. Parts are returned in order, and the last one contains the results that are sums. Only
    /// a few thousand elements of a term exist at a time, however long rows are.
    ///
    /// # Errors
    /// The formula is not [`zoo_graph::formula::Formula::expanded`].
    pub fn run<N: Number, P: Send>(
        &self,
        part: impl Fn() -> P + Sync,
        take: impl Fn(&mut P, usize, usize, &[N]) + Sync,
    ) -> Result<Vec<P>, KernelError> {
        let (formula, row) = (&self.prepared.formula, self.row());
        let chunks = self.chunks();
        let folded = self.long_rows::<N>(&chunks)?;
        let extents = formula.extents();
        let summed: Vec<usize> =
            (0..formula.results().len()).filter(|n| !formula.results()[*n].over.is_empty()).collect();
        // The sums of a group need at most the memory of one element of each term in the space.
        let largest = summed.iter().map(|n| self.result_sizes[*n]).max().unwrap_or(0).max(1);
        let groups = if summed.is_empty() { chunks.len() } else { (self.numel() / largest).clamp(1, GROUPS) };
        let group = |chunks: &[Range<usize>]| {
            let mut part = part();
            let mut sums: Vec<Vec<N::Sum>> =
                summed.iter().map(|n| vec![N::Sum::default(); self.result_sizes[*n]]).collect();
            for chunk in chunks {
                let terms = self.terms::<N>(chunk.clone(), &folded, usize::MAX)?;
                for (n, result) in formula.results().iter().enumerate() {
                    let by_row = extents[result.term.0] == Extent::Row && !result.whole;
                    let values = &terms[result.term.0];
                    let elements = chunk.clone().zip(values);
                    let elements = elements.filter(|(element, _)| !by_row || element % row == 0);
                    match summed.iter().position(|summed| *summed == n) {
                        Some(place) => elements.for_each(|(element, value)| {
                            let sum = &mut sums[place][self.place(&self.result_strides[n], element)];
                            *sum = N::add(*sum, *value);
                        }),
                        None if by_row => {
                            elements.for_each(|(element, value)| take(&mut part, n, element / row, from_ref(value)))
                        }
                        None => take(&mut part, n, chunk.start, values),
                    }
                }
            }
            Ok((part, sums))
        };
        let groups = chunks.par_chunks(chunks.len().div_ceil(groups.max(1)).max(1)).map(group);
        let groups = groups.collect::<Result<Vec<_>, KernelError>>()?;
        let (mut parts, sums): (Vec<P>, Vec<_>) = groups.into_iter().unzip();
        let mut last = part();
        for (place, n) in summed.into_iter().enumerate() {
            for element in 0..self.result_sizes[n] {
                let all = sums.iter().fold(N::Sum::default(), |all, sums| N::join(all, sums[place][element]));
                take(&mut last, n, element, &[N::sum(all)]);
            }
        }
        parts.push(last);
        Ok(parts)
    }

    fn numel(&self) -> usize {
        self.prepared.space.numel()
    }

    /// Elements per row; 1 if nothing is folded.
    fn row(&self) -> usize {
        let space = &self.prepared.space;
        space[space.len() - self.prepared.formula.rows()..].iter().product::<usize>().max(1)
    }

    /// Ranges of elements: several whole rows each, or a part of one row.
    fn chunks(&self) -> Vec<Range<usize>> {
        let (row, numel) = (self.row(), self.numel());
        let (unit, len) = if row <= CHUNK { (numel, CHUNK / row * row) } else { (row, CHUNK) };
        let cut = |start: usize, end: usize| (start..end).step_by(len).map(move |from| from..end.min(from + len));
        (0..numel).step_by(unit.max(1)).flat_map(|start| cut(start, start + unit)).collect()
    }

    /// Folded values of rows that do not fit a chunk, by term and row. Values on which others depend are computed
    /// first.
    fn long_rows<N: Number>(&self, chunks: &[Range<usize>]) -> Result<Vec<Vec<N>>, KernelError> {
        let (terms, row) = (self.prepared.formula.terms(), self.row());
        let mut folded = vec![Vec::new(); terms.len()];
        if row <= CHUNK {
            return Ok(folded);
        }
        let mut depths = Vec::with_capacity(terms.len());
        for term in terms {
            let of_arguments = term.arguments().map(|argument| depths[argument.0]).max().unwrap_or(0);
            depths.push(of_arguments + usize::from(matches!(term, Term::Row(..))));
        }
        for depth in 1..=depths.iter().copied().max().unwrap_or(0) {
            let folds = terms.iter().enumerate().filter(|(n, _)| depths[*n] == depth);
            let folds: Vec<(usize, Fold, TermId)> = folds
                .filter_map(|(n, term)| if let Term::Row(fold, x) = term { Some((n, *fold, *x)) } else { None })
                .collect();
            let until = folds.iter().map(|(_, _, x)| x.0 + 1).max().unwrap_or(0);
            let fold = |chunk: &Range<usize>| {
                let terms = self.terms::<N>(chunk.clone(), &folded, until)?;
                folds.iter().map(|(_, fold, x)| Folded::of(*fold, &terms[x.0])).collect::<Result<Vec<_>, KernelError>>()
            };
            let parts = chunks.par_iter().map(fold).collect::<Result<Vec<_>, KernelError>>()?;
            for (place, (n, ..)) in folds.iter().enumerate() {
                let of_row = |parts: &[Vec<Folded<N>>]| parts.iter().map(|part| part[place]).reduce(Folded::join);
                folded[*n] = parts.chunks(row.div_ceil(CHUNK)).filter_map(of_row).map(Folded::value).collect();
            }
        }
        Ok(folded)
    }

    /// The first `until` terms of a chunk, with the folded values of rows that are longer than it. A term whose
    /// folded values are not yet known is left empty.
    fn terms<N: Number>(
        &self,
        chunk: Range<usize>,
        folded: &[Vec<N>],
        until: usize,
    ) -> Result<Vec<Vec<N>>, KernelError> {
        let Prepared { formula, numbers, space } = self.prepared;
        let (isa, row, len) = (Isa::best(), self.row(), chunk.len());
        let mut terms: Vec<Vec<N>> = Vec::with_capacity(formula.terms().len());
        for (n, (term, number)) in formula.terms().iter().zip(numbers).enumerate().take(until) {
            let of = |id: &TermId| &terms[id.0];
            let value: Vec<N> = match (number, term) {
                (Some(number), _) => vec![N::constant(*number); len],
                (None, Term::Operand(n)) => self.operand(*n, chunk.clone()),
                (None, Term::Coordinate(axis)) => {
                    let inner: usize = space[axis + 1..].iter().product();
                    chunk.clone().map(|element| N::exactly((element / inner % space[*axis]) as f64)).collect()
                }
                (None, Term::Unary(function, x)) => of(x).iter().map(|x| x.unary(*function)).collect(),
                (None, Term::Binary(function, a, b)) => isa.run(Pairs { function: *function, a: of(a), b: of(b) }),
                (None, Term::Select(condition, yes, no)) => {
                    of(condition).iter().zip(of(yes)).zip(of(no)).map(|((c, yes), no)| c.select(*yes, *no)).collect()
                }
                (None, Term::Row(..)) if row > CHUNK => {
                    folded[n].get(chunk.start / row).map_or_else(Vec::new, |value| vec![*value; len])
                }
                (None, Term::Row(fold, x)) => {
                    let mut all = Vec::with_capacity(len);
                    for values in of(x).chunks(row) {
                        all.resize(all.len() + values.len(), Folded::of(*fold, values)?.value());
                    }
                    all
                }
                (None, Term::Constant(_) | Term::Step(_) | Term::RowSize | Term::Softmax(_) | Term::LogSoftmax(_)) => {
                    return Err(KernelError::Unexpanded);
                }
            };
            terms.push(value);
        }
        Ok(terms)
    }

    /// Elements of an operand, broadcast over the space.
    fn operand<N: Number>(&self, n: usize, chunk: Range<usize>) -> Vec<N> {
        let (isa, values, strides) = (Isa::best(), &self.operands[n], &self.strides[n]);
        let get = |at: usize| N::exactly(values.get(at));
        // Operands with the same layout as the space are read directly.
        if *strides == self.prepared.strides(&self.prepared.space) {
            return match values {
                Values::Float(values) => isa.run(Each { values: &values[chunk], of: |x: T| N::exactly(x.to_f64()) }),
                Values::Index(values) => {
                    isa.run(Each { values: &values[chunk], of: |x: u32| N::exactly(f64::from(x)) })
                }
            };
        }
        chunk.map(|element| get(self.place(strides, element))).collect()
    }

    /// The offset of an element of the space in a tensor with these strides.
    fn place(&self, strides: &[usize], mut element: usize) -> usize {
        let mut at = 0;
        for (extent, stride) in self.prepared.space.iter().zip(strides).rev() {
            at += element % extent * stride;
            element /= extent;
        }
        at
    }
}

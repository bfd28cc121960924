//! Sums of products in f64, with the squares of the partial sums that a kernel in f32 rounds.
//!
//! The bound needs all squares. A part of them gives a smaller bound, and almost every element is within it. The
//! other elements are summed again, with all squares.

use super::{Farthest, LAMBDA, Machine, Ran, UNIT};
use crate::{KernelError, elements::Elements};
use rayon::prelude::*;
use std::ops::Range;
use zoo_graph::{
    DType, Shape, TensorType,
    ops::{MatMul, Products},
};
use zoo_kernels::{
    C0, Isa, Loops,
    partial_sums::{ROWS, Totals, add_run},
};

/// Columns of a tile.
pub(super) const COLUMNS: usize = C0;

/// How a kernel computes a sum: a number of terms are summed in a register, which is then added to the result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    /// Largest number of terms that are summed before their sum is added to the result.
    pub terms: usize,
    /// Largest number of shorter sums that a kernel may compute instead of one sum of `terms` terms; at least 1.
    pub shorter: usize,
    /// Whether a product and its sum are rounded together, and not separately.
    pub fused: bool,
}

impl Chain {
    /// The bound on the error of a sum, from the squares of its partial sums. If products are rounded separately: a
    /// product is the difference of two partial sums, the square of a difference is at most twice the sum of the
    /// squares, and each square occurs twice.
    ///
    /// The bound assumes independent roundings. For similar terms, see [`Chain::drift`].
    pub fn bound(self, squares: f64) -> f64 {
        LAMBDA * UNIT * self.variance(squares).sqrt()
    }

    /// The variance of the error of a sum in units of [`UNIT`] squared, likewise.
    pub fn variance(self, squares: f64) -> f64 {
        if self.fused { squares } else { 5.0 * squares }
    }

    /// A sum with the squares of all partial sums. `products(run)` returns the factors of a run's terms.
    fn walk(self, terms: usize, products: &impl Fn(Range<usize>) -> Vec<[f64; 2]>) -> Sum {
        let (mut value, mut squares) = (0.0, 0.0);
        for run in runs(terms, self.terms) {
            let (start, mut sum) = (run.start, 0.0);
            for [a, b] in products(run) {
                sum += a * b;
                squares += sum * sum;
            }
            value += sum;
            squares += self.later(start) * value * value;
        }
        Sum { value, squares }
    }

    /// Number of roundings of the sum at the end of a run that begins at `start`. The first sum is stored, and not
    /// added.
    pub fn later(self, start: usize) -> f64 {
        (self.shorter - usize::from(start == 0)) as f64
    }

    /// Error of a sum in f32, computed like the kernels with the longest and the shortest possible runs. Nearly equal
    /// terms (for example, if all tokens of a batch are equal) are rounded in the same way each time, and their
    /// errors add up.
    pub fn drift(self, terms: usize, products: &impl Fn(Range<usize>) -> Vec<[f64; 2]>) -> f64 {
        let off = |length: usize| {
            let (mut exact, mut rounded) = (0.0, 0.0f32);
            for run in runs(terms, length) {
                let mut sum = 0.0f32;
                for [a, b] in products(run) {
                    exact += a * b;
                    let (a, b) = (a as f32, b as f32);
                    sum = if self.fused { a.mul_add(b, sum) } else { sum + a * b };
                }
                rounded += sum;
            }
            (f64::from(rounded) - exact).abs()
        };
        off(self.terms).max(off(self.terms.div_ceil(self.shorter)))
    }
}

/// Divides terms into runs.
pub(super) fn runs(terms: usize, length: usize) -> impl Iterator<Item = Range<usize>> {
    (0..terms).step_by(length.max(1)).map(move |start| start..terms.min(start + length))
}

/// In long runs, only every `STRIDE`-th partial sum is squared at first. This is enough for correct kernels, which do
/// not come near the bound.
const STRIDE: usize = 16;

/// Panels that share the rows of a run while these are in the second-level cache.
const PANELS: usize = 4;

/// Size of a run's packed rows that fit this cache.
const PACKED: usize = 1 << 15;

/// A sum, and the squares of all or some of its partial sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sum {
    pub value: f64,
    pub squares: f64,
}

/// The kernel's results for `rows x columns` sums. The index of a row and a column is `row(row) + column(column)`.
pub(super) struct Results<'a, R, C> {
    pub found: &'a [f32],
    pub row: R,
    pub column: C,
}

/// The worst of the judged elements.
#[derive(Clone, Copy)]
struct Looked {
    /// By a part of the bound, with row and column.
    by_part: (Farthest, [usize; 2]),
    /// By the whole bound.
    by_all: Farthest,
}

impl Looked {
    const NONE: Self = Self { by_part: (Farthest::NONE, [0; 2]), by_all: Farthest::NONE };

    fn or(self, other: Self) -> Self {
        let (one, two) = (self.by_part, other.by_part);
        let by_part = if one.0.or(two.0) == one.0 { one } else { two };
        Self { by_part, by_all: self.by_all.or(other.by_all) }
    }
}

/// Whether no element in a row of a panel is worse than `ratio`, relative to a part of its bound.
struct Nearer<'a, O> {
    found: &'a [f32],
    totals: &'a Totals,
    ratio: f64,
    /// The exact result from its sum, and a part of its bound.
    of: O,
}

impl<O: Fn(usize, Sum) -> (f64, f64)> Loops for Nearer<'_, O> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let [values, squares] = self.totals;
        let is_nearer = |lane: usize, found: f32| {
            let (exact, part) = (self.of)(lane, Sum { value: values[lane], squares: squares[lane] });
            (f64::from(found) - exact).abs() <= self.ratio * part
        };
        let mut nearer = true;
        if let Some(found) = self.found.first_chunk::<COLUMNS>() {
            // With a known number of elements, the loop becomes a few vectors.
            for (lane, found) in found.iter().enumerate() {
                nearer &= is_nearer(lane, *found);
            }
        } else {
            for (lane, found) in self.found.iter().enumerate() {
                nearer &= is_nearer(lane, *found);
            }
        }
        nearer
    }
}

/// Judges `rows x columns` sums of `terms` products. `left(row, term)` is one factor. `right` lays out the other for
/// [`COLUMNS`] columns and a range of terms, one row per term. `of(row, column, sum)` gives the exact result and its
/// bound. Returns the worst element.
pub(super) fn sums<R: Fn(usize) -> usize + Sync, C: Fn(usize) -> usize + Sync>(
    isa: Isa,
    [rows, columns, terms]: [usize; 3],
    chain: Chain,
    left: impl Fn(usize, usize) -> f64 + Sync,
    right: impl Fn(usize, Range<usize>, &mut [[f64; COLUMNS]]) + Sync,
    results: &Results<'_, R, C>,
    of: impl Fn(usize, usize, Sum) -> (f64, f64) + Sync,
) -> Farthest {
    let tiles = rows.div_ceil(ROWS);
    let runs: Vec<Range<usize>> = runs(terms, chain.terms).collect();
    // A few partial sums may all be small by chance.
    let stride = if terms.min(chain.terms) < 4 * STRIDE { 1 } else { STRIDE };
    // For each run all tiles, for each tile all terms.
    let pack = |run: &Range<usize>| {
        let mut packed = vec![[0.0; ROWS]; tiles * run.len()];
        packed.par_chunks_mut(run.len()).enumerate().for_each(|(tile, packed)| {
            let first = tile * ROWS;
            for (term, packed) in run.clone().zip(packed) {
                if first + ROWS <= rows {
                    *packed = std::array::from_fn(|r| left(first + r, term));
                } else {
                    (first..rows).zip(packed).for_each(|(row, packed)| *packed = left(row, term));
                }
            }
        });
        packed
    };
    let packed: Vec<Vec<[f64; ROWS]>> = runs.iter().map(pack).collect();
    let place = |row: usize, column: usize| (results.row)(row) + (results.column)(column);
    // Judges an element by its whole bound, with drift.
    let look = |row: usize, column: usize| {
        let (panel, lane) = (column / COLUMNS * COLUMNS, column % COLUMNS);
        let products = |run: Range<usize>| {
            let mut laid_out = vec![[0.0; COLUMNS]; run.len()];
            right(panel, run.clone(), &mut laid_out);
            run.zip(laid_out).map(|(term, right)| [left(row, term), right[lane]]).collect()
        };
        let (exact, mut bound) = of(row, column, chain.walk(terms, &products));
        let found = results.found[place(row, column)];
        if (f64::from(found) - exact).abs() > bound {
            bound += chain.drift(terms, &products);
        }
        Farthest::of(0, place(row, column), found, exact, bound)
    };
    let judge_panel = |first: usize, totals: &[Totals]| {
        let places: Vec<usize> = (first..columns.min(first + COLUMNS)).map(&results.column).collect();
        let mut looked = Looked::NONE;
        for (row, totals) in totals[..rows].iter().enumerate() {
            let start = (results.row)(row);
            let mut found = [0.0; COLUMNS];
            found.iter_mut().zip(&places).for_each(|(found, place)| *found = results.found[start + place]);
            let of_row = |lane: usize, sum: Sum| of(row, first + lane, sum);
            let ratio = looked.by_part.0.ratio;
            if isa.run(Nearer { found: &found[..places.len()], totals, ratio, of: of_row }) {
                continue;
            }
            let [values, squares] = totals;
            for (lane, place) in places.iter().enumerate() {
                let sum = Sum { value: values[lane], squares: squares[lane] };
                let (exact, part) = of(row, first + lane, sum);
                let (element, found) = (start + place, found[lane]);
                let (off, farthest) = ((f64::from(found) - exact).abs(), looked.by_part.0);
                // Elements that overflowed on both sides have no distance, and need no second look.
                let same = f64::from(found) == exact || (found.is_nan() && exact.is_nan());
                if same || off <= farthest.ratio * part {
                    continue;
                }
                if off <= part {
                    looked.by_part = (Farthest::of(0, element, found, exact, part), [row, first + lane]);
                } else if looked.by_all.ratio <= 1.0 {
                    looked.by_all = looked.by_all.or(look(row, first + lane));
                } else {
                    // If there is a fault, not every element needs a second look.
                    looked.by_all = looked.by_all.or_of(0, element, found, exact, part * (stride as f64).sqrt());
                }
            }
        }
        looked
    };
    let panels = columns.div_ceil(COLUMNS);
    let together = (panels / 8).clamp(1, PANELS);
    let of_panels = |group: usize| {
        let firsts: Vec<usize> = (group * together..panels.min((group + 1) * together)).map(|p| p * COLUMNS).collect();
        let mut totals: Vec<Vec<Totals>> = vec![vec![[[0.0; COLUMNS]; 2]; tiles * ROWS]; firsts.len()];
        let mut laid_out = vec![vec![[0.0; COLUMNS]; chain.terms.min(terms)]; firsts.len()];
        for (run, packed) in runs.iter().zip(&packed) {
            for (first, laid_out) in firsts.iter().zip(&mut laid_out) {
                right(*first, run.clone(), &mut laid_out[..run.len()]);
            }
            let at_once = (PACKED / (ROWS * run.len())).max(1);
            for (n, packed) in packed.chunks(at_once * run.len()).enumerate() {
                for (laid_out, totals) in laid_out.iter().zip(&mut totals) {
                    let totals = &mut totals[n * at_once * ROWS..];
                    add_run(isa, packed, &laid_out[..run.len()], stride, chain.later(run.start), totals);
                }
            }
        }
        firsts.iter().zip(&totals).map(|(first, totals)| judge_panel(*first, totals)).fold(Looked::NONE, Looked::or)
    };
    let groups = (0..panels.div_ceil(together)).into_par_iter();
    let Looked { by_part: (farthest, [row, column]), by_all } =
        groups.map(of_panels).reduce(|| Looked::NONE, Looked::or);
    if farthest.ratio > 0.0 { by_all.or(look(row, column)) } else { by_all }
}

/// How matrix products are summed: `zoo_kernels::linear` and `zoo_kernels::matmul` add up to 512 terms at a time,
/// some of them 64.
const MATRICES: (usize, usize) = (512, 512 / 64);

/// Judges `op(a) * op(b) + bias` for each matrix.
pub(super) fn matrices(
    machine: Machine,
    op: &MatMul,
    ran: &Ran<'_>,
    found: &[&[f32]],
) -> Result<Farthest, KernelError> {
    let ([a, b], [found]) = (ran.operands.first_chunk().ok_or(arity(ran))?, found) else { return Err(arity(ran)) };
    let [of_a, of_b] = [a, b].map(|tensor| TensorType::plain(Shape::from(tensor.dims()), DType::F32));
    let matrices = KernelError::Operand { place: 0, expected: "matrices that fit each other" };
    let products = op.joined(&of_a, &of_b).map_err(|_| matrices)?;
    let Products { m, n, k, .. } = products;
    let (a, b, bias) = (Elements::of(a)?, Elements::of(b)?, ran.operands.get(2).map(Elements::of).transpose()?);
    let (a, b) = (a.slice::<f32>()?, b.slice::<f32>()?);
    let bias = bias.as_ref().map(Elements::slice::<f32>).transpose()?;
    let (terms, shorter) = MATRICES;
    let chain = Chain { terms, shorter, fused: machine.fused };
    let product = |index: usize| {
        let a = &a[products.matrix_of(&products.leading_a, index) * m * k..][..m * k];
        let b = &b[products.matrix_of(&products.leading_b, index) * k * n..][..k * n];
        let left = |row: usize, term: usize| f64::from(a[if op.transpose_a { term * m + row } else { row * k + term }]);
        let right = |first: usize, terms: Range<usize>, out: &mut [[f64; COLUMNS]]| {
            let columns = COLUMNS.min(n - first);
            for (term, out) in terms.zip(out) {
                for (column, out) in (first..).zip(&mut out[..columns]) {
                    *out = f64::from(b[if op.transpose_b { column * k + term } else { term * n + column }]);
                }
            }
        };
        let results = Results { found, row: |row| (index * m + row) * n, column: |column| column };
        let of = |_: usize, column: usize, sum: Sum| {
            let exact = sum.value + bias.map_or(0.0, |bias| f64::from(bias[column]));
            (exact, chain.bound(sum.squares) + UNIT * exact.abs())
        };
        sums(machine.isa, [m, n, k], chain, left, right, &results, of)
    };
    Ok((0..products.count()).into_par_iter().map(product).reduce(|| Farthest::NONE, Farthest::or))
}

/// The number of operands or results does not fit the operator.
pub(super) fn arity(ran: &Ran<'_>) -> KernelError {
    KernelError::Arity { found: ran.operands.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A large term and 383 equal small ones: each is rounded up, by 0.4 units of the sum.
    #[test]
    fn equal_terms_drift() {
        let small = 0.6 * f64::from(f32::EPSILON);
        let chain = Chain { terms: 512, shorter: 8, fused: true };
        let products = |run: Range<usize>| run.map(|term| [if term == 0 { 1.0 } else { small }, 1.0]).collect();
        let exact = 1.0 + 383.0 * f64::from(small as f32);
        let drift = chain.drift(384, &products);
        assert!((drift - 383.0 * 0.4 * f64::from(f32::EPSILON)).abs() < 1e-6 * exact, "{drift}");
        let independent = chain.bound((0..384).map(|n| (1.0 + f64::from(n) * small).powi(2)).sum());
        assert!(drift > independent, "{drift} {independent}");
        // Terms with both signs do not drift.
        let both = |run: Range<usize>| run.map(|term| [(term as f64).sin() as f32 as f64, 1.0]).collect();
        assert!(chain.drift(384, &both) < 1e-5);
    }

    /// 3 rows, 2 columns, 5 terms in runs of 2: every partial sum by hand.
    #[test]
    fn sums_and_squares_are_those_of_the_runs() {
        let (left, right) =
            (|row: usize, term: usize| (row + term) as f64, |term: usize, column: usize| (1 + term * column) as f64);
        for isa in Isa::available() {
            let chain = Chain { terms: 2, shorter: 3, fused: true };
            let lay_out = |first: usize, terms: Range<usize>, out: &mut [[f64; COLUMNS]]| {
                for (term, out) in terms.zip(out) {
                    (0..2).for_each(|column| out[column] = right(term, first + column));
                }
            };
            let seen = std::sync::Mutex::new(Vec::new());
            let results = Results { found: &[0.0; 6], row: |row| 2 * row, column: |column| column };
            sums(isa, [3, 2, 5], chain, left, lay_out, &results, |row, column, sum| {
                let (mut value, mut squares) = (0.0, 0.0);
                for start in [0, 2, 4] {
                    let mut run = 0.0;
                    for term in start..5.min(start + 2) {
                        run += left(row, term) * right(term, column);
                        squares += run * run;
                    }
                    value += run;
                    squares += if start > 0 { 3.0 } else { 2.0 } * value * value;
                }
                assert_eq!(sum, Sum { value, squares });
                seen.lock().unwrap().push((row, column));
                (0.0, 0.0)
            });
            assert_eq!(seen.lock().unwrap().len(), 6);
        }
    }

    /// One element has an error, below or above its bound, in long sums whose squares are not all used at first.
    #[test]
    fn an_element_is_judged_by_all_of_its_bound() {
        const SHAPE: [usize; 3] = [13, 70, 600];
        let [rows, columns, terms] = SHAPE;
        let chain = Chain { terms: 512, shorter: 4, fused: true };
        let factor = |a: usize, b: usize| f64::from((((a * 7919 + b * 104_729) % 1009) as f32 / 504.5 - 1.0).sin());
        let (left, right) = (|row: usize, term: usize| factor(row, term), |term, column| factor(term + 31, column));
        let lay_out = |first: usize, terms: Range<usize>, out: &mut [[f64; COLUMNS]]| {
            for (term, out) in terms.zip(out) {
                (first..columns.min(first + COLUMNS)).for_each(|column| out[column - first] = right(term, column));
            }
        };
        let sum = |row: usize, column: usize| {
            chain.walk(terms, &|run| run.map(|term| [left(row, term), right(term, column)]).collect())
        };
        let exact: Vec<f64> = (0..rows * columns).map(|e| sum(e / columns, e % columns).value).collect();
        let bound = chain.bound(sum(11, 67).squares);
        for isa in Isa::available() {
            let judged = |off: f64| {
                let mut found: Vec<f32> = exact.iter().map(|x| *x as f32).collect();
                found[11 * columns + 67] = (exact[11 * columns + 67] + off * bound) as f32;
                let results = Results { found: &found, row: |row| row * columns, column: |column| column };
                sums(isa, SHAPE, chain, left, lay_out, &results, |_, _, s: Sum| (s.value, chain.bound(s.squares)))
            };
            for off in [0.1, 0.2, 0.6, 0.9, 3.0] {
                let Farthest { ratio, element, .. } = judged(off);
                assert_eq!(element, 11 * columns + 67, "{off}");
                // Adjacent numbers of f32 are a few hundredths of the bound apart.
                let drift = if off > 1.0 { 0.3 * off } else { 0.0 };
                assert!((ratio - off).abs() < 0.05 + drift, "{off} {ratio}");
            }
        }
    }
}

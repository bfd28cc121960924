//! Products of matrices, row-major, one or many: `C = op(A) op(B) + bias`.
//!
//! A task computes some rows of one product. It copies of B panels with the columns of a tile, and its part of A tile
//! by tile, so that a tile reads neighbours: of B a panel of at most `PANEL` elements at a time, which the first-level
//! cache holds while all rows of the task pass by. Where several tasks read the same B, it is laid out once, before
//! them. Sums run over the terms of a panel before they are added to the result; how work is cut depends on the shape
//! only.

mod tiles;

use crate::aligned::AlignedBuf;
use crate::half::HalfType;
use crate::isa::Isa;
use crate::micro::amx::Amx;
use crate::micro::product::{Left, Right, Sum, pack, run};
use crate::micro::vectors_together;
use crate::parallel::pieces;
use crate::parts::Parts;
use crate::simd::{pixels_mut, vectorised};
use rayon::prelude::*;
use std::array;
use std::cell::RefCell;
use std::ops::Range;
use tiles::OnTiles;

/// Elements of a panel of B, 32 KiB: with as many terms as it has, their sum is added to the result.
const PANEL: usize = 8192;

/// Rows of a task, for sums of as many terms: they stay in the second-level cache.
const ROWS: usize = 224;

/// Tasks that a product is cut into for several threads.
const TASKS: usize = 8;

/// Products of two numbers that a task computes at least, if they belong to small matrices: some microseconds.
const GRAIN: usize = 1 << 19;

/// f32 lanes of a vector.
const LANES: usize = crate::C0;

/// Columns of a panel: those of a tile.
fn panel_columns(isa: Isa) -> usize {
    vectors_together(isa) * LANES
}

/// Terms that are summed before the sum is added to the result.
fn depth(isa: Isa) -> usize {
    PANEL / panel_columns(isa)
}

thread_local! {
    static SCRATCH: RefCell<[AlignedBuf; 3]> = RefCell::default();
}

/// Extents of products of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Rows of a result.
    pub m: usize,
    /// Columns of a result.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
    /// Whether A is given as `[k, m]`.
    pub transpose_a: bool,
    /// Whether B is given as `[n, k]`.
    pub transpose_b: bool,
}

/// Which matrix of A and which of B each product takes.
#[derive(Clone, Copy, Debug)]
pub struct Places<'p>(pub &'p [[usize; 2]]);

impl Places<'_> {
    /// The matrix B that all products share, if they do.
    fn shared(&self) -> Option<usize> {
        let [first, rest @ ..] = self.0 else { return None };
        rest.iter().all(|place| place[1] == first[1]).then_some(first[1])
    }
}

impl Extents {
    /// Elements of the workspace of [`products`].
    #[must_use]
    pub fn workspace_len(&self, isa: Isa, operands: Option<HalfType>, places: Places<'_>) -> usize {
        let on_tiles = self.on_tiles(isa, operands);
        if places.0.len() * self.blocks(isa, on_tiles) == 1 || places.shared().is_none() {
            return 0;
        }
        on_tiles.map_or_else(|| self.n.next_multiple_of(panel_columns(isa)) * self.k, OnTiles::laid_out_len)
    }

    /// How tiles compute a product of operands of this format or, without one, of f32, if they do.
    fn on_tiles(self, isa: Isa, operands: Option<HalfType>) -> Option<OnTiles> {
        let parts = Parts::of(operands);
        Amx::of(isa).filter(|_| parts.pays(self.m, self.n)).map(|amx| OnTiles { amx, parts, extents: self })
    }

    /// Tasks of a product: as many as the cache asks for, and some for several threads if these have enough to do.
    fn blocks(&self, isa: Isa, on_tiles: Option<OnTiles>) -> usize {
        on_tiles.map_or_else(
            || {
                let fitting = self.m.div_ceil(ROWS * depth(isa) / self.k.min(depth(isa)));
                let worthwhile = self.m.saturating_mul(self.n).saturating_mul(self.k) / GRAIN;
                fitting.max(worthwhile.min(TASKS).min(self.m))
            },
            OnTiles::blocks,
        )
    }

    fn depths(&self, isa: Isa) -> impl ExactSizeIterator<Item = Range<usize>> {
        pieces(self.k, self.k.div_ceil(depth(isa)))
    }
}

/// Computes the products, one after another in `result`.
///
/// `operands` is the format of all elements of A and B, if it is not f32: tiles multiply them faster then.
///
/// # Panics
/// If an extent is zero, or a slice has not the length that the extents or [`Extents::workspace_len`] call for.
#[allow(clippy::too_many_arguments, reason = "the operands of a product, and where they are")]
pub fn products(
    isa: Isa,
    extents: Extents,
    operands: Option<HalfType>,
    places: Places<'_>,
    a: &[f32],
    b: &[f32],
    bias: Option<&[f32]>,
    workspace: &mut [f32],
    result: &mut [f32],
) {
    let Extents { m, n, k, .. } = extents;
    assert!(m > 0 && n > 0 && k > 0, "empty product");
    assert_eq!(result.len(), places.0.len() * m * n, "result");
    assert_eq!(workspace.len(), extents.workspace_len(isa, operands, places), "workspace");
    assert!(bias.is_none_or(|bias| bias.len() == n), "bias");
    let on_tiles = extents.on_tiles(isa, operands);
    let blocks = extents.blocks(isa, on_tiles);
    if !workspace.is_empty() {
        let shared = &b[places.shared().unwrap_or(0) * k * n..][..k * n];
        match on_tiles {
            Some(on_tiles) => on_tiles.lay_out(isa, shared, workspace),
            None => lay_out(isa, extents, shared, workspace),
        }
    }
    let laid_out = (!workspace.is_empty()).then_some(&*workspace);
    let mut tasks = Vec::with_capacity(places.0.len() * blocks);
    let mut rest = result;
    for &[of_a, of_b] in places.0 {
        let (a, b) = (&a[of_a * m * k..][..m * k], &b[of_b * k * n..][..k * n]);
        let unit = if on_tiles.is_some() { tiles::ROWS } else { 1 };
        for rows in pieces(m.div_ceil(unit), blocks) {
            let rows = rows.start * unit..(rows.end * unit).min(m);
            let (out, others) = rest.split_at_mut(rows.len() * n);
            rest = others;
            tasks.push((a, b, rows, out));
        }
    }
    let at_once = (GRAIN / (m.div_ceil(blocks) * n * k)).max(1);
    tasks.into_par_iter().with_min_len(at_once).with_max_len(at_once).for_each(|(a, b, rows, out)| {
        let right = laid_out.map_or(RightMatrix::Given(b), RightMatrix::LaidOut);
        match on_tiles {
            Some(on_tiles) => on_tiles.compute(isa, a, right, rows, out),
            None => SCRATCH.with_borrow_mut(|scratch| compute(isa, extents, a, right, rows, scratch, out)),
        }
        if let Some(bias) = bias {
            for row in out.chunks_exact_mut(n) {
                row.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
            }
        }
    });
}

/// B as it is given, or all its panels: `[depth][panel][term][column]`, or those of [`tiles`].
#[derive(Clone, Copy)]
enum RightMatrix<'a> {
    Given(&'a [f32]),
    LaidOut(&'a [f32]),
}

/// Some rows of a product.
fn compute(
    isa: Isa,
    extents: Extents,
    a: &[f32],
    b: RightMatrix<'_>,
    rows: Range<usize>,
    [of_a, of_b, last]: &mut [AlignedBuf; 3],
    out: &mut [f32],
) {
    let (n, count, of_panel) = (extents.n, rows.len(), panel_columns(isa));
    let whole = n / of_panel;
    let width = n % of_panel;
    // The columns behind the last whole panel are summed aside, where vectors may be wider than they are.
    last.grow(count * of_panel);
    for terms in extents.depths(isa) {
        let left = pack_rows(isa, extents, a, rows.clone(), terms.clone(), of_a);
        for panel in 0..n.div_ceil(of_panel) {
            let right = match b {
                RightMatrix::LaidOut(panels) => {
                    &panels[terms.start * n.next_multiple_of(of_panel) + panel * of_panel * terms.len()..]
                }
                RightMatrix::Given(b) => {
                    of_b.grow(PANEL);
                    copy_panel(isa, extents, b, panel, terms.clone(), &mut of_b[..of_panel * terms.len()]);
                    &of_b[..]
                }
            };
            let right = Right { data: &right[..of_panel * terms.len()], row_pitch: of_panel };
            let (data, row_pitch, columns) = if panel < whole {
                (&mut out[panel * of_panel..], n, of_panel)
            } else {
                (&mut last[..], of_panel, width.next_multiple_of(LANES))
            };
            let sum = Sum { data, row_pitch, accumulate: terms.start > 0 };
            run(isa, left, right, sum, [count, columns, terms.len()]);
        }
    }
    if width > 0 {
        for (row, values) in out.chunks_exact_mut(n).zip(last.chunks_exact(of_panel)) {
            row[whole * of_panel..].copy_from_slice(&values[..width]);
        }
    }
}

/// Some rows and terms of A, for tiles.
fn pack_rows<'s>(
    isa: Isa,
    extents: Extents,
    a: &[f32],
    rows: Range<usize>,
    terms: Range<usize>,
    scratch: &'s mut AlignedBuf,
) -> Left<'s> {
    let Extents { m, k, transpose_a, .. } = extents;
    let [count, depth] = [rows.len(), terms.len()];
    scratch.grow(count * depth + LANES);
    let (first, pitch) =
        if transpose_a { (terms.start * m + rows.start, m) } else { (rows.start * k + terms.start, k) };
    pack(isa, &a[first..], pitch, transpose_a, [count, depth], scratch);
    Left::Packed(scratch)
}

/// Some terms of a panel of B, `[term][column]`, zero beyond the last column.
fn copy_panel(isa: Isa, extents: Extents, b: &[f32], panel: usize, terms: Range<usize>, copy: &mut [f32]) {
    let (Extents { n, k, .. }, of_panel) = (extents, panel_columns(isa));
    let columns = panel * of_panel..((panel + 1) * of_panel).min(n);
    match (extents.transpose_b, of_panel == LANES) {
        (true, true) => return transpose_panel::<1>(isa, k, b, columns, terms, copy),
        (true, false) => return transpose_panel::<2>(isa, k, b, columns, terms, copy),
        (false, _) if columns.len() < of_panel => {}
        (false, true) => return copy_columns::<LANES>(isa, n, &b[terms.start * n + columns.start..], copy),
        (false, false) => return copy_columns::<{ 2 * LANES }>(isa, n, &b[terms.start * n + columns.start..], copy),
    }
    copy.fill(0.0);
    for (term, copy) in terms.zip(copy.chunks_exact_mut(of_panel)) {
        copy[..columns.len()].copy_from_slice(&b[term * n..][columns.clone()]);
    }
}

vectorised! {
    /// The first columns of each row of `pitch` elements, as many as a panel has: vectors, not calls of memcpy.
    fn copy_columns [const C: usize,] [C] (_simd, pitch: usize, b: &[f32], copy: &mut [f32]) -> () {
        for (copy, row) in copy.as_chunks_mut::<C>().0.iter_mut().zip(b.chunks(pitch)) {
            if let Some(row) = row.first_chunk() {
                *copy = *row;
            }
        }
    }
}

vectorised! {
    /// The same of `[column][term]`, with rows of `pitch` elements: a block of 16 columns and 16 terms at a time.
    fn transpose_panel [const VECTORS: usize,] [VECTORS] (
        simd, pitch: usize, b: &[f32], columns: Range<usize>, terms: Range<usize>, copy: &mut [f32],
    ) -> () {
        for first in terms.clone().step_by(LANES) {
            let block = first..(first + LANES).min(terms.end);
            for vector in 0..VECTORS {
                let column = columns.start + vector * LANES;
                let whole = column + LANES <= columns.end && block.len() == LANES;
                let rows = if whole {
                    let at = |lane| (column + lane) * pitch + block.start;
                    array::from_fn(|lane| simd.load(b[at(lane)..].first_chunk().unwrap_or(&[0.0; LANES])))
                } else {
                    array::from_fn(|lane| {
                        let mut row = [0.0; LANES];
                        if column + lane < columns.end {
                            row[..block.len()].copy_from_slice(&b[(column + lane) * pitch..][block.clone()]);
                        }
                        simd.load(&row)
                    })
                };
                let to = pixels_mut(&mut copy[(first - terms.start) * VECTORS * LANES..]);
                for (to, value) in to.iter().skip(vector).step_by(VECTORS).zip(simd.transpose(rows)).take(block.len()) {
                    simd.store(value, to);
                }
            }
        }
    }
}

/// All panels of B.
fn lay_out(isa: Isa, extents: Extents, b: &[f32], panels: &mut [f32]) {
    let of_panel = panel_columns(isa);
    let padded = extents.n.next_multiple_of(of_panel);
    let mut rest = panels;
    for terms in extents.depths(isa) {
        let (part, others) = rest.split_at_mut(padded * terms.len());
        rest = others;
        part.par_chunks_exact_mut(of_panel * terms.len())
            .enumerate()
            .for_each(|(panel, copy)| copy_panel(isa, extents, b, panel, terms.clone(), copy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::half::{Range, Rounding};
    use crate::testing::{affordable, filled, same_bits_on_any_threads};

    /// Extents that are no multiple of anything, more terms than one sum takes, more rows than a task has, rows that
    /// lie 2 KiB apart.
    const CASES: [[usize; 3]; 9] = [
        [1, 1, 1],
        [3, 7, 5],
        [17, 33, 20],
        [15, 64, 300],
        [230, 40, 260],
        [600, 18, 15],
        [31, 70, 530],
        [110, 100, 1200],
        [20, 34, 512],
    ];

    fn all() -> impl Iterator<Item = Extents> {
        let cases = CASES.into_iter().filter(|[m, n, k]| affordable(4 * m * n * k));
        let flags = [(false, false), (false, true), (true, false), (true, true)];
        cases.flat_map(move |[m, n, k]| {
            flags.map(|(transpose_a, transpose_b)| Extents { m, n, k, transpose_a, transpose_b })
        })
    }

    /// Three products: of two matrices A, and of one matrix B or of two.
    fn three(isa: Isa, extents: Extents, operands: Option<HalfType>, shared: bool) -> [Vec<f32>; 3] {
        let Extents { m, n, k, .. } = extents;
        let (mut a, mut b, bias) = (filled(2 * m * k, 1), filled(2 * k * n, 2), filled(n, 3));
        if let Some(ty) = operands {
            let rounding = Rounding::new(isa, ty, Range::Unbounded);
            [&mut a, &mut b].into_iter().for_each(|values| rounding.whole(values));
        }
        let other = usize::from(!shared);
        let places = [[0, 0], [1, 0], [1, other]];
        let mut workspace = vec![f32::NAN; extents.workspace_len(isa, operands, Places(&places))];
        let mut result = vec![f32::NAN; 3 * m * n];
        products(isa, extents, operands, Places(&places), &a, &b, Some(&bias), &mut workspace, &mut result);
        [result, a, b]
    }

    #[test]
    fn products_match_sums_in_f64() {
        for (extents, shared) in all().flat_map(|extents| [(extents, true), (extents, false)]) {
            let Extents { m, n, k, transpose_a, transpose_b } = extents;
            let bias = filled(n, 3);
            let halves = [HalfType::Bf16, HalfType::Fp16].map(|ty| (Isa::best(), Some(ty)));
            for (isa, operands) in Isa::available().into_iter().map(|isa| (isa, None)).chain(halves) {
                let [result, a, b] = three(isa, extents, operands, shared);
                for (i, &value) in result.iter().enumerate() {
                    let (product, row, column) = (i / (m * n), i / n % m, i % n);
                    let of_b = usize::from(product == 2 && !shared);
                    let (a, b) = (&a[product.min(1) * m * k..], &b[of_b * k * n..]);
                    let term = |t: usize| {
                        let x = if transpose_a { a[t * m + row] } else { a[row * k + t] };
                        let y = if transpose_b { b[column * k + t] } else { b[t * n + column] };
                        f64::from(x) * f64::from(y)
                    };
                    let terms = (0..k).map(term).chain([f64::from(bias[column])]);
                    let (sum, magnitude) = terms.fold((0.0, 0.0), |(s, m), t| (s + t, m + t.abs()));
                    let error = (f64::from(value) - sum).abs();
                    let bound = 4.0 * f64::from(f32::EPSILON) * magnitude;
                    assert!(error <= bound, "{extents:?}, product {product} [{row}, {column}]: {value} for {sum}");
                }
            }
        }
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        for extents in all() {
            let each = [None, Some(HalfType::Bf16), Some(HalfType::Fp16)]
                .map(|operands| [(operands, true), (operands, false)]);
            same_bits_on_any_threads(|isa| {
                each.iter()
                    .flatten()
                    .map(|&(operands, shared)| three(isa, extents, operands, shared)[0].clone())
                    .collect()
            });
        }
    }
}

//! Products of matrices on AMX tiles ([`crate::micro::amx`]).
//!
//! Operands are divided into bf16 numbers ([`crate::parts`]) as they are copied: of A as many rows as the
//! second-level cache holds, `[16 rows][32 terms][part][row][term]`; B to panels of 32 columns,
//! `[panel][32 terms][part][16 columns][pair of terms][column]`.

use super::{Extents, LANES, RightMatrix};
use crate::aligned::AlignedBuf;
use crate::isa::Isa;
use crate::micro::amx::{Amx, DEPTH, Left, MAX_TILES, Right, SIDE, Steps, Sums, TILE};
use crate::parallel::pieces;
use crate::parts::{Parts, for_parts, half_words, read_words, store_pairs, store_parts, words};
use crate::simd::vectorised;
use rayon::prelude::*;
use std::array;
use std::cell::RefCell;
use std::ops::Range;

/// Half words of A that a task converts: they stay in the second-level cache.
const LEFT_LEN: usize = 512 << 10;

/// Rows of A that share a panel of B at least, where there are as many.
const MANY_ROWS: usize = 160;

/// Rows that tiles compute together.
pub(super) const ROWS: usize = MAX_TILES * SIDE;

/// Columns of a panel: those of all tiles.
const PANEL: usize = MAX_TILES * SIDE;

thread_local! {
    static SCRATCH: RefCell<[AlignedBuf; 2]> = RefCell::default();
}

/// A product on tiles.
#[derive(Clone, Copy)]
pub(super) struct OnTiles {
    pub(super) amx: Amx,
    pub(super) parts: Parts,
    pub(super) extents: Extents,
}

impl OnTiles {
    /// Terms, filled up to whole tiles.
    fn depth(self) -> usize {
        self.extents.k.next_multiple_of(DEPTH)
    }

    /// Pieces of a sum, so that many rows of A fit the cache.
    fn depths(self) -> impl ExactSizeIterator<Item = Range<usize>> {
        let steps = self.depth() / DEPTH;
        pieces(steps, (steps * DEPTH * self.parts.count() * MANY_ROWS).div_ceil(LEFT_LEN))
    }

    /// Tasks of a product.
    pub(super) fn blocks(self) -> usize {
        let longest = self.depths().next().map_or(1, |steps| steps.len());
        let rows = (LEFT_LEN / (longest * DEPTH * self.parts.count()) / ROWS * ROWS).max(ROWS);
        self.extents.m.div_ceil(rows)
    }

    /// Words of a panel of B.
    fn panel_len(self) -> usize {
        self.depth() / DEPTH * self.parts.count() * MAX_TILES * TILE
    }

    /// Elements that all panels of B take.
    pub(super) fn laid_out_len(self) -> usize {
        self.extents.n.div_ceil(PANEL) * self.panel_len()
    }

    /// All panels of B.
    pub(super) fn lay_out(self, isa: Isa, b: &[f32], panels: &mut [f32]) {
        let panels = words(panels).par_chunks_exact_mut(self.panel_len()).enumerate();
        panels.for_each(|(panel, words)| self.convert_panel(isa, b, panel, 0..self.depth() / DEPTH, words));
    }

    /// Some rows of a product.
    pub(super) fn compute(self, isa: Isa, a: &[f32], b: RightMatrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        SCRATCH.with_borrow_mut(|scratch| {
            for steps in self.depths() {
                self.add_terms(isa, a, b, steps, rows.clone(), scratch, out);
            }
        });
    }

    /// The sums of some terms, added to those of earlier ones.
    #[allow(clippy::too_many_arguments, reason = "the operands of a product, and which part of it")]
    fn add_terms(
        self,
        isa: Isa,
        a: &[f32],
        b: RightMatrix<'_>,
        steps: Range<usize>,
        rows: Range<usize>,
        [left, right]: &mut [AlignedBuf; 2],
        out: &mut [f32],
    ) {
        let (n, count) = (self.extents.n, self.parts.count());
        let row_tile = steps.len() * count * SIDE * DEPTH;
        let len = rows.len().div_ceil(ROWS) * MAX_TILES * row_tile;
        left.grow(len.div_ceil(2));
        let copy = &mut half_words(left)[..len];
        for (index, to) in copy.chunks_exact_mut(row_tile).enumerate() {
            let first = rows.start + index * SIDE;
            let rows = first..(first + SIDE).min(rows.end);
            for_parts!(self.parts, convert_rows(isa, self.extents, a, rows, steps.clone(), to));
        }
        let step_words = count * MAX_TILES * TILE;
        let accumulate = steps.start > 0;
        let terms = Steps::new((0..steps.len()).map(|step| [step * count * SIDE * DEPTH, step * step_words]));
        let mut sums = Scratch([0.0; ROWS * PANEL]);
        let configured = self.amx.configure();
        for panel in 0..n.div_ceil(PANEL) {
            let panel_words = match b {
                RightMatrix::LaidOut(panels) => read_words(
                    &panels[panel * self.panel_len() + steps.start * step_words..][..steps.len() * step_words],
                ),
                RightMatrix::Given(b) => {
                    right.grow(steps.len() * step_words);
                    let words = &mut words(right)[..steps.len() * step_words];
                    self.convert_panel(isa, b, panel, steps.clone(), words);
                    &*words
                }
            };
            let right = Right { data: panel_words, tile_pitch: TILE, part_pitch: MAX_TILES * TILE };
            let columns = panel * PANEL..((panel + 1) * PANEL).min(n);
            for first in (0..rows.len()).step_by(ROWS) {
                let count = (rows.len() - first).min(ROWS);
                let data = &copy[first / SIDE * row_tile..];
                let left = Left { data, row_pitch: DEPTH, tile_pitch: row_tile, part_pitch: SIDE * DEPTH };
                let tiles = [count.div_ceil(SIDE), columns.len().div_ceil(SIDE)];
                let product = |data: &mut [f32], row_pitch: usize| {
                    let tile_pitches = [SIDE * row_pitch, SIDE];
                    let to = Sums { data, tiles, tile_pitches, row_pitch, accumulate };
                    configured.multiply(self.parts, left, right, &terms, to);
                };
                // Whole tiles go to where they belong.
                if count.is_multiple_of(SIDE) && columns.len().is_multiple_of(SIDE) {
                    product(&mut out[first * n + columns.start..], n);
                    continue;
                }
                let each = out[first * n..].chunks_exact_mut(n).zip(sums.0.chunks_exact_mut(PANEL)).take(count);
                each.for_each(|(row, sums)| sums[..columns.len()].copy_from_slice(&row[columns.clone()]));
                product(&mut sums.0, PANEL);
                let each = out[first * n..].chunks_exact_mut(n).zip(sums.0.chunks_exact(PANEL)).take(count);
                each.for_each(|(row, sums)| row[columns.clone()].copy_from_slice(&sums[..columns.len()]));
            }
        }
    }

    /// A panel of B, with zeros behind the last term and column.
    fn convert_panel(self, isa: Isa, b: &[f32], panel: usize, steps: Range<usize>, words: &mut [u32]) {
        let Extents { n, k, transpose_b, .. } = self.extents;
        for (step, words) in steps.zip(words.chunks_exact_mut(self.parts.count() * MAX_TILES * TILE)) {
            for tile in 0..MAX_TILES {
                let at = [panel * PANEL + tile * SIDE, step * DEPTH];
                for_parts!(self.parts, convert_tile(isa, b, [n, k], transpose_b, at, &mut words[tile * TILE..]));
            }
        }
    }
}

/// Sums of tiles that are not whole.
#[repr(align(64))]
struct Scratch([f32; ROWS * PANEL]);

/// Up to 16 neighbours, and zeros behind them.
#[inline(always)]
fn lanes(row: &[f32], first: usize) -> [f32; LANES] {
    let rest = row.get(first..).unwrap_or_default();
    rest.first_chunk().copied().unwrap_or_else(|| array::from_fn(|lane| rest.get(lane).copied().unwrap_or(0.0)))
}

vectorised! {
    /// A tile of up to 16 rows of A, with zeros behind the last term.
    fn convert_rows [const P: usize,] [P] (
        simd, extents: Extents, a: &[f32], rows: Range<usize>, steps: Range<usize>, to: &mut [u16],
    ) -> () {
        let Extents { m, k, transpose_a, .. } = extents;
        for term in (steps.start * DEPTH..steps.end * DEPTH).step_by(LANES) {
            let mut block = [simd.splat(0.0); LANES];
            if transpose_a {
                for (row, term) in block.iter_mut().zip(term..k) {
                    *row = simd.load(&lanes(&a[term * m..][..rows.end], rows.start));
                }
                block = simd.transpose(block);
            } else {
                for (value, row) in block.iter_mut().zip(rows.clone()) {
                    *value = simd.load(&lanes(&a[row * k..][..k], term));
                }
            }
            let at = (term / DEPTH - steps.start) * P * SIDE * DEPTH + term % DEPTH;
            for (row, value) in block.into_iter().enumerate() {
                store_parts::<S, P>(simd, value, to, at + row * DEPTH, SIDE * DEPTH);
            }
        }
    }
}

vectorised! {
    /// A tile of B, from a column and a term on. Its extent is n and k: `[k, n]`, or `[n, k]` if it is transposed.
    fn convert_tile [const P: usize,] [P] (
        simd, b: &[f32], extent: [usize; 2], transposed: bool, at: [usize; 2], to: &mut [u32],
    ) -> () {
        let ([n, k], [column, term]) = (extent, at);
        for half in 0..DEPTH / LANES {
            let term = term + half * LANES;
            let mut rows = [simd.splat(0.0); LANES];
            if transposed {
                for (row, column) in rows.iter_mut().zip(column..n) {
                    *row = simd.load(&lanes(&b[column * k..][..k], term));
                }
                rows = simd.transpose(rows);
            } else {
                for (row, term) in rows.iter_mut().zip(term..k) {
                    *row = simd.load(&lanes(&b[term * n..][..n], column));
                }
            }
            for (pair, rows) in rows.as_chunks::<2>().0.iter().enumerate() {
                store_pairs::<S, P>(simd, *rows, to, (half * LANES / 2 + pair) * LANES, MAX_TILES * TILE);
            }
        }
    }
}

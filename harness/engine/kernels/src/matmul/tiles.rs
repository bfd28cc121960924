//! Products of matrices of half precision on AMX tiles ([`crate::micro::amx`]).
//!
//! Operands are converted to bf16, or to two bf16 numbers each, as they are copied: A to rows that follow each other,
//! `[part][row][term]`, as many as the second-level cache holds; B to panels of 32 columns,
//! `[panel][32 terms][part][16 columns][16 pairs of terms]`. A sum has all its terms in one go.

use super::{Extents, LANES, PANEL, RightMatrix};
use crate::aligned::AlignedBuf;
use crate::isa::Isa;
use crate::micro::amx::{Amx, Configured, DEPTH, Left, MAX_TILES, Right, SIDE, Steps, Sums, TILE};
use crate::parts::{Parts, half_words, read_words, words};
use crate::simd::vectorised;
use rayon::prelude::*;
use std::array;
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// Half words of A that a task converts: they stay in the second-level cache.
const LEFT_LEN: usize = 512 << 10;

/// Rows that tiles compute together.
const ROWS: usize = MAX_TILES * SIDE;

const _: () = assert!(MAX_TILES * SIDE == PANEL, "a panel has the columns of all tiles");

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

    /// Tasks of a product.
    pub(super) fn blocks(self) -> usize {
        let rows = (LEFT_LEN / (self.depth() * self.parts.count()) / ROWS * ROWS).max(ROWS);
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
        panels.for_each(|(panel, words)| self.convert_panel(isa, b, panel, words));
    }

    /// Some rows of a product.
    pub(super) fn compute(self, isa: Isa, a: &[f32], b: RightMatrix<'_>, rows: Range<usize>, out: &mut [f32]) {
        // Taken, not borrowed, as everywhere.
        let [mut left, mut right] = SCRATCH.take();
        let (n, depth, count) = (self.extents.n, self.depth(), self.parts.count());
        let part_pitch = rows.len().next_multiple_of(ROWS) * depth;
        left.grow((count * part_pitch).div_ceil(2));
        let copy = &mut half_words(&mut left)[..count * part_pitch];
        self.convert_rows(isa, a, rows.clone(), copy);
        let steps = Steps::new((0..depth / DEPTH).map(|step| [step * DEPTH, step * count * MAX_TILES * TILE]));
        let mut sums = Scratch([0.0; MAX_TILES * MAX_TILES * TILE]);
        let tiles = self.amx.configure();
        for panel in 0..n.div_ceil(PANEL) {
            let panel_words = match b {
                RightMatrix::LaidOut(panels) => read_words(&panels[panel * self.panel_len()..][..self.panel_len()]),
                RightMatrix::Given(b) => {
                    right.grow(self.panel_len());
                    let words = &mut words(&mut right)[..self.panel_len()];
                    self.convert_panel(isa, b, panel, words);
                    &*words
                }
            };
            let right = Right { data: panel_words, tile_pitch: TILE, part_pitch: MAX_TILES * TILE };
            let columns = panel * PANEL..((panel + 1) * PANEL).min(n);
            for first in (0..rows.len()).step_by(ROWS) {
                let left =
                    Left { data: &copy[first * depth..], row_pitch: depth, tile_pitch: SIDE * depth, part_pitch };
                let count = (rows.len() - first).min(ROWS);
                self.tile(&tiles, left, right, &steps, [count, columns.len()], &mut sums);
                for row in 0..count {
                    let to = &mut out[(first + row) * n..][columns.clone()];
                    for (tile, to) in to.chunks_mut(SIDE).enumerate() {
                        to.copy_from_slice(&sums.0[tile * ROWS * SIDE + row * SIDE..][..to.len()]);
                    }
                }
            }
        }
        drop(tiles);
        SCRATCH.set([left, right]);
    }

    /// The sums of some rows and columns, `[16 columns][row]`.
    fn tile(
        self,
        tiles: &Configured,
        left: Left<'_>,
        right: Right<'_>,
        steps: &Steps,
        [rows, columns]: [usize; 2],
        sums: &mut Scratch,
    ) {
        let columns = columns.div_ceil(SIDE);
        let mut each: Vec<&mut [f32]> = sums.0.chunks_exact_mut(ROWS * SIDE).take(columns).collect();
        let sums = Sums { columns: &mut each, rows: rows.div_ceil(SIDE), tile_pitch: TILE, accumulate: false };
        tiles.multiply(self.parts, left, right, steps, sums);
    }

    /// Rows of A, with zeros behind the last term.
    fn convert_rows(self, isa: Isa, a: &[f32], rows: Range<usize>, to: &mut [u16]) {
        let Extents { m, k, .. } = self.extents;
        let depth = self.depth();
        let (high, low) = to.split_at_mut(rows.len().next_multiple_of(ROWS) * depth);
        if self.extents.transpose_a {
            turned_rows(isa, self.parts, a, m, k, rows, high, low, depth);
            return;
        }
        for (index, row) in rows.enumerate() {
            let low = low.get_mut(index * depth..(index + 1) * depth).unwrap_or_default();
            convert_row(isa, self.parts, &a[row * k..][..k], &mut high[index * depth..][..depth], low);
        }
    }

    /// A panel of B, with zeros behind the last term and column.
    fn convert_panel(self, isa: Isa, b: &[f32], panel: usize, words: &mut [u32]) {
        let Extents { n, k, transpose_b, .. } = self.extents;
        for (step, words) in words.chunks_exact_mut(self.parts.count() * MAX_TILES * TILE).enumerate() {
            let (high, low) = words.split_at_mut(MAX_TILES * TILE);
            for tile in 0..MAX_TILES {
                let low = low.get_mut(tile * TILE..(tile + 1) * TILE).unwrap_or_default();
                let at = [panel * PANEL + tile * SIDE, step * DEPTH];
                convert_tile(isa, self.parts, b, [n, k], transpose_b, at, &mut high[tile * TILE..][..TILE], low);
            }
        }
    }
}

/// Sums of 2 x 2 tiles.
#[repr(align(64))]
struct Scratch([f32; MAX_TILES * MAX_TILES * TILE]);

/// Up to 16 neighbours, and zeros behind them.
#[inline(always)]
fn lanes(row: &[f32], first: usize) -> [f32; LANES] {
    let rest = row.get(first..).unwrap_or_default();
    rest.first_chunk().copied().unwrap_or_else(|| array::from_fn(|lane| rest.get(lane).copied().unwrap_or(0.0)))
}

vectorised! {
    fn convert_row(_simd, parts: Parts, row: &[f32], high: &mut [u16], low: &mut [u16]) -> () {
        for (block, to) in high.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            let values = lanes(row, block * LANES);
            for (to, value) in to.iter_mut().zip(&values) {
                *to = (parts.wide(*value)[0] >> 16) as u16;
            }
            if let Some(to) = low.as_chunks_mut::<LANES>().0.get_mut(block) {
                for (to, value) in to.iter_mut().zip(&values) {
                    *to = (parts.wide(*value)[1] >> 16) as u16;
                }
            }
        }
    }
}

vectorised! {
    /// The same of rows that are columns of `a`, `[k, m]`: 16 terms of 16 rows at a time.
    fn turned_rows(
        simd, parts: Parts, a: &[f32], m: usize, k: usize, rows: Range<usize>, high: &mut [u16], low: &mut [u16], depth: usize,
    ) -> () {
        for first in (0..rows.len()).step_by(LANES) {
            for term in (0..depth).step_by(LANES) {
                let block = array::from_fn(|lane| match term + lane {
                    term if term < k => simd.load(&lanes(&a[term * m..][..m], rows.start + first)),
                    _ => simd.splat(0.0),
                });
                for (row, values) in (first..).zip(simd.transpose(block)) {
                    let mut row_values = [0.0; LANES];
                    simd.store(values, Cell::from_mut(&mut row_values));
                    let at = row * depth + term;
                    for (part, to) in [&mut *high, &mut *low].into_iter().enumerate() {
                        if let Some(to) = to.get_mut(at..).and_then(|to| to.first_chunk_mut::<LANES>()) {
                            for (to, value) in to.iter_mut().zip(&row_values) {
                                *to = (parts.wide(*value)[part] >> 16) as u16;
                            }
                        }
                    }
                }
            }
        }
    }
}

vectorised! {
    /// A tile of B, from a column and a term on. Its extent is n and k: `[k, n]`, or `[n, k]` if it is transposed.
    fn convert_tile(
        simd, parts: Parts, b: &[f32], extent: [usize; 2], transposed: bool, at: [usize; 2],
        high: &mut [u32], low: &mut [u32],
    ) -> () {
        let ([n, k], [column, term]) = (extent, at);
        for half in 0..DEPTH / LANES {
            let term = term + half * LANES;
            let mut rows = [[0.0; LANES]; LANES];
            if transposed {
                let columns = array::from_fn(|lane| match column + lane {
                    column if column < n => simd.load(&lanes(&b[column * k..][..k], term)),
                    _ => simd.splat(0.0),
                });
                for (to, row) in rows.iter_mut().zip(simd.transpose(columns)) {
                    simd.store(row, Cell::from_mut(to));
                }
            } else {
                for (to, term) in rows.iter_mut().zip(term..k) {
                    *to = lanes(&b[term * n..][..n], column);
                }
            }
            for (part, to) in [&mut *high, &mut *low].into_iter().enumerate() {
                let to = to.as_chunks_mut::<LANES>().0.iter_mut().skip(half * LANES / 2);
                for (pair, to) in rows.chunks_exact(2).zip(to) {
                    for (lane, to) in to.iter_mut().enumerate() {
                        *to = parts.wide(pair[0][lane])[part] >> 16 | parts.wide(pair[1][lane])[part];
                    }
                }
            }
        }
    }
}

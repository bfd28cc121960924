//! The tile of matrix products: rows of the result times vectors of 16 columns.

use super::{LANES, compile_tile, load, store, vectors_together};
use crate::isa::{Isa, Level};
use crate::parallel::pieces;
use crate::prefetch;
use crate::simd::{Simd, vectorised};
use std::array;
use std::cell::Cell;
use std::ops::Range;

/// A matrix that is read element by element.
#[derive(Clone, Copy)]
pub(crate) enum Left<'a> {
    /// Elements, from that of row 0 and column 0.
    Strided {
        data: &'a [f32],
        /// Distance of neighbouring rows.
        row_pitch: usize,
        /// Distance of neighbouring columns.
        column_pitch: usize,
    },
    /// As [`pack`] lays it out, so that a tile reads neighbours, at distances that its code knows.
    Packed(&'a [f32]),
}

impl Left<'_> {
    /// Whether the matrix has so many rows and columns.
    fn holds(self, rows: usize, depth: usize) -> bool {
        match self {
            Self::Strided { data, row_pitch, column_pitch } => {
                (rows - 1) * row_pitch + (depth - 1) * column_pitch < data.len()
            }
            Self::Packed(data) => rows * depth <= data.len(),
        }
    }
}

/// A matrix that is read by vectors: its columns are neighbours.
#[derive(Clone, Copy)]
pub(crate) struct Right<'a> {
    /// Elements, from that of row 0 and column 0.
    pub(crate) data: &'a [f32],
    /// Distance of neighbouring rows.
    pub(crate) row_pitch: usize,
}

/// The result; its columns are neighbours.
pub(crate) struct Sum<'a> {
    /// Elements, from that of row 0 and column 0.
    pub(crate) data: &'a mut [f32],
    /// Distance of neighbouring rows.
    pub(crate) row_pitch: usize,
    /// Whether the product is added to what is there, else it replaces that.
    pub(crate) accumulate: bool,
}

/// Arguments of a tile function; the pointers are valid for the whole tile.
struct Tile {
    isa: Isa,
    left: *const f32,
    /// Distances of rows and of columns, if the left matrix is not packed.
    left_pitch: Option<[usize; 2]>,
    right: *const f32,
    right_pitch: usize,
    depth: usize,
    sum: *mut f32,
    sum_pitch: usize,
    accumulate: bool,
}

/// Rows whose transpose is half the work.
const HALF: usize = LANES / 2;

/// Terms between two turns of the innermost loop.
const UNROLLED: usize = 4;

type TileFn = unsafe fn(&Tile);

/// Rows of the largest tile of any instruction set.
pub(crate) const MAX_TILE_ROWS: usize = 14;

/// Rows that a tile has at most: a good number of rows to work on at a time.
pub(crate) fn tile_rows(isa: Isa) -> usize {
    tiles(isa, vectors_together(isa)).len()
}

/// The rows of each tile.
fn pieces_of_tiles(isa: Isa, rows: usize) -> impl ExactSizeIterator<Item = Range<usize>> {
    pieces(rows, rows.div_ceil(tile_rows(isa)))
}

/// Lays a matrix of which columns are neighbours, or rows if it is `transposed`, out for [`run`]: tile by tile, of a
/// tile column by column. `packed` has room for [`LANES`] more.
pub(crate) fn pack(
    isa: Isa,
    data: &[f32],
    pitch: usize,
    transposed: bool,
    [rows, depth]: [usize; 2],
    packed: &mut [f32],
) {
    for tile in pieces_of_tiles(isa, rows) {
        let packed = &mut packed[tile.start * depth..][..tile.len() * depth + LANES];
        if transposed {
            pack_columns(isa, &data[tile.start..], pitch, tile.len(), packed);
        } else {
            let (data, extents) = (&data[tile.start * pitch..], [tile.len(), depth]);
            if tile.len() > HALF {
                pack_rows::<LANES>(isa, data, pitch, extents, packed)
            } else {
                pack_rows::<HALF>(isa, data, pitch, extents, packed)
            }
        }
    }
}

vectorised! {
    /// The first elements of each stretch of `pitch` elements, by vectors of which the next one overwrites the rest.
    fn pack_columns [] [] (_simd, data: &[f32], pitch: usize, rows: usize, packed: &mut [f32]) -> () {
        let count = (packed.len() - LANES) / rows;
        for (term, from) in data.chunks(pitch).take(count).enumerate() {
            let to = &mut packed[term * rows..];
            match (from.first_chunk::<LANES>(), to.first_chunk_mut::<LANES>()) {
                (Some(from), Some(to)) => *to = *from,
                _ => to[..rows].copy_from_slice(&from[..rows]),
            }
        }
    }
}

vectorised! {
    /// The transpose of at most `MOST` rows `pitch` elements apart: 16 columns at a time.
    fn pack_rows [const MOST: usize,] [MOST] (
        simd, data: &[f32], pitch: usize, extents: [usize; 2], packed: &mut [f32]
    ) -> () {
        let [rows, depth] = extents;
        for first in (0..depth).step_by(LANES) {
            let count = LANES.min(depth - first);
            let block = array::from_fn(|row| {
                if row >= MOST {
                    return simd.splat(0.0);
                }
                let from = if row < rows { &data[row * pitch + first..] } else { &[][..] };
                match from.first_chunk() {
                    Some(from) => simd.load(from),
                    None => {
                        let mut values = [0.0; LANES];
                        let count = count.min(from.len());
                        values[..count].copy_from_slice(&from[..count]);
                        simd.load(&values)
                    }
                }
            });
            for (term, value) in (first..depth).zip(simd.transpose(block)) {
                if let Some(to) = packed[term * rows..].first_chunk_mut() {
                    simd.store(value, Cell::from_mut(to));
                }
            }
        }
    }
}

/// `sum = left * right`, or `sum += left * right`, for `rows` x `columns` elements with `depth` terms each.
///
/// # Panics
/// If `columns` is not a multiple of 16, an extent is zero, or a slice is too short: a defect of the caller.
pub(crate) fn run(isa: Isa, left: Left<'_>, right: Right<'_>, sum: Sum<'_>, [rows, columns, depth]: [usize; 3]) {
    assert!(rows > 0 && columns > 0 && columns.is_multiple_of(LANES) && depth > 0);
    assert!(left.holds(rows, depth), "left matrix too short");
    assert!((depth - 1) * right.row_pitch + columns <= right.data.len(), "right matrix too short");
    assert!((rows - 1) * sum.row_pitch + columns <= sum.data.len(), "result too short");
    let vectors = columns / LANES;
    for pair in pieces(vectors, vectors.div_ceil(vectors_together(isa))) {
        let tiles = tiles(isa, pair.len());
        for piece in pieces_of_tiles(isa, rows) {
            // SAFETY: the piece lies within the rows and the pair within the columns, so the accesses of the tile stay
            // below the ends asserted above. The functions are of an instruction set whose presence `isa` proves.
            unsafe {
                let (first, left_pitch) = match left {
                    Left::Strided { data, row_pitch, column_pitch } => {
                        (data.as_ptr().add(piece.start * row_pitch), Some([row_pitch, column_pitch]))
                    }
                    Left::Packed(data) => (data.as_ptr().add(piece.start * depth), None),
                };
                let tile = Tile {
                    isa,
                    left: first,
                    left_pitch,
                    right: right.data.as_ptr().add(pair.start * LANES),
                    right_pitch: right.row_pitch,
                    depth,
                    sum: sum.data.as_mut_ptr().add(piece.start * sum.row_pitch + pair.start * LANES),
                    sum_pitch: sum.row_pitch,
                    accumulate: sum.accumulate,
                };
                tiles[piece.len() - 1](&tile);
            }
        }
    }
}

/// Computes one tile of `P` rows and `O` vectors.
///
/// # Safety
/// The pointers of `tile` are valid as [`run`] asserts; inlined into a function compiled for `simd`'s level.
#[inline(always)]
unsafe fn compute<V: Simd, const P: usize, const O: usize>(simd: V, tile: &Tile) {
    // SAFETY: the contract of this function.
    unsafe {
        let mut acc = [[simd.splat(0.0); O]; P];
        // By the time of the stores the lines are there: rows of a large result are in no near cache.
        for p in 0..P {
            for o in 0..O {
                prefetch::to_write(tile.sum.add(p * tile.sum_pitch + o * LANES));
            }
        }
        match tile.left_pitch {
            Some(pitch) => sum_up(simd, tile, pitch, &mut acc),
            None => sum_up(simd, tile, [1, P], &mut acc),
        }
        for p in 0..P {
            for o in 0..O {
                let to = tile.sum.add(p * tile.sum_pitch + o * LANES);
                let sum = if tile.accumulate { simd.add(load(simd, to), acc[p][o]) } else { acc[p][o] };
                store(simd, sum, to);
            }
        }
    }
}

/// Adds the products of all terms to the sums of a tile; the distances of rows and of columns are those of the left
/// matrix.
///
/// # Safety
/// As [`compute`].
#[inline(always)]
unsafe fn sum_up<V: Simd, const P: usize, const O: usize>(
    simd: V,
    tile: &Tile,
    [row_pitch, column_pitch]: [usize; 2],
    acc: &mut [[V::F32; O]; P],
) {
    let whole = tile.depth / UNROLLED * UNROLLED;
    // SAFETY: the contract of this function.
    unsafe {
        for k in (0..whole).step_by(UNROLLED) {
            for term in k..k + UNROLLED {
                add(simd, tile, term, [row_pitch, column_pitch], acc);
            }
        }
        for term in whole..tile.depth {
            add(simd, tile, term, [row_pitch, column_pitch], acc);
        }
    }
}

/// Adds the products of one term.
///
/// # Safety
/// As [`compute`].
#[inline(always)]
unsafe fn add<V: Simd, const P: usize, const O: usize>(
    simd: V,
    tile: &Tile,
    term: usize,
    [row_pitch, column_pitch]: [usize; 2],
    acc: &mut [[V::F32; O]; P],
) {
    // SAFETY: the contract of this function.
    unsafe {
        let right = tile.right.add(term * tile.right_pitch);
        let left = tile.left.add(term * column_pitch);
        let mut row = [simd.splat(0.0); O];
        for o in 0..O {
            row[o] = load(simd, right.add(o * LANES));
        }
        for p in 0..P {
            let value = simd.splat(*left.add(p * row_pitch));
            for o in 0..O {
                acc[p][o] = simd.mul_add(value, row[o], acc[p][o]);
            }
        }
    }
}

/// The tile functions for 1, 2, ... rows and a number of vectors: see the tiles of [`super::correlate`].
fn tiles(isa: Isa, vectors: usize) -> &'static [TileFn] {
    macro_rules! tiles {
        ($function:ident, $o:literal, [$($p:literal)*]) => { &[$($function::<$p, $o> as TileFn),*] };
    }
    match (isa.level(), vectors) {
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512 | Level::Amx, 1) => tiles!(avx512, 1, [1 2 3 4 5 6 7 8 9 10 11 12 13 14]),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512 | Level::Amx, _) => tiles!(avx512, 2, [1 2 3 4 5 6 7 8 9 10 11 12 13 14]),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, _) => tiles!(avx2, 1, [1 2 3 4 5 6]),
        (Level::Portable, _) => tiles!(portable, 1, [1 2 3]),
    }
}

compile_tile!(compute as [portable, avx2, avx512], [P, O], &Tile);

//! The tile of matrix products: rows of the result times vectors of 16 columns.

use super::{LANES, compile_tile, load, store, vectors_together};
use crate::isa::{Isa, Level};
use crate::parallel::pieces;
use crate::prefetch;
use crate::simd::Simd;

/// A matrix that is read element by element.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    /// Elements, from that of row 0 and column 0.
    pub(crate) data: &'a [f32],
    /// Distance of neighbouring rows.
    pub(crate) row_pitch: usize,
    /// Distance of neighbouring columns.
    pub(crate) column_pitch: usize,
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
    left_pitch: [usize; 2],
    right: *const f32,
    right_pitch: usize,
    depth: usize,
    sum: *mut f32,
    sum_pitch: usize,
    accumulate: bool,
}

type TileFn = unsafe fn(&Tile);

/// Rows of the largest tile of any instruction set.
pub(crate) const MAX_TILE_ROWS: usize = 14;

/// Rows that a tile has at most: a good number of rows to work on at a time.
pub(crate) fn tile_rows(isa: Isa) -> usize {
    tiles(isa, vectors_together(isa)).len()
}

/// `sum = left * right`, or `sum += left * right`, for `rows` x `columns` elements with `depth` terms each.
///
/// # Panics
/// If `columns` is not a multiple of 16, an extent is zero, or a slice is too short: a defect of the caller.
pub(crate) fn run(isa: Isa, left: Left<'_>, right: Right<'_>, sum: Sum<'_>, [rows, columns, depth]: [usize; 3]) {
    assert!(rows > 0 && columns > 0 && columns.is_multiple_of(LANES) && depth > 0);
    let left_end = (rows - 1) * left.row_pitch + (depth - 1) * left.column_pitch + 1;
    assert!(left_end <= left.data.len(), "left matrix too short");
    assert!((depth - 1) * right.row_pitch + columns <= right.data.len(), "right matrix too short");
    assert!((rows - 1) * sum.row_pitch + columns <= sum.data.len(), "result too short");
    let vectors = columns / LANES;
    for pair in pieces(vectors, vectors.div_ceil(vectors_together(isa))) {
        let tiles = tiles(isa, pair.len());
        for piece in pieces(rows, rows.div_ceil(tiles.len())) {
            // SAFETY: the piece lies within the rows and the pair within the columns, so the accesses of the tile stay
            // below the ends asserted above. The functions are of an instruction set whose presence `isa` proves.
            unsafe {
                let tile = Tile {
                    isa,
                    left: left.data.as_ptr().add(piece.start * left.row_pitch),
                    left_pitch: [left.row_pitch, left.column_pitch],
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
        let mut k = 0;
        loop {
            let right = tile.right.add(k * tile.right_pitch);
            let left = tile.left.add(k * tile.left_pitch[1]);
            let mut row = [simd.splat(0.0); O];
            for o in 0..O {
                row[o] = load(simd, right.add(o * LANES));
            }
            for p in 0..P {
                let value = simd.splat(*left.add(p * tile.left_pitch[0]));
                for o in 0..O {
                    acc[p][o] = simd.mul_add(value, row[o], acc[p][o]);
                }
            }
            k += 1;
            if k == tile.depth {
                break;
            }
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

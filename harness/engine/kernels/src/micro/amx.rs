//! Products on AMX tiles: `sums += left * right` with operands of bf16 and sums in f32.
//!
//! A tile has 16 rows of 64 bytes. An instruction multiplies a tile of 16 rows of 32 numbers by one of 32 rows of 16,
//! whose rows lie in pairs, and adds the products, which are exact in f32, to 16 x 16 sums. It rounds to nearest, and
//! takes subnormal operands and results for zero (Intel, "Intel Architecture Instruction Set Extensions Programming
//! Reference", TDPBF16PS). A kernel keeps up to 2 x 2 tiles of sums in registers.
//!
//! Operands may consist of parts that add up to them ([`crate::parts`]); the products of the parts are summed.

#[cfg(target_arch = "x86_64")]
mod x86;

use crate::isa::{Isa, Level};
use crate::parts::Parts;
use std::cell::Cell;
use std::marker::PhantomData;

/// Terms that an instruction multiplies and adds.
pub(crate) const DEPTH: usize = 32;

/// Rows and columns of a tile of sums.
pub(crate) const SIDE: usize = 16;

/// Elements of a tile of sums, and words of a tile of pairs.
pub(crate) const TILE: usize = SIDE * SIDE;

/// Tiles of sums along rows and along columns that a kernel computes together, at most.
pub(crate) const MAX_TILES: usize = 2;

/// Proof that this process may use AMX.
#[derive(Clone, Copy)]
pub(crate) struct Amx(());

impl Amx {
    /// The proof, if `isa` is one.
    pub(crate) fn of(isa: Isa) -> Option<Self> {
        (isa.level() == Level::Amx).then_some(Self(()))
    }

    /// Configures the tiles of this thread until the value is dropped.
    pub(crate) fn configure(self) -> Configured {
        let holders = HOLDERS.replace(HOLDERS.get() + 1);
        #[cfg(target_arch = "x86_64")]
        if holders == 0 {
            // SAFETY: `self` proves that the process may use tiles.
            unsafe { x86::configure() }
        }
        Configured(PhantomData)
    }
}

thread_local! {
    /// Values that want the tiles of this thread to be configured.
    static HOLDERS: Cell<usize> = const { Cell::new(0) };
}

/// Proof that the tiles of this thread are configured, all to 16 rows of 64 bytes. It stays on its thread; work that is
/// handed to other threads in the meantime configures theirs.
pub(crate) struct Configured(PhantomData<*const ()>);

impl Drop for Configured {
    fn drop(&mut self) {
        HOLDERS.set(HOLDERS.get() - 1);
        #[cfg(target_arch = "x86_64")]
        if HOLDERS.get() == 0 {
            // SAFETY: there are tiles, since they were configured, and no value is left that is the proof of it.
            unsafe { x86::release() }
        }
    }
}

/// Rows of bf16.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    pub(crate) data: &'a [u16],
    /// Distance of neighbouring rows.
    pub(crate) row_pitch: usize,
    /// Distance of the tiles of rows.
    pub(crate) tile_pitch: usize,
    /// Distance of the parts of a number.
    pub(crate) part_pitch: usize,
}

/// Tiles of 16 x 16 words. A word of row r has the terms 2r, in its lower half, and 2r + 1 of a column.
#[derive(Clone, Copy)]
pub(crate) struct Right<'a> {
    pub(crate) data: &'a [u32],
    /// Distance of the tiles of columns.
    pub(crate) tile_pitch: usize,
    /// Distance of the parts of a number.
    pub(crate) part_pitch: usize,
}

/// Where the terms are: for each 32 of them, the position of their first row in the left matrix, and that of their tile
/// in the right one.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    /// As distances in bytes.
    list: Vec<[usize; 2]>,
    /// The largest positions.
    reach: [usize; 2],
}

impl Steps {
    /// From positions in elements.
    pub(crate) fn new(positions: impl IntoIterator<Item = [usize; 2]>) -> Self {
        let mut reach = [0; 2];
        let bytes = positions.into_iter().map(|[left, right]| {
            reach = [reach[0].max(left), reach[1].max(right)];
            [left * size_of::<u16>(), right * size_of::<u32>()]
        });
        Self { list: bytes.collect(), reach }
    }

    /// Whether there are no terms.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Tiles of sums.
pub(crate) struct Sums<'a> {
    /// From the first element of the first tile on.
    pub(crate) data: &'a mut [f32],
    /// Tiles along rows and along columns.
    pub(crate) tiles: [usize; 2],
    /// Distances of neighbouring tiles along rows and along columns.
    pub(crate) tile_pitches: [usize; 2],
    /// Distance of the rows of a tile.
    pub(crate) row_pitch: usize,
    /// Whether the products are added to what is there, else they replace it.
    pub(crate) accumulate: bool,
}

impl Configured {
    /// Multiplies.
    ///
    /// # Panics
    /// If there are more than 2 x 2 tiles, none, or no terms, or a slice is too short: a defect of the caller.
    pub(crate) fn multiply(&self, parts: Parts, left: Left<'_>, right: Right<'_>, steps: &Steps, sums: Sums<'_>) {
        let [rows, columns] = sums.tiles;
        assert!((1..=MAX_TILES).contains(&rows) && (1..=MAX_TILES).contains(&columns) && !steps.list.is_empty());
        let further = parts.count() - 1;
        let left_tile = (rows - 1) * left.tile_pitch + further * left.part_pitch + (SIDE - 1) * left.row_pitch;
        assert!(steps.reach[0] + left_tile + DEPTH <= left.data.len(), "left matrix too short");
        let right_tile = (columns - 1) * right.tile_pitch + further * right.part_pitch;
        assert!(steps.reach[1] + right_tile + TILE <= right.data.len(), "right matrix too short");
        let last_tile = (rows - 1) * sums.tile_pitches[0] + (columns - 1) * sums.tile_pitches[1];
        assert!(last_tile + (SIDE - 1) * sums.row_pitch + SIDE <= sums.data.len(), "sums too short");
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the tiles of this thread are configured. What the kernel reads and writes lies before the ends
        // asserted above.
        unsafe {
            x86::multiply(parts, left, right, steps, sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::{for_parts, store_parts};
    use crate::simd::vectorised;
    use crate::testing::filled;

    vectorised! {
        fn divide [const P: usize,] [P] (simd, value: f32, to: &mut [u16]) -> () {
            store_parts::<S, P>(simd, simd.splat(value), to, 0, SIDE);
        }
    }

    /// Sums of products of small integers are exact: every tile, part and pitch has to be where it belongs.
    #[test]
    fn products_of_small_integers_are_exact() {
        let isa = Isa::best();
        let Some(amx) = Amx::of(isa) else { return };
        let terms = 3 * DEPTH;
        for parts in [Parts::One, Parts::Two, Parts::Three] {
            let half = |value: f32, part: usize| {
                let mut halves = [0; 3 * SIDE];
                for_parts!(parts, divide(isa, value, &mut halves));
                halves[part * SIDE]
            };
            for (rows, columns) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
                let whole = |len, salt| -> Vec<f32> { filled(len, salt).iter().map(|v| (v * 200.0).round()).collect() };
                let limit = if parts == Parts::One { 2 } else { 1 };
                let small =
                    |values: Vec<f32>| -> Vec<f32> { values.iter().map(|v| (v / limit as f32).round()).collect() };
                let a = small(whole(rows * SIDE * terms, 1));
                let b = small(whole(terms * columns * SIDE, 2));
                let (mut left, mut right) = (Vec::new(), Vec::new());
                for part in 0..parts.count() {
                    left.extend(a.iter().map(|v| half(*v, part)));
                }
                for column in 0..columns {
                    for part in 0..parts.count() {
                        for pair in 0..terms / 2 {
                            for lane in 0..SIDE {
                                let [low, high] = [2 * pair, 2 * pair + 1]
                                    .map(|term| half(b[term * columns * SIDE + column * SIDE + lane], part));
                                right.push(u32::from(low) | u32::from(high) << 16);
                            }
                        }
                    }
                }
                let left =
                    Left { data: &left, row_pitch: terms, tile_pitch: SIDE * terms, part_pitch: rows * SIDE * terms };
                let right =
                    Right { data: &right, tile_pitch: parts.count() * terms / 2 * SIDE, part_pitch: terms / 2 * SIDE };
                let steps = Steps::new([0, 1, 2].map(|step| [step * DEPTH, step * TILE]));
                // Rows of 40 elements, tiles of rows below each other, those of columns side by side.
                let mut sums = vec![1.0; rows * SIDE * 40];
                for accumulate in [false, true] {
                    let tile_pitches = [SIDE * 40, SIDE];
                    let sums =
                        Sums { data: &mut sums, tiles: [rows, columns], tile_pitches, row_pitch: 40, accumulate };
                    let tiles = amx.configure();
                    drop(amx.configure()); // another holder changes nothing
                    tiles.multiply(parts, left, right, &steps, sums);
                }
                for (at, sum) in sums.iter().enumerate() {
                    let (row, column) = (at / 40, at % 40);
                    let term = |t: usize| f64::from(a[row * terms + t]) * f64::from(b[t * columns * SIDE + column]);
                    let expected = if column < columns * SIDE { 2.0 * (0..terms).map(term).sum::<f64>() } else { 1.0 };
                    assert_eq!(f64::from(*sum), expected, "{parts:?}, {rows} x {columns} tiles [{row}, {column}]");
                }
            }
        }
    }
}

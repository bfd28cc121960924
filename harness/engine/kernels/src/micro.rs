//! Micro-kernels: the innermost loops of convolutions, on registers and raw pointers.
//!
//! A micro-kernel computes one tile of outputs (a few pixels times one or two channel blocks) with its partial sums
//! in registers. It is written once, generic over [`Simd`](crate::simd::Simd), and compiled for each level by
//! `compile_tile!`. Its safe wrapper, `run`, checks all bounds once per run of tiles.

#![allow(clippy::needless_range_loop, reason = "loops over the constant extents of a tile are unrolled")]

pub(crate) mod amx;
pub(crate) mod correlate;
pub(crate) mod depthwise;
pub(crate) mod filter;
pub(crate) mod product;

use crate::isa::{Isa, Level};
use crate::simd::{Lanes, Simd};
use std::cell::Cell;

/// Lanes of a vector: a channel block.
const LANES: usize = crate::C0;

/// Vectors that a tile computes together: two in 32 registers. In 16 registers of half a vector, the sums of two leave no
/// register for a factor: tiles with one are faster by half.
pub(crate) fn vectors_together(isa: Isa) -> usize {
    if isa.level() >= Level::Avx512 { 2 } else { 1 }
}

/// Loads sixteen values.
///
/// # Safety
/// `from` is valid for reads of sixteen f32.
#[inline(always)]
unsafe fn load<V: Simd>(simd: V, from: *const f32) -> V::F32 {
    // SAFETY: the caller's promise; an array of f32 needs no more alignment than an f32.
    simd.load(unsafe { &*from.cast::<Lanes>() })
}

/// Stores sixteen values.
///
/// # Safety
/// `to` is valid for writes of sixteen f32, and no reference to them is in use.
#[inline(always)]
unsafe fn store<V: Simd>(simd: V, value: V::F32, to: *mut f32) {
    // SAFETY: the caller's promise; `Cell` has the layout of what it holds.
    simd.store(value, unsafe { &*to.cast::<Cell<Lanes>>() });
}

/// Compiles an unsafe tile function, generic over the [`Simd`] it gets first and some numbers, for every level:
/// `compile_tile!(compute as [portable, avx2, avx512], [P, O], &mut Tile<'_>)`. The tile has a field `isa`.
macro_rules! compile_tile {
    ($compute:ident as [$portable:ident, $avx2:ident, $avx512:ident], [$($n:ident),*], $tile:ty) => {
        /// # Safety
        /// That of the function it compiles.
        unsafe fn $portable<$(const $n: usize),*>(tile: $tile) {
            // SAFETY: the caller's promise.
            unsafe { $compute::<_, $($n),*>($crate::simd::Portable::of(tile.isa), tile) }
        }

        /// # Safety
        /// That of the function it compiles, and the processor has the instructions.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn $avx2<$(const $n: usize),*>(tile: $tile) {
            if let Some(simd) = $crate::simd::Avx2::of(tile.isa) {
                // SAFETY: the caller's promise.
                unsafe { $compute::<_, $($n),*>(simd, tile) }
            }
        }

        /// # Safety
        /// That of the function it compiles, and the processor has the instructions.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
        unsafe fn $avx512<$(const $n: usize),*>(tile: $tile) {
            if let Some(simd) = $crate::simd::Avx512::of(tile.isa) {
                // SAFETY: the caller's promise.
                unsafe { $compute::<_, $($n),*>(simd, tile) }
            }
        }
    };
}
use compile_tile;

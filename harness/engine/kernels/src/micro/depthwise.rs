//! The tile of depthwise filter gradients: kernel taps times the 16 channels of a block.

use super::{LANES, compile_tile, load, store};
use crate::isa::{Isa, Level};
use crate::simd::Simd;

/// Most taps that a tile sums together.
pub(crate) const MAX_TAPS: usize = 6;

/// Arguments of a tile function; the pointers are valid for the whole tile.
struct Tile<'a> {
    isa: Isa,
    source: *const f32,
    taps: &'a [usize],
    gradient: *const f32,
    pixels: usize,
    sums: *mut f32,
}

/// `sums[t][..16] += sum over pixels p of source[taps[t] + 16 p][..16] * gradient[p][..16]`, lane by lane.
///
/// # Panics
/// If a slice is too short for the pixels of the gradient, or there are more than [`MAX_TAPS`] taps.
pub(crate) fn run(isa: Isa, source: &[f32], taps: &[usize], gradient: &[f32], sums: &mut [f32]) {
    let pixels = gradient.len() / LANES;
    assert!(pixels > 0 && (1..=MAX_TAPS).contains(&taps.len()) && sums.len() == taps.len() * LANES);
    assert!(taps.iter().all(|tap| tap + pixels * LANES <= source.len()), "source too short");
    let tile =
        Tile { isa, source: source.as_ptr(), taps, gradient: gradient.as_ptr(), pixels, sums: sums.as_mut_ptr() };
    macro_rules! call {
        ($function:ident) => {
            // SAFETY: the last access of each tap ends at `tap + pixels * 16`, those of gradient and sums at their
            // ends: all asserted. The branch is of an instruction set whose presence `isa` proves.
            unsafe {
                match taps.len() {
                    1 => $function::<1>(&tile),
                    2 => $function::<2>(&tile),
                    3 => $function::<3>(&tile),
                    4 => $function::<4>(&tile),
                    5 => $function::<5>(&tile),
                    _ => $function::<6>(&tile),
                }
            }
        };
    }
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Amx => call!(avx512),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => call!(avx2),
        _ => call!(portable),
    }
}

/// Sums `T` taps over all pixels of a tile.
///
/// # Safety
/// The pointers of `tile` are valid as [`run`] asserts, it has `T` taps; inlined into a function compiled for `simd`'s
/// level.
#[inline(always)]
unsafe fn compute<V: Simd, const T: usize>(simd: V, tile: &Tile<'_>) {
    // SAFETY: the contract of this function.
    unsafe {
        let mut acc = [simd.splat(0.0); T];
        let mut sources = [tile.source; T];
        for (source, tap) in sources.iter_mut().zip(tile.taps) {
            *source = source.add(*tap);
        }
        for pixel in 0..tile.pixels {
            let gradient = load(simd, tile.gradient.add(pixel * LANES));
            for t in 0..T {
                acc[t] = simd.mul_add(load(simd, sources[t].add(pixel * LANES)), gradient, acc[t]);
            }
        }
        for (t, sum) in acc.into_iter().enumerate() {
            let to = tile.sums.add(t * LANES);
            store(simd, simd.add(load(simd, to), sum), to);
        }
    }
}

compile_tile!(compute as [portable, avx2, avx512], [T], &Tile<'_>);

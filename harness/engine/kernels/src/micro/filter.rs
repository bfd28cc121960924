//! The tile of filter gradients: consecutive source values times output channels.
//!
//! A kernel row of the gradient is a sum over pixels of one source value times the output gradient of 16 channels.
//! A tile keeps up to 16 such sums in registers while it walks through the pixels.

use super::correlate::PixelPitch;
use super::{LANES, compile_tile, load, store};
use crate::isa::{Isa, Level};
use crate::simd::Simd;

/// Most channel blocks of the output gradient that a tile works on together.
pub(crate) const MAX_BLOCKS: usize = 2;

/// Consecutive pixels: where they start in the source and in the output gradient, and how many they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) source: usize,
    pub(crate) gradient: usize,
    pub(crate) len: usize,
}

/// Segments whose products are summed, with the extent of what they read.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    list: Vec<Segment>,
    pixel_pitch: PixelPitch,
    source_reach: usize,
    gradient_reach: usize,
}

impl Segments {
    /// Segments over a source whose pixels have the given pitch.
    pub(crate) fn new(list: Vec<Segment>, pixel_pitch: PixelPitch) -> Self {
        let last = |start: usize, len: usize, pitch: usize| start + len.saturating_sub(1) * pitch;
        let source = list.iter().map(|s| last(s.source, s.len, pixel_pitch.elements())).max();
        let gradient = list.iter().map(|s| last(s.gradient, s.len, LANES)).max();
        Self { list, pixel_pitch, source_reach: source.unwrap_or(0), gradient_reach: gradient.unwrap_or(0) }
    }
}

/// Arguments of a tile function; the pointers are valid for the whole tile.
struct Tile<'a> {
    isa: Isa,
    source: *const f32,
    gradients: [*const f32; MAX_BLOCKS],
    segments: &'a [Segment],
    rows: &'a [usize],
    sums: [*mut f32; MAX_BLOCKS],
}

type TileFn = unsafe fn(&Tile<'_>);

/// Most consecutive source values that a tile of `blocks` channel blocks handles.
pub(crate) fn widest(isa: Isa, blocks: usize) -> usize {
    TileSet::new(isa, PixelPitch::Sixteen).by_blocks[blocks - 1].len()
}

/// Most channel blocks that are worked on together.
pub(crate) fn blocks_together(isa: Isa) -> usize {
    if isa.level() == Level::Avx512 { MAX_BLOCKS } else { 1 }
}

/// `sums[o][rows[a]..][..16] += sum over pixels of source[pixel][a] * gradients[o][pixel][..16]`.
///
/// `source` starts at the first of the `rows.len()` consecutive values of pixel position 0.
///
/// # Panics
/// If a slice is too short for the segments, or there are more rows or blocks than a tile has: a defect of the caller.
pub(crate) fn run(
    isa: Isa,
    source: &[f32],
    gradients: &[&[f32]],
    segments: &Segments,
    rows: &[usize],
    sums: &mut [&mut [f32]],
) {
    let tiles = TileSet::new(isa, segments.pixel_pitch);
    let blocks = sums.len();
    assert!((1..=MAX_BLOCKS).contains(&blocks) && gradients.len() == blocks);
    assert!((1..=tiles.by_blocks[blocks - 1].len()).contains(&rows.len()));
    assert!(segments.source_reach + rows.len() <= source.len(), "source too short");
    assert!(gradients.iter().all(|g| segments.gradient_reach + LANES <= g.len()), "gradient too short");
    assert!(sums.iter().all(|s| rows.iter().all(|row| row + LANES <= s.len())), "sums too short");
    let tile = Tile {
        isa,
        source: source.as_ptr(),
        gradients: [gradients[0].as_ptr(), gradients[blocks - 1].as_ptr()],
        segments: &segments.list,
        rows,
        sums: [sums[0].as_mut_ptr(), sums[blocks - 1].as_mut_ptr()],
    };
    // SAFETY: pixel p of a segment reads source values up to `source_reach + rows.len() - 1` and gradients up to
    // `gradient_reach + 15`, rows are written up to `row + 15`: all asserted. `sums` are distinct `&mut`. The function
    // is of an instruction set whose presence `isa` proves.
    unsafe { tiles.by_blocks[blocks - 1][rows.len() - 1](&tile) }
}

/// Sums one tile: `A` consecutive source values times `O` channel blocks; source pixels are `S` elements apart.
///
/// # Safety
/// The pointers of `tile` are valid as [`run`] asserts, `tile.rows` has `A` elements; inlined into a function compiled for `simd`'s level.
#[inline(always)]
unsafe fn compute<V: Simd, const S: usize, const A: usize, const O: usize>(simd: V, tile: &Tile<'_>) {
    // SAFETY: the contract of this function.
    unsafe {
        let mut acc = [[simd.splat(0.0); O]; A];
        for segment in tile.segments {
            let mut source = tile.source.add(segment.source);
            let mut gradients = tile.gradients.map(|g| g.add(segment.gradient));
            for _ in 0..segment.len {
                let mut gradient = [simd.splat(0.0); O];
                for o in 0..O {
                    gradient[o] = load(simd, gradients[o]);
                }
                for a in 0..A {
                    let value = simd.splat(*source.add(a));
                    for o in 0..O {
                        acc[a][o] = simd.mul_add(value, gradient[o], acc[a][o]);
                    }
                }
                source = source.wrapping_add(S);
                gradients = gradients.map(|g| g.wrapping_add(LANES));
            }
        }
        for (row, sums) in tile.rows.iter().zip(acc) {
            for o in 0..O {
                let to = tile.sums[o].add(*row);
                store(simd, simd.add(load(simd, to), sums[o]), to);
            }
        }
    }
}

/// The tile functions of one instruction set and pixel pitch: `by_blocks[O - 1][A - 1]`.
struct TileSet {
    by_blocks: [&'static [TileFn]; MAX_BLOCKS],
}

impl TileSet {
    /// Widths as the registers allow: see the tiles of [`super::correlate`].
    fn new(isa: Isa, pitch: PixelPitch) -> Self {
        macro_rules! tiles {
            ($function:ident, $o:literal, [$($a:literal)*]) => {
                match pitch {
                    PixelPitch::Sixteen => &[$($function::<16, $a, $o> as TileFn),*] as &[TileFn],
                    PixelPitch::Four => &[$($function::<4, $a, $o> as TileFn),*],
                    PixelPitch::Three => &[$($function::<3, $a, $o> as TileFn),*],
                }
            };
        }
        let by_blocks = match isa.level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => [
                tiles!(avx512, 1, [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16]),
                tiles!(avx512, 2, [1 2 3 4 5 6 7 8 9 10 11 12]),
            ],
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => [tiles!(avx2, 1, [1 2 3 4 5 6]), &[]],
            _ => [tiles!(portable, 1, [1 2]), &[]],
        };
        Self { by_blocks }
    }
}

compile_tile!(compute as [portable, avx2, avx512], [S, A, O], &Tile<'_>);

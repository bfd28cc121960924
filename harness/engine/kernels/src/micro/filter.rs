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
        assert!(!list.is_empty() && list.iter().all(|segment| segment.len > 0));
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
    update: Update,
    sums: [*mut f32; MAX_BLOCKS],
}

type TileFn = unsafe fn(&Tile<'_>);

/// Where the sums of consecutive source values go: rows of 16 elements each.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    list: Vec<usize>,
    reach: usize,
}

impl Rows {
    /// Rows that start at the given positions, no more than [`widest`] says.
    pub(crate) fn new(list: Vec<usize>) -> Self {
        let reach = list.iter().max().map_or(0, |row| row + LANES);
        Self { list, reach }
    }
}

/// What happens to the sums of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// They replace what was there.
    Store,
    /// They are added to what was there.
    Add,
}

/// Where the sums of a run go.
pub(crate) struct Sink<'a, 'b> {
    /// The packed filters of one or two output blocks.
    pub(crate) filters: &'a mut [&'b mut [f32]],
    /// Position in the filters that rows are counted from.
    pub(crate) at: usize,
    /// What happens there.
    pub(crate) update: Update,
}

/// Most consecutive source values that a tile of `blocks` channel blocks handles.
pub(crate) fn widest(isa: Isa, blocks: usize) -> usize {
    tiles(isa, PixelPitch::Sixteen, blocks).len()
}

/// `filters[o][at + rows[a]..][..16] = or += sum over pixels of source[pixel][a] * gradients[o][pixel][..16]`.
///
/// `source` starts at the first of the consecutive values of pixel position 0; there is one for each row.
///
/// # Panics
/// If a slice is too short for the segments, or there are more rows or blocks than a tile has: a defect of the caller.
pub(crate) fn run(
    isa: Isa,
    source: &[f32],
    gradients: &[&[f32]],
    segments: &Segments,
    rows: &Rows,
    sink: Sink<'_, '_>,
) {
    let Sink { filters, at, update } = sink;
    let (blocks, count) = (filters.len(), rows.list.len());
    assert!((1..=MAX_BLOCKS).contains(&blocks) && gradients.len() == blocks);
    let tiles = tiles(isa, segments.pixel_pitch, blocks);
    assert!((1..=tiles.len()).contains(&count));
    assert!(segments.source_reach + count <= source.len(), "source too short");
    assert!(gradients.iter().all(|g| segments.gradient_reach + LANES <= g.len()), "gradient too short");
    assert!(filters.iter().all(|filter| at + rows.reach <= filter.len()), "filter too short");
    let tile = Tile {
        isa,
        source: source.as_ptr(),
        gradients: [gradients[0].as_ptr(), gradients[blocks - 1].as_ptr()],
        segments: &segments.list,
        rows: &rows.list,
        update,
        sums: [filters[0][at..].as_mut_ptr(), filters[blocks - 1][at..].as_mut_ptr()],
    };
    // SAFETY: pixel p of a segment reads source values up to `source_reach + count - 1` and gradients up to
    // `gradient_reach + 15`, rows are written up to `at + reach - 1`: all asserted. The filters are distinct `&mut`.
    // The function is of an instruction set whose presence `isa` proves.
    unsafe { tiles[count - 1](&tile) }
}

/// Sums one tile: `A` consecutive source values times `O` channel blocks; source pixels are `S` elements apart.
///
/// # Safety
/// The pointers of `tile` are valid as [`run`] asserts, `tile.rows` has `A` elements; inlined into a function compiled
/// for `simd`'s level.
#[inline(always)]
unsafe fn compute<V: Simd, const S: usize, const A: usize, const O: usize>(simd: V, tile: &Tile<'_>) {
    // SAFETY: the contract of this function.
    unsafe {
        let mut acc = [[simd.splat(0.0); O]; A];
        let segments = tile.segments.as_ptr_range();
        let mut segment = segments.start;
        // Loops that test at their end: the accumulators then stay in registers from the first to the last.
        loop {
            let source = tile.source.add((*segment).source);
            let gradients = tile.gradients.map(|g| g.add((*segment).gradient));
            let mut pixel = 0;
            loop {
                let mut gradient = [simd.splat(0.0); O];
                for o in 0..O {
                    gradient[o] = load(simd, gradients[o].add(pixel * LANES));
                }
                for a in 0..A {
                    let value = simd.splat(*source.add(pixel * S + a));
                    for o in 0..O {
                        acc[a][o] = simd.mul_add(value, gradient[o], acc[a][o]);
                    }
                }
                pixel += 1;
                if pixel == (*segment).len {
                    break;
                }
            }
            segment = segment.add(1);
            if segment == segments.end {
                break;
            }
        }
        for (row, sums) in tile.rows.iter().zip(acc) {
            for o in 0..O {
                let to = tile.sums[o].add(*row);
                let sum = if tile.update == Update::Add { simd.add(load(simd, to), sums[o]) } else { sums[o] };
                store(simd, sum, to);
            }
        }
    }
}

/// The tile functions for 1, 2, ... source values and a number of channel blocks, as the registers allow: see the
/// tiles of [`super::correlate`].
fn tiles(isa: Isa, pitch: PixelPitch, blocks: usize) -> &'static [TileFn] {
    macro_rules! tiles {
        ($function:ident, $o:literal, [$($a:literal)*]) => {
            match pitch {
                PixelPitch::Sixteen => &[$($function::<16, $a, $o> as TileFn),*],
                PixelPitch::Three => &[$($function::<3, $a, $o> as TileFn),*],
            }
        };
    }
    match (isa.level(), blocks) {
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512 | Level::Amx, 1) => tiles!(avx512, 1, [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16]),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512 | Level::Amx, 2) => tiles!(avx512, 2, [1 2 3 4 5 6 7 8 9 10 11 12]),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, 1) => tiles!(avx2, 1, [1 2 3 4 5 6]),
        (Level::Portable, 1) => tiles!(portable, 1, [1 2]),
        _ => &[],
    }
}

compile_tile!(compute as [portable, avx2, avx512], [S, A, O], &Tile<'_>);

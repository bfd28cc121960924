//! The tile of forward convolutions and input gradients: pixels times output channels.
//!
//! Sums over source channels and kernel taps stay in registers: for each source channel, its value at every pixel is
//! broadcast and multiplied by the weights of 16 or 32 output channels (16 lanes of one or two channel blocks).

use super::{LANES, compile_tile, load, store};
use crate::isa::{Isa, Level};
use crate::parallel::pieces;
use crate::simd::Simd;

/// Most channel blocks that a tile computes together.
pub(crate) const MAX_BLOCKS: usize = 2;

/// Where a kernel tap finds its source pixel and its weights.
#[derive(Clone, Copy, Debug)]
struct Tap {
    source: usize,
    weight: usize,
}

/// The kernel taps of a patch, as offsets in f32 elements.
#[derive(Clone, Debug)]
pub(crate) struct Taps {
    list: Vec<Tap>,
    source_reach: usize,
    weight_reach: usize,
}

impl Taps {
    /// Taps from pairs (offset of the source pixel from the first tap position, offset into a block's weights).
    pub(crate) fn new(offsets: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let list: Vec<Tap> = offsets.into_iter().map(|(source, weight)| Tap { source, weight }).collect();
        let source_reach = list.iter().map(|tap| tap.source).max().unwrap_or(0);
        let weight_reach = list.iter().map(|tap| tap.weight).max().unwrap_or(0);
        Self { list, source_reach, weight_reach }
    }

    /// Whether there is no tap at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Distance of neighbouring pixels in the source, in f32 elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PixelPitch {
    /// Blocks of 16 channels.
    Sixteen,
    /// All channels of an image with three.
    Three,
}

impl PixelPitch {
    /// The distance in f32 elements.
    pub(crate) const fn elements(self) -> usize {
        match self {
            Self::Sixteen => 16,
            Self::Three => 3,
        }
    }
}

/// The source side of a patch.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    /// Elements of all source channel blocks.
    pub(crate) data: &'a [f32],
    /// Position of the first pixel of the patch for a tap offset of zero, in block 0.
    pub(crate) start: usize,
    /// Distance of neighbouring pixels.
    pub(crate) pixel_pitch: PixelPitch,
    /// Distance of the rows of the patch.
    pub(crate) row_pitch: usize,
    /// Distance of channel blocks.
    pub(crate) block_pitch: usize,
    /// Channels in each source block, for every block that takes part.
    pub(crate) channels: Channels,
}

/// Source channels of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Channels {
    /// Channel blocks.
    pub(crate) blocks: usize,
    /// Channels in every block but the last.
    pub(crate) full: usize,
    /// Channels in the last block.
    pub(crate) last: usize,
}

/// The output side of a patch.
pub(crate) struct Sink<'a, 'b> {
    /// One or two planes of a channel block each.
    pub(crate) planes: &'a mut [&'b mut [f32]],
    /// Position of the first pixel of the patch in each plane.
    pub(crate) start: usize,
    /// Distance of neighbouring output pixels of a row.
    pub(crate) pixel_pitch: usize,
    /// Distance of the rows of the patch.
    pub(crate) row_pitch: usize,
}

/// What is done with the sums before they are stored.
#[derive(Default)]
pub(crate) struct Finish<'a> {
    /// The sums are added to what the output holds, else they replace it.
    pub(crate) accumulate: bool,
    /// Added to the sums, per channel of each plane.
    pub(crate) bias: Option<&'a [[f32; LANES]; MAX_BLOCKS]>,
    /// Negative results become zero.
    pub(crate) relu: bool,
    /// Collects the moments of the results, before ReLU.
    pub(crate) moments: Option<&'a mut [Moments; MAX_BLOCKS]>,
}

/// Running sums of a channel block about a pivot: no cancellation as long as the pivot is within a few standard
/// deviations of the mean, which the mean of the first tile is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub(crate) struct Moments {
    /// Values seen per channel.
    pub(crate) count: u64,
    /// The value that sums are relative to: the mean of the first tile.
    pub(crate) pivot: [f32; LANES],
    /// Sum of (value - pivot).
    pub(crate) sum: [f64; LANES],
    /// Sum of (value - pivot)^2.
    pub(crate) squares: [f64; LANES],
}

/// Arguments of a tile function; the pointers are valid for the whole tile.
struct Tile<'a> {
    isa: Isa,
    source: *const f32,
    block_pitch: usize,
    channels: Channels,
    taps: &'a [Tap],
    weights: [*const f32; MAX_BLOCKS],
    weight_pitch: usize,
    planes: [*mut f32; MAX_BLOCKS],
    pixel_pitch: usize,
    finish: Finish<'a>,
}

type TileFn = unsafe fn(&mut Tile<'_>);

/// Weights of a patch.
#[derive(Clone, Copy)]
pub(crate) enum Weights<'a> {
    /// For each output plane, `channels.blocks` parts of `pitch` elements; in each, a tap's weights are a matrix
    /// `[channel][16 outputs]` at the tap's weight offset.
    Dense {
        /// One slice per output plane.
        planes: &'a [&'a [f32]],
        /// Distance of the parts.
        pitch: usize,
    },
    /// At a tap's weight offset, 16 weights, each for a source channel and the output channel of the same lane.
    Depthwise(&'a [f32]),
}

/// Computes a patch of `rows` x `columns` output pixels of one or two channel blocks (one if depthwise):
/// `plane[o][p] = finish(sum over blocks, taps, channels of source[p] * weights[o])`.
///
/// # Panics
/// If a slice is too short for the patch: a defect of the caller.
pub(crate) fn run(
    isa: Isa,
    source: Source<'_>,
    taps: &Taps,
    weights: Weights<'_>,
    sink: Sink<'_, '_>,
    [rows, columns]: [usize; 2],
    finish: Finish<'_>,
) {
    let Channels { blocks, full, last } = source.channels;
    let pitch = source.pixel_pitch.elements();
    let outputs = sink.planes.len();
    assert!(rows > 0 && columns > 0 && blocks > 0 && !taps.is_empty() && (1..=MAX_BLOCKS).contains(&outputs));
    assert!(full <= pitch && last <= full && last > 0);
    let source_pixel = (rows - 1) * source.row_pitch + (columns - 1) * pitch;
    let source_end = source.start + source_pixel + taps.source_reach + (blocks - 1) * source.block_pitch + full;
    assert!(source_end <= source.data.len(), "source too short");
    let sink_end = sink.start + (rows - 1) * sink.row_pitch + (columns - 1) * sink.pixel_pitch + LANES;
    assert!(sink.planes.iter().all(|plane| sink_end <= plane.len()), "output too short");

    let last_plane = outputs - 1;
    let (tiles, weights, weight_pitch) = match weights {
        Weights::Dense { planes, pitch } => {
            let weight_end = (blocks - 1) * pitch + taps.weight_reach + full * LANES;
            assert!(planes.len() == outputs && planes.iter().all(|w| weight_end <= w.len()), "weights too short");
            let tiles = dense_tiles(isa, source.pixel_pitch, outputs);
            (tiles, [planes[0].as_ptr(), planes[last_plane].as_ptr()], pitch)
        }
        Weights::Depthwise(weights) => {
            assert!(taps.weight_reach + LANES <= weights.len(), "weights too short");
            assert!(outputs == 1 && blocks == 1 && full == LANES && source.pixel_pitch == PixelPitch::Sixteen);
            (depthwise_tiles(isa), [weights.as_ptr(); MAX_BLOCKS], 0)
        }
    };
    let planes = [sink.planes[0].as_mut_ptr(), sink.planes[last_plane].as_mut_ptr()];
    let mut tile = Tile {
        isa,
        source: source.data.as_ptr(),
        block_pitch: source.block_pitch,
        channels: source.channels,
        taps: &taps.list,
        weights,
        weight_pitch,
        planes,
        pixel_pitch: sink.pixel_pitch,
        finish,
    };
    let count = columns.div_ceil(tiles.len());
    for row in 0..rows {
        for piece in pieces(columns, count) {
            // SAFETY: row < rows and the piece lies within the columns, so the largest offsets of the tile are below
            // those asserted above: the last source access at `source_end - 1`, the last weight access before
            // `weight_end`, the last store before `sink_end`. The planes are exclusively borrowed and distinct (two
            // `&mut`). The functions are of an instruction set whose presence `isa` proves; a piece is not wider
            // than there are functions.
            unsafe {
                let first = source.start + row * source.row_pitch + piece.start * pitch;
                tile.source = source.data.as_ptr().add(first);
                let first = sink.start + row * sink.row_pitch + piece.start * sink.pixel_pitch;
                tile.planes = planes.map(|plane| plane.add(first));
                tiles[piece.len() - 1](&mut tile);
            }
        }
    }
}

/// Computes one tile of `P` pixels and `O` channel blocks; pixels of the source are `S` elements apart.
///
/// # Safety
/// The pointers of `tile` are valid as [`run`] asserts; inlined into a function compiled for `simd`'s level.
#[inline(always)]
unsafe fn compute<V: Simd, const S: usize, const P: usize, const O: usize>(simd: V, tile: &mut Tile<'_>) {
    // SAFETY: the contract of this function.
    unsafe {
        let mut acc = [[simd.splat(0.0); O]; P];
        if simd.registers() < 32 {
            // One channel block after another, as of `vectors_together`.
            for o in 0..O {
                let sums = sum::<V, S, P, 1>(simd, tile, [tile.weights[o]]);
                for p in 0..P {
                    acc[p][o] = sums[p][0];
                }
            }
        } else {
            acc = sum::<V, S, P, O>(simd, tile, std::array::from_fn(|o| tile.weights[o]));
        }
        finish(simd, tile, acc);
    }
}

/// The sums of some channel blocks, whose weights are given.
///
/// # Safety
/// As [`compute`].
#[inline(always)]
unsafe fn sum<V: Simd, const S: usize, const P: usize, const O: usize>(
    simd: V,
    tile: &Tile<'_>,
    mut weights: [*const f32; O],
) -> [[V::F32; O]; P] {
    // SAFETY: the contract of this function.
    unsafe {
        let mut acc = [[simd.splat(0.0); O]; P];
        let mut source = tile.source;
        let taps = tile.taps.as_ptr_range();
        let mut block = 1;
        // Loops that test at their end: the accumulators then stay in registers from the first to the last.
        loop {
            let lanes = if block == tile.channels.blocks { tile.channels.last } else { tile.channels.full };
            let mut tap = taps.start;
            loop {
                let x = source.add((*tap).source);
                let w = weights.map(|w| w.add((*tap).weight));
                let mut i = 0;
                loop {
                    let mut row = [simd.splat(0.0); O];
                    for o in 0..O {
                        row[o] = load(simd, w[o].add(i * LANES));
                    }
                    for p in 0..P {
                        let value = simd.splat(*x.add(p * S + i));
                        for o in 0..O {
                            acc[p][o] = simd.mul_add(value, row[o], acc[p][o]);
                        }
                    }
                    i += 1;
                    if i == lanes {
                        break;
                    }
                }
                tap = tap.add(1);
                if tap == taps.end {
                    break;
                }
            }
            if block == tile.channels.blocks {
                break;
            }
            block += 1;
            source = source.add(tile.block_pitch);
            weights = weights.map(|w| w.add(tile.weight_pitch));
        }
        acc
    }
}

/// Computes one tile of `P` pixels of a depthwise convolution.
///
/// # Safety
/// As [`compute`].
#[inline(always)]
unsafe fn compute_depthwise<V: Simd, const P: usize>(simd: V, tile: &mut Tile<'_>) {
    // SAFETY: the contract of this function.
    unsafe {
        let mut acc = [[simd.splat(0.0); 1]; P];
        for tap in tile.taps {
            let x = tile.source.add(tap.source);
            let weights = load(simd, tile.weights[0].add(tap.weight));
            for (p, sum) in acc.iter_mut().enumerate() {
                sum[0] = simd.mul_add(load(simd, x.add(p * LANES)), weights, sum[0]);
            }
        }
        finish(simd, tile, acc);
    }
}

/// Finishes and stores the accumulators.
///
/// # Safety
/// As [`compute`].
#[inline(always)]
unsafe fn finish<V: Simd, const P: usize, const O: usize>(simd: V, tile: &mut Tile<'_>, mut acc: [[V::F32; O]; P]) {
    // SAFETY: the contract of this function.
    unsafe {
        // Sums of other source blocks are added only now: two levels of summation, which keeps rounding errors small.
        if tile.finish.accumulate {
            for p in 0..P {
                for o in 0..O {
                    let others = load(simd, tile.planes[o].add(p * tile.pixel_pitch));
                    acc[p][o] = simd.add(others, acc[p][o]);
                }
            }
        }
        // The bias comes last: it may be far larger than the terms, whose sum would then be rounded at every step.
        if let Some(bias) = tile.finish.bias {
            for o in 0..O {
                let bias = load(simd, bias[o].as_ptr());
                for row in &mut acc {
                    row[o] = simd.add(row[o], bias);
                }
            }
        }
        if let Some(moments) = &mut tile.finish.moments {
            for o in 0..O {
                collect::<V, P>(simd, &mut moments[o], std::array::from_fn(|p| acc[p][o]));
            }
        }
        for p in 0..P {
            for o in 0..O {
                let value = if tile.finish.relu { simd.relu(acc[p][o]) } else { acc[p][o] };
                store(simd, value, tile.planes[o].add(p * tile.pixel_pitch));
            }
        }
    }
}

/// Adds the values of one tile to the moments of a channel block.
///
/// # Safety
/// Inlined into a function compiled for `simd`'s level.
#[inline(always)]
unsafe fn collect<V: Simd, const P: usize>(simd: V, moments: &mut Moments, values: [V::F32; P]) {
    // SAFETY: loads and stores are to arrays of 16 f32; the contract of this function.
    unsafe {
        if moments.count == 0 {
            let mut sum = simd.splat(0.0);
            for value in values {
                sum = simd.add(sum, value);
            }
            store(simd, sum, moments.pivot.as_mut_ptr());
            for pivot in &mut moments.pivot {
                *pivot /= P as f32;
            }
        }
        let pivot = load(simd, moments.pivot.as_ptr());
        let mut sum = simd.splat(0.0);
        let mut squares = simd.splat(0.0);
        for value in values {
            let difference = simd.sub(value, pivot);
            sum = simd.add(sum, difference);
            squares = simd.mul_add(difference, difference, squares);
        }
        let mut lanes = [[0.0; LANES]; 2];
        store(simd, sum, lanes[0].as_mut_ptr());
        store(simd, squares, lanes[1].as_mut_ptr());
        for lane in 0..LANES {
            moments.sum[lane] += f64::from(lanes[0][lane]);
            moments.squares[lane] += f64::from(lanes[1][lane]);
        }
        moments.count += P as u64;
    }
}

/// The tile functions for 1, 2, ... pixels and a number of channel blocks, as the registers allow: accumulators,
/// weights and one broadcast in 32 registers (AVX-512), or in 16 registers of half (AVX2) or a quarter (SSE2) of a
/// block.
fn dense_tiles(isa: Isa, pitch: PixelPitch, blocks: usize) -> &'static [TileFn] {
    macro_rules! tiles {
        ($function:ident, $o:literal, [$($p:literal)*]) => {
            match pitch {
                PixelPitch::Sixteen => &[$($function::<16, $p, $o> as TileFn),*],
                PixelPitch::Three => &[$($function::<3, $p, $o> as TileFn),*],
            }
        };
    }
    match (isa.level(), blocks) {
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512 | Level::Amx, 1) => tiles!(avx512, 1, [1 2 3 4 5 6 7 8 9 10 11 12 13 14]),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512 | Level::Amx, _) => tiles!(avx512, 2, [1 2 3 4 5 6 7 8 9 10 11 12 13 14]),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, 1) => tiles!(avx2, 1, [1 2 3 4 5 6]),
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, _) => tiles!(avx2, 2, [1 2 3 4 5 6]),
        (_, 1) => tiles!(portable, 1, [1 2 3]),
        _ => tiles!(portable, 2, [1 2 3]),
    }
}

fn depthwise_tiles(isa: Isa) -> &'static [TileFn] {
    macro_rules! tiles {
        ($function:ident, [$($p:literal)*]) => { &[$($function::<$p> as TileFn),*] };
    }
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Amx => tiles!(avx512_depthwise, [1 2 3 4 5 6 7 8 9 10 11 12 13 14]),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => tiles!(avx2_depthwise, [1 2 3 4 5 6]),
        _ => tiles!(portable_depthwise, [1 2 3]),
    }
}

compile_tile!(compute as [portable, avx2, avx512], [S, P, O], &mut Tile<'_>);
compile_tile!(compute_depthwise as [portable_depthwise, avx2_depthwise, avx512_depthwise], [P], &mut Tile<'_>);

//! The filter gradient on tiles.
//!
//! Terms are positions. The source is converted to rows of positions, one for each channel,
//! `[block][part][channel][position]`: at the distance of a kernel element, a tile takes 16 channels and 32 positions.
//! The output gradient becomes tiles of pairs of positions, `[block][part][pair][16 channels]`, with zeros in the margin.
//! A tile of sums is the part of the packed filter of two blocks and a kernel element.
//!
//! Work is cut into sums of some steps each, as for vector instructions, and steps of some images and rows, whose
//! converted maps stay in the second-level cache. Within a step, threads share the conversions, then the blocks of the
//! output.

use super::positions::{Pixels, Positions};
use crate::aligned::AlignedBuf;
use crate::blocked::C0;
use crate::conv::ConvShape;
use crate::conv::frame::Reach;
use crate::conv::packed_len;
use crate::conv::weights::PackedLayout;
use crate::isa::Isa;
use crate::micro::amx::{Amx, DEPTH, Left, MAX_TILES, Right, SIDE, Steps, Sums, TILE};
use crate::parallel::{piece, pieces};
use crate::parts::{Parts, for_parts, half_words, store_pairs, store_parts, words};
use crate::simd::vectorised;
use rayon::prelude::*;
use std::array;
use std::cell::RefCell;
use std::ops::Range;

/// Half words of a step's converted maps, so that they stay in the second-level cache.
const STEP_LEN: usize = 1024 << 10;

/// Sums that a gradient is cut into at most.
const MOST_SUMS: usize = 8;

thread_local! {
    static MAPS: RefCell<[AlignedBuf; 2]> = RefCell::default();
}

/// How a filter gradient is cut: depends on the shape only, since the order of sums does.
struct Cut {
    images: usize,
    rows: usize,
    row_chunks: usize,
    steps: usize,
    sums: usize,
}

impl Cut {
    fn new(shape: &ConvShape, reach: &Reach, parts: Parts) -> Self {
        let (input, output) = (shape.input(), shape.output());
        let [margin, width] = [reach.margin()[0], output.w + reach.margin()[1]];
        let phases: usize = reach.phases().iter().product();
        let per_row = (input.c1() * phases + output.c1()) * C0 * parts.count() * width;
        let fitting = (STEP_LEN / per_row).saturating_sub(margin).clamp(1, output.h);
        let rows = output.h.div_ceil(output.h.div_ceil(fitting));
        let row_chunks = output.h.div_ceil(rows);
        let images = if row_chunks > 1 { 1 } else { (STEP_LEN / (per_row * (rows + margin))).clamp(1, shape.n) };
        let steps = shape.n.div_ceil(images) * row_chunks;
        // Adding up the sums has to stay cheap next to reading the maps.
        let cheap = 1 + (input.len() + output.len()) / (4 * packed_len(shape));
        Self { images, rows, row_chunks, steps, sums: MOST_SUMS.min(cheap).min(steps) }
    }
}

fn reach(shape: &ConvShape) -> Reach {
    let output = shape.output();
    Reach::new([output.h, output.w], shape.stride, &shape.tap_offsets())
}

/// Number of filters whose sum is the gradient.
pub(in crate::conv) fn filter_sums(shape: &ConvShape, parts: Parts) -> usize {
    Cut::new(shape, &reach(shape), parts).sums
}

/// As [`crate::conv::filter_gradient`], but for the last sum, of `dw` and `workspace`.
#[allow(clippy::too_many_arguments, reason = "the operands of a convolution, and how they are multiplied")]
pub(in crate::conv) fn filter_gradient(
    isa: Isa,
    amx: Amx,
    parts: Parts,
    shape: &ConvShape,
    x: &[f32],
    dy: &[f32],
    workspace: &mut [f32],
    dw: &mut [f32],
) {
    let reach = reach(shape);
    let gradient = FilterGradient {
        isa,
        amx,
        parts,
        shape,
        x,
        dy,
        layout: PackedLayout::forward(shape),
        cut: Cut::new(shape, &reach, parts),
        reach,
    };
    let len = dw.len();
    let filters: Vec<&mut [f32]> = std::iter::once(dw).chain(workspace.chunks_exact_mut(len)).collect();
    filters.into_par_iter().with_max_len(1).enumerate().for_each(|(index, filter)| gradient.sum(index, filter));
}

struct FilterGradient<'a> {
    isa: Isa,
    amx: Amx,
    parts: Parts,
    shape: &'a ConvShape,
    x: &'a [f32],
    dy: &'a [f32],
    layout: PackedLayout,
    cut: Cut,
    reach: Reach,
}

impl FilterGradient<'_> {
    /// The sum of some steps.
    fn sum(&self, index: usize, filter: &mut [f32]) {
        // Taken, not borrowed: a thread that waits for others may begin with another sum.
        let mut maps = MAPS.take();
        let (output, input) = (self.shape.output(), self.shape.input());
        let Cut { images, rows, row_chunks, steps, sums } = self.cut;
        for (nth, step) in piece(steps, sums, index).enumerate() {
            let (image, row) = (step / row_chunks * images, step % row_chunks * rows);
            let images = image..(image + images).min(input.n);
            let rows = row..(row + rows).min(output.h);
            self.step(images, rows, nth > 0, &mut maps, filter);
        }
        MAPS.set(maps);
        let last = output.c1() - 1;
        for (block, part) in filter[self.layout.elements(last)].chunks_exact_mut(self.layout.part_len()).enumerate() {
            self.layout.clear_unconnected(self.shape, last, block, part);
        }
    }

    /// Adds the products of some rows of some images to the filter, or stores them.
    fn step(
        &self,
        images: Range<usize>,
        rows: Range<usize>,
        accumulate: bool,
        [source, gradient]: &mut [AlignedBuf; 2],
        filter: &mut [f32],
    ) {
        let (input, output) = (self.shape.input(), self.shape.output());
        let positions = Positions::new(&self.reach, &input, images, rows.clone());
        let runs = positions.runs([rows.len(), output.w]);
        let count = self.parts.count();

        // Rows of an odd number of cache lines fall into different sets of a cache. A tile may read beyond the last
        // position.
        let pitch = (positions.len() + DEPTH).next_multiple_of(DEPTH);
        let pitch = if (pitch / DEPTH).is_multiple_of(2) { pitch + DEPTH } else { pitch };
        let block_len = count * SIDE * pitch;
        let len = input.c1() * block_len;
        source.grow(len.div_ceil(2));
        let source = &mut half_words(source)[..len];
        let pixels = positions.sources();
        source.par_chunks_exact_mut(block_len).enumerate().for_each(|(block, rows)| {
            let maps = &self.x[block * input.plane_len()..];
            for_parts!(self.parts, channels(self.isa, &pixels, maps, pitch, rows));
        });

        let pixels = positions.results(&output, &runs, DEPTH);
        let part_len = pixels.len() / 2 * C0;
        let len = output.c1() * count * part_len;
        gradient.grow(len);
        let gradient = &mut words(gradient)[..len];
        gradient.par_chunks_exact_mut(count * part_len).enumerate().for_each(|(block, tiles)| {
            let maps = &self.dy[block * output.plane_len()..];
            for_parts!(self.parts, pairs(self.isa, &pixels, maps, tiles));
        });

        let terms = runs.iter().flat_map(|run| run.clone().step_by(DEPTH));
        let steps = Steps::new(terms.zip(0..).map(|(position, step)| [position, step * TILE]));
        let taps: Vec<usize> = self.shape.tap_offsets().into_iter().map(|offset| positions.tap(offset)).collect();
        let left = Left { data: source, row_pitch: pitch, tile_pitch: block_len, part_pitch: SIDE * pitch };
        let right = Right { data: gradient, tile_pitch: count * part_len, part_pitch: part_len };
        let filter_len = input.c1() * self.layout.part_len();
        filter.par_chunks_mut(MAX_TILES * filter_len).enumerate().for_each(|(pair, filters)| {
            let right = Right { data: &right.data[pair * MAX_TILES * right.tile_pitch..], ..right };
            let tiles = self.amx.configure();
            for blocks in pieces(input.c1(), input.c1().div_ceil(MAX_TILES)) {
                for (tap, at) in taps.iter().enumerate() {
                    let left = Left { data: &left.data[blocks.start * block_len + at..], ..left };
                    let sums = Sums {
                        tiles: [blocks.len(), filters.len() / filter_len],
                        tile_pitches: [self.layout.part_len(), filter_len],
                        data: &mut filters[blocks.start * self.layout.part_len() + tap * TILE..],
                        row_pitch: SIDE,
                        accumulate,
                    };
                    tiles.multiply(self.parts, left, right, &steps, sums);
                }
            }
        });
    }
}

vectorised! {
    /// The channels of a block, each a row of all positions; zeros behind them.
    fn channels [const P: usize,] [P] (simd, pixels: &Pixels, maps: &[f32], pitch: usize, rows: &mut [u16]) -> () {
        for first in (0..pitch).step_by(C0) {
            let block = array::from_fn(|lane| simd.load(pixels.of(first + lane, maps)));
            for (channel, row) in simd.transpose(block).into_iter().enumerate() {
                store_parts::<S, P>(simd, row, rows, channel * pitch + first, SIDE * pitch);
            }
        }
    }
}

vectorised! {
    /// Pairs of the pixels of a block.
    fn pairs [const P: usize,] [P] (simd, pixels: &Pixels, maps: &[f32], tiles: &mut [u32]) -> () {
        let pairs = pixels.len() / 2;
        for pair in 0..pairs {
            let (first, second) = (pixels.of(2 * pair, maps), pixels.of(2 * pair + 1, maps));
            store_pairs::<S, P>(simd, [simd.load(first), simd.load(second)], tiles, pair * C0, pairs * C0);
        }
    }
}

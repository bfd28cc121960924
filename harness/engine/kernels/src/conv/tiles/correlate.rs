//! Correlation on tiles: forward convolution and input gradient.
//!
//! Work is cut into chunks of images and rows whose converted source stays in the second-level cache. Within a chunk,
//! threads share the conversion, then the pairs of destination blocks. Source, of a pair of blocks each:
//! `[pair][part][position][32 channels]`.

use super::positions::{Pixels, Positions};
use super::weights::tap_words;
use crate::aligned::AlignedBuf;
use crate::blocked::{Blocked, C0};
use crate::conv::correlate::{Correlation, Grid};
use crate::conv::finish::finish;
use crate::conv::frame::Reach;
use crate::isa::Isa;
use crate::micro::amx::{Amx, DEPTH, Left, MAX_TILES, Right, SIDE, Steps, Sums, TILE};
use crate::micro::correlate::Moments;
use crate::parts::{Parts, for_parts, half_words, store_parts};
use crate::simd::vectorised;
use rayon::prelude::*;
use std::cell::RefCell;
use std::ops::Range;

/// Half words of a chunk's source, so that it stays in the second-level cache.
const CHUNK_LEN: usize = 384 << 10;

/// Positions that a kernel computes together.
const TOGETHER: usize = MAX_TILES * SIDE;

thread_local! {
    static SOURCE: RefCell<AlignedBuf> = RefCell::default();
}

/// The operands of a correlation on tiles.
pub(in crate::conv) struct OnTiles<'a> {
    pub(in crate::conv) amx: Amx,
    pub(in crate::conv) parts: Parts,
    /// As [`super::pack`] has it.
    pub(in crate::conv) weights: &'a [u32],
}

/// Some images and output rows, with their rows of the destination: of each pair of blocks, by images and blocks.
struct Chunk<'d> {
    images: Range<usize>,
    rows: Range<usize>,
    pairs: Vec<Vec<&'d mut [f32]>>,
}

/// A grid's outputs in a chunk: the places of their terms, and their positions.
struct Outputs {
    origin: [usize; 2],
    /// Rows and columns of an image.
    extent: [usize; 2],
    steps: Steps,
    /// One for each image, or one for all.
    runs: Vec<Range<usize>>,
}

impl Correlation<'_> {
    /// As [`Correlation::compute`].
    pub(in crate::conv) fn compute_on_tiles(
        &self,
        on: &OnTiles<'_>,
        maps: &[f32],
        dest: &mut [f32],
        moments: bool,
    ) -> Vec<Vec<Moments>> {
        assert_eq!(dest.len(), self.dest.len(), "destination");
        assert_eq!(maps.len(), self.source.len(), "blocked maps");
        let offsets: Vec<[isize; 2]> = self.grids.iter().flat_map(|g| g.taps.iter().map(|t| t.0)).collect();
        let outputs = [0, 1].map(|axis| self.grids.iter().map(|g| g.outputs[axis]).max().unwrap_or(0));
        let reach = Reach::new(outputs, self.source_step, &offsets);
        let chunks = self.chunks(&reach, on.parts, dest);
        chunks.into_par_iter().with_max_len(1).map(|chunk| self.chunk(on, &reach, maps, chunk, moments)).collect()
    }

    /// Cuts the work, by the shape only: the order of moments follows.
    fn chunks<'d>(&self, reach: &Reach, parts: Parts, dest: &'d mut [f32]) -> Vec<Chunk<'d>> {
        let [margin, width] = [reach.margin()[0], reach.outputs[1] + reach.margin()[1]];
        let phases: usize = reach.phases().iter().product();
        let per_row = self.source.c1().div_ceil(2) * 2 * C0 * parts.count() * phases * width;
        let fitting = (CHUNK_LEN / per_row).saturating_sub(margin).clamp(1, reach.outputs[0]);
        let row_chunks = reach.outputs[0].div_ceil(fitting);
        let rows = reach.outputs[0].div_ceil(row_chunks);
        let images = if row_chunks > 1 { 1 } else { (CHUNK_LEN / (per_row * (rows + margin))).clamp(1, self.source.n) };
        let pairs = self.dest.c1().div_ceil(MAX_TILES);
        let mut chunks: Vec<Chunk<'d>> = (0..self.source.n.div_ceil(images) * row_chunks)
            .map(|index| {
                let (image, row) = (index / row_chunks * images, index % row_chunks * rows);
                Chunk {
                    images: image..(image + images).min(self.source.n),
                    rows: row..(row + rows).min(reach.outputs[0]),
                    pairs: (0..pairs).map(|_| Vec::new()).collect(),
                }
            })
            .collect();
        chunks.retain(|chunk| !chunk.rows.is_empty());
        let row_chunks = reach.outputs[0].div_ceil(rows);
        let c1 = self.dest.c1();
        for (index, plane) in dest.chunks_exact_mut(self.dest.plane_len()).enumerate() {
            let (image, block) = (index / c1, index % c1);
            let parts = plane.chunks_mut(rows * self.dest_step[0] * self.dest.w * C0);
            for (row, part) in parts.enumerate().take(row_chunks) {
                chunks[image / images * row_chunks + row].pairs[block / MAX_TILES].push(part);
            }
        }
        chunks
    }

    fn chunk(&self, on: &OnTiles<'_>, reach: &Reach, maps: &[f32], chunk: Chunk<'_>, moments: bool) -> Vec<Moments> {
        let positions = Positions::new(reach, &self.source, chunk.images.clone(), chunk.rows.clone());
        let part_len = positions.len() * DEPTH;
        let pair_len = on.parts.count() * part_len;
        let pairs = self.source.c1().div_ceil(2);
        // The last tile of positions may read beyond them.
        let len = pairs * pair_len + TOGETHER * DEPTH;
        // Taken, not borrowed: a thread that waits for others may begin with another chunk.
        let mut buffer = SOURCE.take();
        buffer.grow(len.div_ceil(2));
        let source = &mut half_words(&mut buffer)[..len];
        fill(self.isa, &self.source, maps, &positions.sources(), on.parts, &mut source[..pairs * pair_len]);
        let grids = self.outputs(on, &positions, &chunk.rows, pair_len);
        let left = Left { data: source, row_pitch: DEPTH, tile_pitch: SIDE * DEPTH, part_pitch: part_len };
        let computed = chunk.pairs.into_par_iter().with_max_len(1).enumerate();
        let moments =
            computed.map(|(pair, planes)| self.pair(on, left, &grids, positions.width(), pair, planes, moments));
        let moments: Vec<Vec<Moments>> = moments.collect();
        SOURCE.set(buffer);
        moments.concat()
    }

    /// The grids of outputs that have rows in a chunk. Those without taps have no steps.
    fn outputs(
        &self,
        on: &OnTiles<'_>,
        positions: &Positions<'_>,
        rows: &Range<usize>,
        pair_len: usize,
    ) -> Vec<Outputs> {
        let (taps, words) = (self.layout.taps(), tap_words(on.parts));
        let outputs = |grid: &Grid| {
            let count = rows.end.min(grid.outputs[0]).saturating_sub(rows.start);
            let extent = [count, grid.outputs[1]];
            let steps = (0..self.source.c1().div_ceil(2)).flat_map(|pair| {
                let of_tap = move |&(offset, tap): &([isize; 2], usize)| {
                    [pair * pair_len + positions.tap(offset) * DEPTH, (pair * taps + tap) * words]
                };
                grid.taps.iter().map(of_tap)
            });
            let steps = Steps::new(steps);
            (count > 0).then(|| Outputs { origin: grid.origin, extent, steps, runs: positions.runs(extent) })
        };
        self.grids.iter().filter_map(outputs).collect()
    }

    /// One or two destination blocks of a chunk.
    #[allow(clippy::too_many_arguments, reason = "what the pairs of a chunk share, and one of them")]
    fn pair(
        &self,
        on: &OnTiles<'_>,
        left: Left<'_>,
        grids: &[Outputs],
        width: usize,
        pair: usize,
        mut planes: Vec<&mut [f32]>,
        moments: bool,
    ) -> Vec<Moments> {
        let first_block = pair * MAX_TILES;
        let blocks = (self.dest.c1() - first_block).min(MAX_TILES);
        let mut collected = vec![Moments::default(); blocks];
        let per_pair = self.source.c1().div_ceil(2) * self.layout.taps() * tap_words(on.parts);
        let weights = &on.weights[pair * per_pair..][..per_pair];
        let right = Right { data: weights, tile_pitch: TILE, part_pitch: MAX_TILES * TILE };
        if self.grids.iter().any(|grid| grid.taps.is_empty()) {
            planes.iter_mut().for_each(|plane| plane.fill(0.0));
        }
        let mut scratch = Scratch([0.0; MAX_TILES * TOGETHER * C0]);
        let tiles = on.amx.configure();
        for grid in grids.iter().filter(|grid| !grid.steps.is_empty()) {
            for (run, range) in grid.runs.iter().enumerate() {
                for start in range.clone().step_by(TOGETHER) {
                    let count = (range.end - start).min(TOGETHER);
                    let left = Left { data: &left.data[start * DEPTH..], ..left };
                    let sums = Sums {
                        data: &mut scratch.0,
                        tiles: [count.div_ceil(SIDE), blocks],
                        tile_pitches: [TILE, TOGETHER * C0],
                        row_pitch: C0,
                        accumulate: false,
                    };
                    tiles.multiply(on.parts, left, right, &grid.steps, sums);
                    // The rows of outputs that the positions belong to.
                    let mut done = 0;
                    while done < count {
                        let at = start - range.start + done;
                        let (row, column) = (at / width, at % width);
                        // Only a run of all images has more rows than an image.
                        let (image, row) = (run + row / grid.extent[0], row % grid.extent[0]);
                        let of_row = (width - column).min(count - done);
                        let valid = grid.extent[1].saturating_sub(column).min(of_row);
                        let y = grid.origin[0] + row * self.dest_step[0];
                        let x = grid.origin[1] + column * self.dest_step[1];
                        let each = scratch.0.chunks_exact(TOGETHER * C0).take(blocks).enumerate();
                        for (block, sums) in each.filter(|_| valid > 0) {
                            finish(
                                self.isa,
                                &sums[done * C0..][..valid * C0],
                                &mut planes[image * blocks + block][(y * self.dest.w + x) * C0..],
                                self.dest_step[1],
                                self.bias.map(|bias| &bias[first_block + block]),
                                self.relu,
                                moments.then_some(&mut collected[block]),
                            );
                        }
                        done += of_row;
                    }
                }
            }
        }
        drop(tiles);
        if let Some(rounding) = self.rounding {
            planes.iter_mut().for_each(|plane| rounding.part(plane));
        }
        collected
    }
}

/// Sums of 2 x 2 tiles, `[block][position][16]`.
#[repr(align(64))]
struct Scratch([f32; MAX_TILES * TOGETHER * C0]);

/// Converts the source pixels of all positions.
fn fill(isa: Isa, source: &Blocked, maps: &[f32], pixels: &Pixels, parts: Parts, to: &mut [u16]) {
    let (c1, pair_len) = (source.c1(), to.len() / source.c1().div_ceil(2));
    to.par_chunks_exact_mut(pair_len).enumerate().for_each(|(pair, to)| {
        let blocks = [0, 1].map(|half| match 2 * pair + half {
            block if block < c1 => &maps[block * source.plane_len()..],
            _ => &[],
        });
        for_parts!(parts, convert(isa, pixels, blocks, to));
    });
}

vectorised! {
    /// The pixels of two blocks side by side.
    fn convert [const P: usize,] [P] (simd, pixels: &Pixels, blocks: [&[f32]; 2], to: &mut [u16]) -> () {
        for position in 0..pixels.len() {
            for (half, block) in blocks.iter().enumerate() {
                let value = simd.load(pixels.of(position, block));
                store_parts::<S, P>(simd, value, to, position * DEPTH + half * C0, pixels.len() * DEPTH);
            }
        }
    }
}

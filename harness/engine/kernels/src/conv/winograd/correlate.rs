//! Forward convolution and input gradient.
//!
//! A task takes some images, or some rows of one, and some destination blocks. It transforms its source once, so that
//! the transformed maps, `[place][source block][square]`, stay in the second-level cache. Then, for each pair of
//! destination blocks, it computes the 16 products and transforms them to outputs.

use super::maps::{Places, rows as rows_of, transform_products, transform_source};
use super::{OUTPUTS, PRODUCTS, squares};
use crate::aligned::AlignedBuf;
use crate::blocked::{Blocked, C0};
use crate::conv::correlate::{Cut, TASKS_PER_THREAD, Task};
use crate::conv::finish::finish;
use crate::half::Rounding;
use crate::isa::Isa;
use crate::micro::correlate::{Channels, Finish, MAX_BLOCKS, Moments, PixelPitch, Sink, Source, Taps, Weights, run};
use crate::parallel::pieces;
use rayon::prelude::*;
use std::cell::RefCell;

/// Elements of a task's transformed source.
const SOURCE_LEN: usize = 128 << 10;

/// Fewest squares of a task: each reads all weights.
const FEWEST: usize = 28;

/// Most source blocks whose products are summed in registers.
const BLOCKS: usize = 32;

thread_local! {
    static SCRATCH: RefCell<[AlignedBuf; 3]> = RefCell::default();
}

/// A correlation of source maps with transformed weights.
pub(in crate::conv) struct Squares<'a> {
    pub(in crate::conv) isa: Isa,
    pub(in crate::conv) maps: &'a [f32],
    pub(in crate::conv) source: Blocked,
    /// Zeros above and to the left of the source.
    pub(in crate::conv) pad: [usize; 2],
    /// As [`super::transform`] has them.
    pub(in crate::conv) weights: &'a [f32],
    pub(in crate::conv) dest: Blocked,
    /// Per destination channel, padded to whole blocks.
    pub(in crate::conv) bias: Option<&'a [[f32; C0]]>,
    pub(in crate::conv) relu: bool,
    /// How a simulated device holds the destination.
    pub(in crate::conv) rounding: Option<&'a Rounding>,
}

impl Squares<'_> {
    /// As [`crate::conv::correlate::Correlation::compute`].
    pub(in crate::conv) fn compute(&self, dest: &mut [f32], moments: bool) -> Vec<Vec<Moments>> {
        assert_eq!(dest.len(), self.dest.len(), "destination");
        assert_eq!(self.maps.len(), self.source.len(), "blocked maps");
        let cut = self.cut();
        // A row of the cut is a row of squares.
        let tasks = cut.tasks(&self.dest, OUTPUTS, dest).into_par_iter().with_max_len(1);
        let parts = tasks.map(|task| SCRATCH.with_borrow_mut(|scratch| self.task(task, scratch, moments)));
        let parts: Vec<Vec<Moments>> = parts.collect();
        if !moments {
            return Vec::new();
        }
        parts.chunks(cut.block_chunks).map(|chunk| chunk.concat()).collect()
    }

    /// How images and rows of squares are cut depends on the shape only, since the order of moments does.
    fn cut(&self) -> Cut {
        let [rows, columns] = squares([self.dest.h, self.dest.w]);
        let fitting = (SOURCE_LEN / (PRODUCTS * self.source.c1() * C0)).max(FEWEST);
        let row_chunks = rows.div_ceil((fitting / columns).clamp(1, rows));
        let images = if row_chunks > 1 { 1 } else { (fitting / (rows * columns)).clamp(1, self.source.n) };
        let image_chunks = self.source.n.div_ceil(images);
        let wanted = TASKS_PER_THREAD * rayon::current_num_threads();
        let block_chunks = wanted.div_ceil(image_chunks * row_chunks).min(self.dest.c1().div_ceil(MAX_BLOCKS));
        Cut { images, image_chunks, row_chunks, rows: rows.div_ceil(row_chunks), block_chunks }
    }

    fn task(&self, mut task: Task<'_>, scratch: &mut [AlignedBuf; 3], moments: bool) -> Vec<Moments> {
        let [rows, columns] = squares([self.dest.h, self.dest.w]);
        let rows = task.rows.start..task.rows.end.min(rows);
        let count = task.images.len() * rows.len() * columns;
        let c1 = self.source.c1();
        let plane = PRODUCTS * count * C0;
        let [source, products, outputs] = scratch;
        source.grow(c1 * plane);
        products.grow(MAX_BLOCKS * plane);
        outputs.grow(OUTPUTS * OUTPUTS * columns * C0);
        let outputs = &mut outputs[..OUTPUTS * OUTPUTS * columns * C0];
        // The rows of squares of the task, with the square that each begins with.
        let images = task.images.clone().enumerate();
        let lines: Vec<(usize, usize, usize, usize)> = images
            .flat_map(|(index, image)| rows.clone().map(move |row| (index, image, row)))
            .enumerate()
            .map(|(line, (index, image, row))| (index, image, row, line * columns))
            .collect();
        for &(_, image, row, start) in &lines {
            for block in 0..c1 {
                let map = &self.maps[self.source.plane(image, block)];
                let places = Places { start: block * count + start, pitch: c1 * count };
                let read = rows_of(&self.source, map, (OUTPUTS * row).wrapping_sub(self.pad[0]));
                transform_source(self.isa, read, self.pad[1], columns, source, places);
            }
        }
        let mut collected = vec![Moments::default(); if moments { task.blocks.len() } else { 0 }];
        for first in task.blocks.clone().step_by(MAX_BLOCKS) {
            let blocks = first..(first + MAX_BLOCKS).min(task.blocks.end);
            let mut planes: Vec<&mut [f32]> = products.chunks_exact_mut(plane).take(blocks.len()).collect();
            for place in 0..PRODUCTS {
                self.product(place, first, count, source, &mut planes);
            }
            for (block, m) in blocks.zip(products.chunks_exact(plane)) {
                let at = block - task.blocks.start;
                for &(image, _, row, start) in &lines {
                    transform_products(self.isa, m, Places { start, pitch: count }, columns, outputs);
                    let to = &mut task.planes[image * task.blocks.len() + at];
                    let to = to.chunks_exact_mut(self.dest.w * C0).skip(OUTPUTS * (row - rows.start));
                    for (sums, to) in outputs.chunks_exact(OUTPUTS * columns * C0).zip(to) {
                        let bias = self.bias.map(|bias| &bias[block]);
                        let moments = collected.get_mut(at);
                        finish(self.isa, &sums[..to.len()], to, 1, bias, self.relu, moments);
                    }
                }
            }
        }
        if let Some(rounding) = self.rounding {
            task.planes.iter_mut().for_each(|plane| rounding.part(plane));
        }
        collected
    }

    /// The product of one place, for all squares of a task and one or two destination blocks.
    fn product(&self, place: usize, first: usize, squares: usize, source: &[f32], planes: &mut [&mut [f32]]) {
        let c1 = self.source.c1();
        let matrices = c1 * C0 * C0;
        let taps = Taps::new([(0, 0)]);
        for blocks in pieces(c1, c1.div_ceil(BLOCKS)) {
            let last = self.source.lanes(blocks.end - 1);
            let weights: Vec<&[f32]> = (first..first + planes.len())
                .map(|dest| &self.weights[(dest * PRODUCTS + place) * matrices..][..matrices])
                .map(|weights| &weights[blocks.start * C0 * C0..])
                .collect();
            let source = Source {
                data: source,
                start: (place * c1 + blocks.start) * squares * C0,
                pixel_pitch: PixelPitch::Sixteen,
                row_pitch: 0,
                block_pitch: squares * C0,
                channels: Channels { blocks: blocks.len(), full: if blocks.len() == 1 { last } else { C0 }, last },
            };
            let sink = Sink { planes: &mut *planes, start: place * squares * C0, pixel_pitch: C0, row_pitch: 0 };
            let finish = Finish { accumulate: blocks.start > 0, ..Finish::default() };
            let weights = Weights::Dense { planes: &weights, pitch: C0 * C0 };
            run(self.isa, source, &taps, weights, sink, [1, squares], finish);
        }
    }
}

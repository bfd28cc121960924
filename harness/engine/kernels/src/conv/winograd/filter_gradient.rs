//! The gradient of the filters.
//!
//! Tasks are as those of [`crate::conv::filter_gradient`]: some output blocks, some input blocks and, where the filter
//! is small, some of the images. A task transforms its part of both maps step by step, adds the products of squares in
//! all 16 places, and transforms their sums to gradients at its end.

use super::maps::{Places, rows, transform_gradient, transform_source};
use super::weights::gradients;
use super::{OUTPUTS, PRODUCTS, SIDE, squares};
use crate::aligned::AlignedBuf;
use crate::blocked::{Blocked, C0};
use crate::conv::ConvShape;
use crate::conv::weights::PackedLayout;
use crate::isa::Isa;
use crate::micro::correlate::PixelPitch;
use crate::micro::filter::{Rows, Segment, Segments, Sink, Update, run, widest};
use crate::micro::vectors_together;
use crate::parallel::{piece, pieces};
use rayon::prelude::*;
use std::cell::RefCell;
use std::ops::Range;

/// Elements of one place between two blocks.
const MATRIX: usize = C0 * C0;

/// Elements of a task's sums, so that they stay in the second-level cache.
const SUMS_LEN: usize = 96 << 10;

/// Elements of a step's transformed maps, likewise.
const STEP_LEN: usize = 256 << 10;

/// Tasks that a gradient is cut into at least, where it can be.
const TASKS: usize = 16;

thread_local! {
    static SCRATCH: RefCell<[AlignedBuf; 3]> = RefCell::default();
}

/// How a filter gradient is cut into tasks: depends on the shape only, since the order of sums does.
struct Cut {
    out_chunks: usize,
    in_chunks: usize,
    /// Rows of squares of a step, of one image or of all images one after the other.
    rows: usize,
    /// Pieces that the rows of squares of all images are divided into.
    row_chunks: usize,
}

impl Cut {
    fn new(shape: &ConvShape) -> Self {
        let (input, output) = (shape.input(), shape.output());
        let [rows, columns] = squares([output.h, output.w]);
        // Parts that are about square, in pairs of output blocks.
        let parts = SUMS_LEN / (PRODUCTS * MATRIX);
        let (mut out_chunks, mut in_chunks) = (1, 1);
        if output.c1() * input.c1() > parts {
            out_chunks = output.c1().div_ceil(parts.isqrt().next_multiple_of(2));
            in_chunks = input.c1().div_ceil((parts / output.c1().div_ceil(out_chunks)).max(1));
        }
        let of_square = (input.c1().div_ceil(in_chunks) + output.c1().div_ceil(out_chunks)) * PRODUCTS * C0;
        let all = output.n * rows;
        let step = (STEP_LEN / (of_square * columns)).clamp(1, all);
        // Adding up the sums of tasks has to stay cheap next to reading the maps.
        let cheap = 1 + (input.len() + output.len()) / (4 * PackedLayout::forward(shape).len());
        let row_chunks = TASKS.div_ceil(out_chunks * in_chunks).min(cheap).min(all.div_ceil(step));
        out_chunks = TASKS.div_ceil(in_chunks * row_chunks).clamp(out_chunks, output.c1().div_ceil(2).max(out_chunks));
        Self { out_chunks, in_chunks, rows: step, row_chunks }
    }
}

/// Filters that tasks need together.
pub(in crate::conv) fn filter_sums(shape: &ConvShape) -> usize {
    Cut::new(shape).row_chunks
}

/// Some rows of squares, and the parts of the filter between some blocks.
struct Task<'a> {
    rows: Range<usize>,
    inputs: Range<usize>,
    outputs: Range<usize>,
    /// Of each output block, those of the input blocks, one after the other.
    parts: Vec<&'a mut [f32]>,
}

/// As [`crate::conv::filter_gradient`]; the sums of other tasks' rows are left in `workspace`.
pub(in crate::conv) fn filter_gradient(
    isa: Isa,
    shape: &ConvShape,
    x: &[f32],
    dy: &[f32],
    workspace: &mut [f32],
    dw: &mut [f32],
) {
    let (source, output) = (shape.input(), shape.output());
    let gradient = Gradient { isa, shape, cut: Cut::new(shape), source, output, x, dy };
    let tasks = gradient.tasks(workspace, dw).into_par_iter().with_max_len(1);
    tasks.for_each(|task| SCRATCH.with_borrow_mut(|scratch| gradient.task(task, scratch)));
}

struct Gradient<'a> {
    isa: Isa,
    shape: &'a ConvShape,
    cut: Cut,
    source: Blocked,
    output: Blocked,
    x: &'a [f32],
    dy: &'a [f32],
}

impl Gradient<'_> {
    fn tasks<'d>(&self, workspace: &'d mut [f32], dw: &'d mut [f32]) -> Vec<Task<'d>> {
        let cut = &self.cut;
        let [rows, _] = squares([self.output.h, self.output.w]);
        let layout = PackedLayout::forward(self.shape);
        let (mut tasks, len) = (Vec::new(), dw.len());
        for (chunk, filter) in std::iter::once(dw).chain(workspace.chunks_exact_mut(len)).enumerate() {
            let rows = piece(self.output.n * rows, cut.row_chunks, chunk);
            let mut rest = filter;
            for outs in pieces(self.output.c1().div_ceil(2), cut.out_chunks) {
                let outputs = outs.start * 2..(outs.end * 2).min(self.output.c1());
                let start = tasks.len();
                tasks.extend(pieces(self.source.c1(), cut.in_chunks).map(|inputs| Task {
                    rows: rows.clone(),
                    inputs,
                    outputs: outputs.clone(),
                    parts: Vec::with_capacity(outputs.len()),
                }));
                for _ in outputs {
                    for task in &mut tasks[start..] {
                        let part;
                        (part, rest) = rest.split_at_mut(task.inputs.len() * layout.part_len());
                        task.parts.push(part);
                    }
                }
            }
        }
        tasks
    }

    fn task(&self, task: Task<'_>, scratch: &mut [AlignedBuf; 3]) {
        let [height, columns] = squares([self.output.h, self.output.w]);
        let step = self.cut.rows;
        let (inputs, outputs) = (task.inputs.len(), task.outputs.len());
        let [source, gradient, sums] = scratch;
        source.grow(inputs * PRODUCTS * step * columns * C0);
        gradient.grow(outputs * PRODUCTS * step * columns * C0);
        sums.grow(inputs * outputs * PRODUCTS * MATRIX);
        let together = vectors_together(self.isa);
        // Input channels of a tile: of an input block that is not the last and of the last, for one output block and for
        // two.
        let last = self.source.c1() - 1;
        let reads = [C0, self.source.lanes(last)].map(|lanes| {
            [1, 2].map(|blocks| match widest(self.isa, blocks) {
                0 => Vec::new(),
                widest => pieces(lanes, lanes.div_ceil(widest))
                    .map(|lanes| (lanes.start, Rows::new(lanes.map(|lane| lane * C0).collect())))
                    .collect(),
            })
        });
        // Rows beyond the last input channel are not visited.
        sums[..inputs * outputs * PRODUCTS * MATRIX].fill(0.0);
        for first in task.rows.clone().step_by(step) {
            let lines = first..(first + step).min(task.rows.end);
            let count = lines.len() * columns;
            for (line, row) in lines.enumerate() {
                let (image, row) = (row / height, row % height);
                let start = line * columns;
                for (index, block) in task.inputs.clone().enumerate() {
                    let map = &self.x[self.source.plane(image, block)];
                    let places = Places { start: index * count + start, pitch: inputs * count };
                    let [top, _, left, _] = self.shape.pad;
                    let read = rows::<SIDE>(&self.source, map, (OUTPUTS * row).wrapping_sub(top));
                    transform_source(self.isa, read, left, columns, source, places);
                }
                for (index, block) in task.outputs.clone().enumerate() {
                    let map = &self.dy[self.output.plane(image, block)];
                    let places = Places { start: index * count + start, pitch: outputs * count };
                    let read = rows::<OUTPUTS>(&self.output, map, OUTPUTS * row);
                    transform_gradient(self.isa, read, columns, gradient, places);
                }
            }
            let segments = Segments::new(vec![Segment { source: 0, gradient: 0, len: count }], PixelPitch::Sixteen);
            let update = if first == task.rows.start { Update::Store } else { Update::Add };
            for place in 0..PRODUCTS {
                let source = &source[place * inputs * count * C0..][..inputs * count * C0];
                let gradient = &gradient[place * outputs * count * C0..][..outputs * count * C0];
                // Of each output block `[input block][place][lane]`.
                let mut filters = sums.chunks_exact_mut(inputs * PRODUCTS * MATRIX).take(outputs);
                for gradients in gradient.chunks(together * count * C0) {
                    let gradients: Vec<&[f32]> = gradients.chunks_exact(count * C0).collect();
                    let mut filters: Vec<&mut [f32]> = filters.by_ref().take(gradients.len()).collect();
                    for (input, source) in source.chunks_exact(count * C0).enumerate() {
                        let is_last = task.inputs.start + input == last;
                        for (lane, rows) in &reads[usize::from(is_last)][gradients.len() - 1] {
                            let at = (input * PRODUCTS + place) * MATRIX;
                            let sink = Sink { filters: &mut filters, at, update };
                            run(self.isa, &source[*lane..], &gradients, &segments, rows, sink);
                        }
                    }
                }
            }
        }
        let sums = sums.chunks_exact(inputs * PRODUCTS * MATRIX);
        for (parts, sums) in task.parts.into_iter().zip(sums) {
            let parts = parts.chunks_exact_mut(self.shape.taps() * MATRIX);
            for (part, sums) in parts.zip(sums.chunks_exact(PRODUCTS * MATRIX)) {
                gradients(self.isa, sums, part);
            }
        }
    }
}

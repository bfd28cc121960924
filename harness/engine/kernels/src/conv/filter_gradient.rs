//! The gradient of a convolution with respect to its weights (Conv2DBackpropFilter).
//!
//! Work is cut into tasks of some output blocks, some input blocks and, where the filter is small, some of the images;
//! the sums of the images' tasks are then added in the order of the images. Within a task, sums over about
//! [`GROUP_PIXELS`] pixels are formed in registers and added to the task's filter: two levels of summation, which
//! keeps rounding errors small.

use super::frame::{Frame, Maps, Reach};
use super::weights::PackedLayout;
use super::{ConvShape, depthwise, packed_len};
use crate::aligned::AlignedBuf;
use crate::blocked::{Blocked, C0};
use crate::isa::Isa;
use crate::micro::filter::{Segment, Segments, blocks_together, run, widest};
use crate::parallel::{piece, pieces};
use rayon::prelude::*;
use std::cell::RefCell;
use std::ops::Range;

/// Pixels that tiles sum over at a time: one source and two gradient planes of them fit in a cache of 48 KiB.
const GROUP_PIXELS: usize = 200;

/// Elements of the filter that a task works on, so that they stay in the second-level cache.
const FILTER_LEN: usize = 96 << 10;

/// Elements of source and gradient maps of a task's step through its images and rows, likewise.
const STEP_LEN: usize = 160 << 10;

/// Tasks that a gradient is cut into at least, where it can be.
const TASKS: usize = 32;

thread_local! {
    static FRAME: RefCell<AlignedBuf> = RefCell::default();
}

/// How a filter gradient is cut into tasks: depends on the shape only, since the order of sums does.
struct Cut {
    image_chunks: usize,
    out_chunks: usize,
    in_chunks: usize,
    /// Images and output rows that a task handles at a time.
    step: [usize; 2],
}

impl Cut {
    fn new(shape: &ConvShape) -> Self {
        let (input, output) = (shape.input(), shape.output());
        let layout = PackedLayout::forward(shape);
        let parts = (FILTER_LEN / layout.part_len()).max(4);
        // About square, in pairs of output blocks.
        let side = parts.isqrt().next_multiple_of(2);
        let mut out_chunks = output.c1().div_ceil(side);
        let in_side = parts / output.c1().div_ceil(out_chunks).max(1);
        let mut in_chunks = input.c1().div_ceil(in_side.max(1));
        let image_chunks = TASKS.div_ceil(out_chunks * in_chunks).min(shape.n);
        if out_chunks * in_chunks * image_chunks < TASKS && shape.groups == 1 {
            in_chunks = TASKS.div_ceil(out_chunks * image_chunks).clamp(in_chunks, input.c1());
            out_chunks = TASKS.div_ceil(in_chunks * image_chunks).clamp(out_chunks, output.c1().div_ceil(2));
        }
        let in_row = input.c1().div_ceil(in_chunks) * shape.stride[0] * input.w * C0;
        let out_row = output.c1().div_ceil(out_chunks) * output.w * C0;
        let rows = (STEP_LEN / (in_row + out_row)).clamp(1, output.h);
        let rows = output.h.div_ceil(output.h.div_ceil(rows));
        let images = if rows < output.h { 1 } else { STEP_LEN / (rows * (in_row + out_row)) };
        Self { image_chunks, out_chunks, in_chunks, step: [images.clamp(1, shape.n), rows] }
    }
}

/// Elements of the workspace of [`filter_gradient`].
#[must_use]
pub fn filter_workspace_len(shape: &ConvShape) -> usize {
    if shape.is_depthwise() { 0 } else { (Cut::new(shape).image_chunks - 1) * packed_len(shape) }
}

/// `dw[o, c, a, b] = sum over n, i, j of dy[n, o, i, j] * x[n, c, i * s0 + a * d0 - top, j * s1 + b * d1 - left]`,
/// packed as [`super::pack_weights`] does; dy in the layout NC1HWC0.
///
/// `workspace` has [`filter_workspace_len`] elements.
///
/// # Panics
/// If a slice has not the length that the shape calls for.
pub fn filter_gradient(isa: Isa, shape: &ConvShape, x: Maps<'_>, dy: &[f32], workspace: &mut [f32], dw: &mut [f32]) {
    assert_eq!(dy.len(), shape.output().len(), "output gradient");
    assert_eq!(dw.len(), packed_len(shape), "filter gradient");
    assert_eq!(workspace.len(), filter_workspace_len(shape), "workspace");
    x.check(&shape.input());
    if shape.is_depthwise() {
        depthwise::filter_gradient(isa, shape, x, dy, dw);
        return;
    }
    let gradient = FilterGradient::new(isa, shape, x, dy);
    let tasks = gradient.tasks(workspace, dw);
    tasks.into_par_iter().with_max_len(1).for_each(|task| {
        FRAME.with_borrow_mut(|scratch| gradient.task(task, scratch));
    });
    let len = dw.len();
    if !workspace.is_empty() {
        dw.par_chunks_mut(4096).enumerate().for_each(|(index, chunk)| {
            for partial in workspace.chunks_exact(len) {
                for (sum, value) in chunk.iter_mut().zip(&partial[index * 4096..]) {
                    *sum += value;
                }
            }
        });
    }
}

/// Consecutive source values at one kernel position, or several neighbouring ones in planar maps.
struct Reads {
    /// Position in the frame, relative to an output pixel's.
    at: usize,
    /// Row of the packed part that each value's sum goes to.
    rows: Vec<usize>,
}

struct FilterGradient<'a> {
    isa: Isa,
    shape: &'a ConvShape,
    source: Blocked,
    output: Blocked,
    maps: Maps<'a>,
    dy: &'a [f32],
    layout: PackedLayout,
    frame: Frame,
    reads: Vec<Reads>,
    cut: Cut,
    /// Whether rows follow each other without a gap in source and gradient.
    flat: bool,
}

/// Parts of the filter, for some images.
struct Task<'a> {
    images: Range<usize>,
    inputs: Range<usize>,
    /// (output block, input block, sums).
    parts: Vec<(usize, usize, &'a mut [f32])>,
}

impl<'a> FilterGradient<'a> {
    fn new(isa: Isa, shape: &'a ConvShape, maps: Maps<'a>, dy: &'a [f32]) -> Self {
        let (source, output) = (shape.input(), shape.output());
        let layout = PackedLayout::forward(shape);
        let cut = Cut::new(shape);
        let offsets = shape.tap_offsets();
        let reach = Reach::new([output.h, output.w], shape.stride, &offsets);
        let in_blocks = source.c1().div_ceil(cut.in_chunks);
        let frame = Frame::new(reach, &maps, &source, in_blocks, cut.step[1]);
        let mut taps: Vec<(usize, usize)> =
            offsets.iter().enumerate().map(|(tap, &offset)| (frame.tap(offset), tap)).collect();
        taps.sort_unstable();
        let lanes = layout.lanes();
        let pitch = maps.pixel_pitch(&source).elements();
        let mut reads: Vec<Reads> = Vec::new();
        for (at, tap) in taps {
            let rows = (0..lanes).map(|i| (tap * lanes + i) * C0);
            match reads.last_mut() {
                // Neighbouring pixels without a gap between their channels.
                Some(last) if lanes == pitch && pitch < C0 && last.at + last.rows.len() == at => {
                    last.rows.extend(rows);
                }
                _ => reads.push(Reads { at, rows: rows.collect() }),
            }
        }
        let flat = frame.direct && shape.taps() == 1 && shape.stride == [1, 1] && output.w == source.w;
        Self { isa, shape, source, output, maps, dy, layout, frame, reads, cut, flat }
    }

    fn tasks<'d>(&self, workspace: &'d mut [f32], dw: &'d mut [f32]) -> Vec<Task<'d>> {
        let cut = &self.cut;
        let in_side = self.source.c1().div_ceil(cut.in_chunks);
        let pairs = self.output.c1().div_ceil(2);
        let mut tasks = Vec::new();
        let len = dw.len();
        for (chunk, filter) in std::iter::once(dw).chain(workspace.chunks_exact_mut(len)).enumerate() {
            let start = tasks.len();
            for _ in 0..cut.out_chunks {
                for input in 0..cut.in_chunks {
                    tasks.push(Task {
                        images: piece(self.source.n, cut.image_chunks, chunk),
                        inputs: input * in_side..((input + 1) * in_side).min(self.source.c1()),
                        parts: Vec::new(),
                    });
                }
            }
            let mut parts = filter.chunks_exact_mut(self.layout.part_len());
            for (column, pairs) in pieces(pairs, cut.out_chunks).enumerate() {
                for out in pairs.start * 2..(pairs.end * 2).min(self.output.c1()) {
                    for input in self.layout.sources(out) {
                        let task = &mut tasks[start + column * cut.in_chunks + input / in_side];
                        if let Some(part) = parts.next() {
                            task.parts.push((out, input, part));
                        }
                    }
                }
            }
        }
        tasks.retain(|task| !task.parts.is_empty());
        tasks
    }

    fn task(&self, mut task: Task<'_>, scratch: &mut AlignedBuf) {
        for (_, _, part) in &mut task.parts {
            part.fill(0.0);
        }
        // Output blocks that see an input block lie side by side, to be worked on together.
        task.parts.sort_unstable_by_key(|&(out, input, _)| (input, out));
        let [step_images, step_rows] = self.cut.step;
        for first_image in task.images.clone().step_by(step_images) {
            let images = first_image..(first_image + step_images).min(task.images.end);
            for first_row in (0..self.output.h).step_by(step_rows) {
                let rows = first_row..(first_row + step_rows).min(self.output.h);
                self.step(&mut task, images.clone(), rows, scratch);
            }
        }
        for (out, input, part) in &mut task.parts {
            self.layout.clear_unconnected(self.shape, *out, *input, part);
        }
    }

    /// Adds the products of some rows of some images to all parts of a task.
    fn step(&self, task: &mut Task<'_>, images: Range<usize>, rows: Range<usize>, scratch: &mut AlignedBuf) {
        let frame = &self.frame;
        if !frame.direct {
            scratch.grow(images.len() * frame.image_pitch);
            for (image, part) in images.clone().zip(scratch.chunks_mut(frame.image_pitch)) {
                frame.copy(&self.maps, &self.source, image, task.inputs.clone(), rows.clone(), part);
            }
        }
        let (data, first_block) = match self.maps {
            Maps::Blocked(data) if frame.direct => (data, 0),
            _ => (&**scratch, task.inputs.start),
        };
        let groups = self.groups(images, rows);
        let together = blocks_together(self.isa);
        for parts in task.parts.chunk_by_mut(|a, b| a.1 == b.1) {
            let input = parts[0].1;
            let source = &data[(input - first_block) * frame.block_pitch..];
            for segments in &groups {
                for parts in parts.chunks_mut(together) {
                    self.parts(parts, source, self.source.lanes(input), segments);
                }
            }
        }
    }

    /// Adds the products of a group of segments to one or two parts of the same input block.
    fn parts(&self, parts: &mut [(usize, usize, &mut [f32])], source: &[f32], lanes: usize, segments: &Segments) {
        let mut gradients = [&self.dy[..0]; 2];
        for (slot, (out, _, _)) in gradients.iter_mut().zip(&*parts) {
            *slot = &self.dy[out * self.output.plane_len()..];
        }
        let gradients = &gradients[..parts.len()];
        let widest = widest(self.isa, parts.len());
        for read in &self.reads {
            let count = if read.rows.len() == self.layout.lanes() { lanes } else { read.rows.len() };
            for values in pieces(count, count.div_ceil(widest)) {
                let source = &source[read.at + values.start..];
                let rows = &read.rows[values];
                match &mut *parts {
                    [a, b] => run(self.isa, source, gradients, segments, rows, &mut [a.2, b.2]),
                    [a] => run(self.isa, source, gradients, segments, rows, &mut [a.2]),
                    _ => {}
                }
            }
        }
    }

    /// The runs of pixels of some rows of some images, in groups of about [`GROUP_PIXELS`].
    fn groups(&self, images: Range<usize>, rows: Range<usize>) -> Vec<Segments> {
        let first_image = images.start;
        let (width, mut groups, mut list, mut pixels) = (self.output.w, Vec::new(), Vec::new(), 0);
        let pixel_pitch = self.maps.pixel_pitch(&self.source);
        for image in images {
            let source = if self.frame.direct { image } else { image - first_image } * self.frame.image_pitch;
            let gradient = image * self.output.image_len();
            let (run_rows, len) =
                if self.flat { (rows.start..rows.start + 1, rows.len() * width) } else { (rows.clone(), width) };
            for row in run_rows {
                let source = source + self.frame.row(rows.start, row);
                let gradient = gradient + row * width * C0;
                for pixel in pieces(len, len.div_ceil(GROUP_PIXELS)) {
                    if pixels + pixel.len() > GROUP_PIXELS && pixels > 0 {
                        groups.push(Segments::new(std::mem::take(&mut list), pixel_pitch));
                        pixels = 0;
                    }
                    pixels += pixel.len();
                    list.push(Segment {
                        source: source + pixel.start * pixel_pitch.elements(),
                        gradient: gradient + pixel.start * C0,
                        len: pixel.len(),
                    });
                }
            }
        }
        groups.push(Segments::new(list, pixel_pitch));
        groups
    }
}

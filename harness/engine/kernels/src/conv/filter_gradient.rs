//! The gradient of a convolution with respect to its weights (Conv2DBackpropFilter).
//!
//! Work is cut into tasks of some output blocks, some input blocks and, where the filter is small, some of the images;
//! the sums of the images' tasks are then added in the order of the images. Within a task, sums over about
//! [`GROUP_PIXELS`] pixels are formed in registers and added to the task's filter: two levels of summation, which
//! keeps rounding errors small.

use super::frame::{Frame, Maps, Reach};
use super::weights::PackedLayout;
use super::{ConvShape, Way, depthwise, packed_len, tiles, way, winograd};
use crate::aligned::AlignedBuf;
use crate::blocked::{Blocked, C0};
use crate::half::HalfType;
use crate::isa::Isa;
use crate::micro::filter::{Rows, Segment, Segments, Sink, Update, run, widest};
use crate::micro::vectors_together;
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
const TASKS: usize = 16;

thread_local! {
    static FRAME: RefCell<AlignedBuf> = RefCell::default();
}

/// How a filter gradient is cut into tasks: depends on the shape only, since the order of sums does.
struct Cut {
    out_chunks: usize,
    in_chunks: usize,
    /// Images and output rows of a step.
    step: [usize; 2],
    row_chunks: usize,
    /// Steps through all images and rows.
    steps: usize,
    /// Pieces that the steps are divided into.
    step_chunks: usize,
}

impl Cut {
    fn new(shape: &ConvShape) -> Self {
        let (input, output) = (shape.input(), shape.output());
        let layout = PackedLayout::forward(shape);
        // Slices of the filter that are about square, in pairs of output blocks.
        let parts = (FILTER_LEN / layout.part_len()).max(4);
        let (mut out_chunks, mut in_chunks) = (1, 1);
        if output.c1() * input.c1() > parts {
            out_chunks = output.c1().div_ceil(parts.isqrt().next_multiple_of(2));
            in_chunks = input.c1().div_ceil((parts / output.c1().div_ceil(out_chunks)).max(1));
        }
        let in_row = input.c1().div_ceil(in_chunks) * shape.stride[0] * input.w * C0;
        let out_row = output.c1().div_ceil(out_chunks) * output.w * C0;
        let rows = (STEP_LEN / (in_row + out_row)).clamp(1, output.h);
        let row_chunks = output.h.div_ceil(rows);
        let rows = output.h.div_ceil(row_chunks);
        // Adding up the sums of steps has to stay cheap next to reading the maps.
        let cheap = 1 + (input.len() + output.len()) / (4 * layout.len());
        let wanted = TASKS.div_ceil(out_chunks * in_chunks).min(cheap);
        let images = (STEP_LEN / (rows * (in_row + out_row))).clamp(1, shape.n.div_ceil(wanted));
        let images = if row_chunks > 1 { 1 } else { images };
        let steps = shape.n.div_ceil(images) * row_chunks;
        let step_chunks = wanted.min(steps);
        out_chunks = TASKS.div_ceil(in_chunks * step_chunks).clamp(out_chunks, output.c1().div_ceil(2).max(out_chunks));
        Self { out_chunks, in_chunks, step: [images, rows], row_chunks, steps, step_chunks }
    }
}

/// Elements of the workspace of [`filter_gradient`].
#[must_use]
pub fn filter_workspace_len(isa: Isa, shape: &ConvShape, operands: Option<HalfType>) -> usize {
    if shape.is_depthwise() {
        return 0;
    }
    let sums = match way(isa, shape, operands) {
        Way::Tiles(_, parts) => tiles::filter_sums(shape, parts),
        Way::Winograd => winograd::filter_sums(shape),
        Way::Direct => Cut::new(shape).step_chunks,
    };
    (sums - 1) * packed_len(shape)
}

/// `dw[o, c, a, b] = sum over n, i, j of dy[n, o, i, j] * x[n, c, i * s0 + a * d0 - top, j * s1 + b * d1 - left]`,
/// packed as [`super::pack_weights`] does; dy in the layout NC1HWC0.
///
/// `operands` is the format of all elements of x and dy, if it is not f32: tiles multiply them faster then. `workspace`
/// has [`filter_workspace_len`] elements.
///
/// # Panics
/// If a slice has not the length that the shape calls for.
pub fn filter_gradient(
    isa: Isa,
    shape: &ConvShape,
    operands: Option<HalfType>,
    x: Maps<'_>,
    dy: &[f32],
    workspace: &mut [f32],
    dw: &mut [f32],
) {
    assert_eq!(dy.len(), shape.output().len(), "output gradient");
    assert_eq!(dw.len(), packed_len(shape), "filter gradient");
    assert_eq!(workspace.len(), filter_workspace_len(isa, shape, operands), "workspace");
    x.check(&shape.input());
    if shape.is_depthwise() {
        depthwise::filter_gradient(isa, shape, x, dy, dw);
        return;
    }
    match (way(isa, shape, operands), x.blocked()) {
        (Way::Tiles(amx, parts), Some(x)) => tiles::filter_gradient(isa, amx, parts, shape, x, dy, workspace, dw),
        (Way::Winograd, Some(x)) => winograd::filter_gradient(isa, shape, x, dy, workspace, dw),
        (Way::Direct, _) | (Way::Tiles(..) | Way::Winograd, None) => {
            let gradient = FilterGradient::new(isa, shape, x, dy);
            let tasks = gradient.tasks(workspace, dw);
            tasks.into_par_iter().with_max_len(1).for_each(|task| {
                FRAME.with_borrow_mut(|scratch| gradient.task(task, scratch));
            });
        }
    }
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
    /// Rows of the packed part that the values' sums go to.
    rows: Rows,
}

/// Reads of all kernel elements, `lanes` channels each, in pieces of at most `widest` values.
fn reads(
    frame: &Frame,
    offsets: &[[isize; 2]],
    lanes: usize,
    packed_lanes: usize,
    pitch: usize,
    widest: usize,
) -> Vec<Reads> {
    if widest == 0 {
        return Vec::new();
    }
    let mut taps: Vec<_> = offsets.iter().enumerate().map(|(tap, &offset)| (frame.tap(offset), tap)).collect();
    taps.sort_unstable();
    // Of pixels without a gap between their channels, neighbours join.
    let joined = taps.chunk_by(|a, b| lanes == pitch && pitch < C0 && a.0 + pitch == b.0);
    let mut reads = Vec::new();
    for taps in joined {
        let rows: Vec<usize> =
            taps.iter().flat_map(|(_, tap)| (0..lanes).map(move |i| (tap * packed_lanes + i) * C0)).collect();
        for piece in pieces(rows.len(), rows.len().div_ceil(widest)) {
            reads.push(Reads { at: taps[0].0 + piece.start, rows: Rows::new(rows[piece].to_vec()) });
        }
    }
    reads
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
    /// Most output blocks that are worked on together.
    together: usize,
    /// Of an input block that is not the last, and of the last: for one and for two output blocks together.
    reads: [[Vec<Reads>; 2]; 2],
    cut: Cut,
    /// Whether rows follow each other without a gap in source and gradient.
    flat: bool,
}

/// Parts of the filter, for some steps.
struct Task<'a> {
    steps: Range<usize>,
    inputs: Range<usize>,
    pairs: Vec<Pair<'a>>,
}

/// The parts of one or two output blocks that see the same input blocks.
struct Pair<'a> {
    out: usize,
    inputs: Range<usize>,
    /// The parts of each output block, one after the other.
    filters: Vec<&'a mut [f32]>,
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
        let together = vectors_together(isa);
        let lanes = [layout.lanes(), source.lanes(source.c1() - 1)];
        let pitch = maps.pixel_pitch(&source).elements();
        let reads = lanes.map(|lanes| {
            [1, 2].map(|blocks| reads(&frame, &offsets, lanes, layout.lanes(), pitch, widest(isa, blocks)))
        });
        let flat = frame.direct && shape.taps() == 1 && shape.stride == [1, 1] && output.w == source.w;
        Self { isa, shape, source, output, maps, dy, layout, frame, together, reads, cut, flat }
    }

    fn tasks<'d>(&self, workspace: &'d mut [f32], dw: &'d mut [f32]) -> Vec<Task<'d>> {
        let cut = &self.cut;
        let (in_blocks, out_blocks) = (self.source.c1(), self.output.c1());
        let mut tasks = Vec::new();
        let len = dw.len();
        for (chunk, filter) in std::iter::once(dw).chain(workspace.chunks_exact_mut(len)).enumerate() {
            let mut rest = filter;
            for outs in pieces(out_blocks.div_ceil(2), cut.out_chunks) {
                let start = tasks.len();
                tasks.extend(pieces(in_blocks, cut.in_chunks).map(|inputs| Task {
                    steps: piece(cut.steps, cut.step_chunks, chunk),
                    inputs,
                    pairs: Vec::new(),
                }));
                for out in outs.start * 2..(outs.end * 2).min(out_blocks) {
                    let seen = self.layout.sources(out);
                    for task in &mut tasks[start..] {
                        let inputs = task.inputs.start.max(seen.start)..task.inputs.end.min(seen.end);
                        if inputs.is_empty() {
                            continue;
                        }
                        let part;
                        (part, rest) = rest.split_at_mut(inputs.len() * self.layout.part_len());
                        match task.pairs.last_mut() {
                            Some(pair) if pair.inputs == inputs && pair.filters.len() < self.together => {
                                pair.filters.push(part);
                            }
                            _ => task.pairs.push(Pair { out, inputs, filters: vec![part] }),
                        }
                    }
                }
            }
        }
        tasks.retain(|task| !task.pairs.is_empty());
        tasks
    }

    fn task(&self, mut task: Task<'_>, scratch: &mut AlignedBuf) {
        if self.source.lanes(self.source.c1() - 1) < self.layout.lanes() {
            // Rows beyond the last input channel are not visited.
            task.pairs.iter_mut().for_each(|pair| pair.filters.iter_mut().for_each(|filter| filter.fill(0.0)));
        }
        let [step_images, step_rows] = self.cut.step;
        for step in task.steps.clone() {
            let (image, row) = (step / self.cut.row_chunks * step_images, step % self.cut.row_chunks * step_rows);
            let images = image..(image + step_images).min(self.source.n);
            let rows = row..(row + step_rows).min(self.output.h);
            let first = step == task.steps.start;
            self.step(&mut task, images, rows, first, scratch);
        }
        for pair in task.pairs {
            for (out, filter) in (pair.out..).zip(pair.filters) {
                for (input, part) in pair.inputs.clone().zip(filter.chunks_exact_mut(self.layout.part_len())) {
                    self.layout.clear_unconnected(self.shape, out, input, part);
                }
            }
        }
    }

    /// Adds the products of some rows of some images to all parts of a task, or stores them if it is the first step.
    fn step(
        &self,
        task: &mut Task<'_>,
        images: Range<usize>,
        rows: Range<usize>,
        first: bool,
        scratch: &mut AlignedBuf,
    ) {
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
        let (last, part_len) = (self.source.c1() - 1, self.layout.part_len());
        for (group, segments) in self.groups(images, rows).iter().enumerate() {
            let update = if first && group == 0 { Update::Store } else { Update::Add };
            for pair in &mut task.pairs {
                let blocks = pair.filters.len();
                let mut gradients = [&self.dy[..0]; 2];
                for (slot, out) in gradients.iter_mut().zip(pair.out..) {
                    *slot = &self.dy[out * self.output.plane_len()..];
                }
                for (part, input) in pair.inputs.clone().enumerate() {
                    let source = &data[(input - first_block) * frame.block_pitch..];
                    for read in &self.reads[usize::from(input == last)][blocks - 1] {
                        let sink = Sink { filters: &mut pair.filters, at: part * part_len, update };
                        run(self.isa, &source[read.at..], &gradients[..blocks], segments, &read.rows, sink);
                    }
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
                let source = source + self.frame.row(rows.start) + (row - rows.start) * self.frame.row_step();
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

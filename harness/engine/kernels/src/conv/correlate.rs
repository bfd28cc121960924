//! The machinery that forward convolution and input gradient share: a correlation of source maps with packed
//! weights, cut into tasks, each of which copies the frame it needs (see [`super::frame`]) and computes runs of pixels
//! with the micro-kernel.

use super::frame::{Frame, Maps, Reach};
use super::weights::PackedLayout;
use crate::aligned::AlignedBuf;
use crate::blocked::{Blocked, C0};
use crate::half::Rounding;
use crate::isa::Isa;
use crate::micro::correlate::{Channels, Finish, MAX_BLOCKS, Moments, Sink, Source, Taps, Weights, run};
use crate::parallel::{piece, pieces};
use rayon::prelude::*;
use std::cell::RefCell;
use std::ops::Range;

/// Elements of a task's frame, so that it stays in the second-level cache.
const FRAME_LEN: usize = 160 << 10;

/// Elements of weights that are worked with at a time, so that they stay in the first-level cache.
pub(super) const WEIGHTS_LEN: usize = 8 << 10;

/// Tasks per thread that let threads finish at about the same time.
pub(super) const TASKS_PER_THREAD: usize = 4;

thread_local! {
    static FRAME: RefCell<AlignedBuf> = RefCell::default();
}

/// Outputs at `origin + step * (row, column)` of the destination, with the taps that reach them.
pub(crate) struct Grid {
    pub(crate) outputs: [usize; 2],
    pub(crate) origin: [usize; 2],
    /// Source offset of each tap, and which kernel element it is.
    pub(crate) taps: Vec<([isize; 2], usize)>,
}

/// A correlation of source maps with packed weights.
pub(crate) struct Correlation<'a> {
    pub(crate) isa: Isa,
    /// Whether a destination channel is the sum of products of one source channel.
    pub(crate) depthwise: bool,
    pub(crate) maps: Maps<'a>,
    pub(crate) source: Blocked,
    /// Source rows and columns between neighbouring outputs of a grid.
    pub(crate) source_step: [usize; 2],
    pub(crate) grids: Vec<Grid>,
    pub(crate) layout: PackedLayout,
    pub(crate) weights: &'a [f32],
    pub(crate) dest: Blocked,
    /// Destination rows and columns between neighbouring outputs of a grid.
    pub(crate) dest_step: [usize; 2],
    /// Per destination channel, padded to whole blocks.
    pub(crate) bias: Option<&'a [[f32; C0]]>,
    pub(crate) relu: bool,
    /// How a simulated device holds the destination.
    pub(crate) rounding: Option<&'a Rounding>,
}

/// How a correlation is cut into tasks: images x rows x destination blocks.
pub(super) struct Cut {
    pub(super) images: usize,
    pub(super) image_chunks: usize,
    pub(super) row_chunks: usize,
    pub(super) rows: usize,
    pub(super) block_chunks: usize,
}

pub(super) struct Task<'a> {
    pub(super) images: Range<usize>,
    /// Those of the last task may end beyond the map.
    pub(super) rows: Range<usize>,
    pub(super) blocks: Range<usize>,
    /// The task's rows of each of its images and blocks, in that order.
    pub(super) planes: Vec<&'a mut [f32]>,
}

impl Cut {
    /// The tasks, with their parts of the destination: `step` rows of it for each row of the cut.
    pub(super) fn tasks<'d>(&self, extent: &Blocked, step: usize, dest: &'d mut [f32]) -> Vec<Task<'d>> {
        let c1 = extent.c1();
        let pairs = c1.div_ceil(MAX_BLOCKS);
        let mut tasks = Vec::with_capacity(self.image_chunks * self.row_chunks * self.block_chunks);
        for image in 0..self.image_chunks {
            for row in 0..self.row_chunks {
                for block in 0..self.block_chunks {
                    let pairs = piece(pairs, self.block_chunks, block);
                    tasks.push(Task {
                        images: image * self.images..((image + 1) * self.images).min(extent.n),
                        rows: row * self.rows..(row + 1) * self.rows,
                        blocks: pairs.start * MAX_BLOCKS..(pairs.end * MAX_BLOCKS).min(c1),
                        planes: Vec::with_capacity(self.images * pairs.len() * MAX_BLOCKS),
                    });
                }
            }
        }
        let chunk_len = self.rows * step * extent.w * C0;
        for (index, plane) in dest.chunks_exact_mut(extent.plane_len()).enumerate() {
            let (image, block) = (index / c1, index % c1);
            let column = (0..self.block_chunks).find(|&i| tasks[i].blocks.contains(&block)).unwrap_or(0);
            for (row, part) in plane.chunks_mut(chunk_len).enumerate().take(self.row_chunks) {
                tasks[(image / self.images * self.row_chunks + row) * self.block_chunks + column].planes.push(part);
            }
        }
        tasks
    }
}

impl Correlation<'_> {
    /// Computes the destination; with `moments`, also the moments of each destination block in every chunk of images
    /// and rows, as `[chunk][block]`.
    pub(crate) fn compute(&self, dest: &mut [f32], moments: bool) -> Vec<Vec<Moments>> {
        assert_eq!(dest.len(), self.dest.len(), "destination");
        assert_eq!(self.weights.len(), self.layout.len(), "weights");
        self.maps.check(&self.source);
        if let Some(moments) = self.compute_across_images(dest, moments) {
            return moments;
        }
        let offsets: Vec<[isize; 2]> = self.grids.iter().flat_map(|g| g.taps.iter().map(|t| t.0)).collect();
        let outputs = [0, 1].map(|axis| self.grids.iter().map(|g| g.outputs[axis]).max().unwrap_or(0));
        let reach = Reach::new(outputs, self.source_step, &offsets);
        let cut = self.cut(&reach);
        let frame = Frame::new(reach, &self.maps, &self.source, self.source.c1(), cut.rows);
        let taps: Vec<Taps> = self
            .grids
            .iter()
            .map(|g| Taps::new(g.taps.iter().map(|&(at, tap)| (frame.tap(at), tap * self.layout.tap_len()))))
            .collect();
        let tasks = cut.tasks(&self.dest, self.dest_step[0], dest);
        let parts: Vec<Vec<Moments>> = tasks
            .into_par_iter()
            .with_max_len(1)
            .map(|task| FRAME.with_borrow_mut(|scratch| self.task(task, &frame, &taps, scratch, moments)))
            .collect();
        if !moments {
            return Vec::new();
        }
        parts.chunks(cut.block_chunks).map(|chunk| chunk.concat()).collect()
    }

    /// Cuts the work such that a frame stays in the second-level cache and all threads are busy. How images and rows
    /// are cut depends on the shape only, since the order of moments does. Blocks are cut between pairs.
    fn cut(&self, reach: &Reach) -> Cut {
        let outputs = reach.outputs;
        let per_row = self.source.c1() * self.source_step[0] * self.source.w * C0;
        let halo = reach.high[0].abs_diff(reach.low[0]) / self.source_step[0];
        let fitting = (FRAME_LEN / per_row).saturating_sub(halo).clamp(1, outputs[0]);
        let row_chunks = outputs[0].div_ceil(fitting);
        let rows = outputs[0].div_ceil(row_chunks);
        let images = if row_chunks > 1 { 1 } else { (FRAME_LEN / (per_row * (rows + halo))).clamp(1, self.source.n) };
        let image_chunks = self.source.n.div_ceil(images);
        let wanted = TASKS_PER_THREAD * rayon::current_num_threads();
        let block_chunks = wanted.div_ceil(image_chunks * row_chunks).min(self.dest.c1().div_ceil(MAX_BLOCKS));
        Cut { images, image_chunks, row_chunks, rows, block_chunks }
    }

    fn task(
        &self,
        mut task: Task<'_>,
        frame: &Frame,
        taps: &[Taps],
        scratch: &mut AlignedBuf,
        moments: bool,
    ) -> Vec<Moments> {
        let first = self.layout.sources(task.blocks.start).start;
        let end = self.layout.sources(task.blocks.end - 1).end;
        if !frame.direct {
            scratch.grow(task.images.len() * frame.image_pitch);
            for (image, part) in task.images.clone().zip(scratch.chunks_mut(frame.image_pitch)) {
                frame.copy(&self.maps, &self.source, image, first..end, task.rows.clone(), part);
            }
        }
        let (data, first) = match self.maps {
            Maps::Blocked(data) if frame.direct => (data, 0),
            _ => (&**scratch, first),
        };
        let mut collected = Vec::new();
        let mut rest = task.blocks.clone();
        while !rest.is_empty() {
            let sources = self.layout.sources(rest.start);
            let blocks = self.together(&rest);
            let together = blocks.len();
            rest.start = blocks.end;
            let mut pair_moments = [Moments::default(); MAX_BLOCKS];
            // Weights that stay in the first-level cache while all pixels of the task pass by.
            let chunks = sources.len().div_ceil((WEIGHTS_LEN / (together * self.layout.part_len())).max(1));
            for (chunk, parts) in pieces(sources.len(), chunks).enumerate() {
                for (index, planes) in task.planes.chunks_mut(task.blocks.len()).enumerate() {
                    let image = if frame.direct { task.images.start + index } else { index };
                    let first_block = sources.start + parts.start - first;
                    let patches = Patches {
                        blocks: blocks.clone(),
                        parts: parts.clone(),
                        data,
                        start: image * frame.image_pitch + first_block * frame.block_pitch,
                        rows: task.rows.clone(),
                        accumulate: chunk > 0,
                        last: chunk + 1 == chunks,
                    };
                    let moments = moments.then_some(&mut pair_moments);
                    let at = blocks.start - task.blocks.start;
                    self.patches(patches, frame, taps, &mut planes[at..at + together], moments);
                }
            }
            if let Some(rounding) = self.rounding {
                for planes in task.planes.chunks_mut(task.blocks.len()) {
                    planes[blocks.start - task.blocks.start..][..together].iter_mut().for_each(|p| rounding.part(p));
                }
            }
            if moments {
                collected.extend_from_slice(&pair_moments[..together]);
            }
        }
        collected
    }

    /// The first blocks of `rest` that are computed together: one, or two that see the same sources. Sums depend on it,
    /// so the numbers of the blocks decide, and not where the work is cut: the first of two has an even number, as has
    /// the first of a task.
    fn together(&self, rest: &Range<usize>) -> Range<usize> {
        let first = rest.start;
        let alike = || self.layout.sources(first) == self.layout.sources(first + 1);
        let two = first.is_multiple_of(MAX_BLOCKS) && rest.len() > 1 && alike();
        first..first + if two { MAX_BLOCKS } else { 1 }
    }

    /// Computes the patches of all grids: pixels of one image and one or two destination blocks of a task.
    fn patches(
        &self,
        job: Patches<'_>,
        frame: &Frame,
        taps: &[Taps],
        planes: &mut [&mut [f32]],
        mut moments: Option<&mut [Moments; MAX_BLOCKS]>,
    ) {
        let bias = self.bias.map(|bias| [bias[job.blocks.start], bias[job.blocks.end - 1]]);
        let part_len = self.layout.part_len();
        let mut weights = [&self.weights[..0]; MAX_BLOCKS];
        for (slot, block) in weights.iter_mut().zip(job.blocks.clone()) {
            *slot = &self.weights[self.layout.elements(block)][job.parts.start * part_len..];
        }
        let weights = if self.depthwise {
            Weights::Depthwise(weights[0])
        } else {
            Weights::Dense { planes: &weights[..job.blocks.len()], pitch: part_len }
        };
        if !job.accumulate && self.grids.iter().any(|grid| grid.taps.is_empty()) {
            planes.iter_mut().for_each(|plane| plane.fill(0.0));
        }
        for (grid, taps) in self.grids.iter().zip(taps) {
            let rows = job.rows.end.min(grid.outputs[0]).saturating_sub(job.rows.start);
            if taps.is_empty() || rows == 0 {
                continue;
            }
            let source = Source {
                data: job.data,
                start: job.start + frame.row(job.rows.start),
                pixel_pitch: self.maps.pixel_pitch(&self.source),
                row_pitch: frame.row_step(),
                block_pitch: frame.block_pitch,
                channels: self.channels(&job),
            };
            let sink = Sink {
                planes: &mut *planes,
                start: (grid.origin[0] * self.dest.w + grid.origin[1]) * C0,
                pixel_pitch: self.dest_step[1] * C0,
                row_pitch: self.dest_step[0] * self.dest.w * C0,
            };
            let finish = Finish {
                accumulate: job.accumulate,
                bias: bias.as_ref().filter(|_| job.last),
                relu: self.relu && job.last,
                moments: moments.as_deref_mut().filter(|_| job.last),
            };
            let extent = if self.is_flat(frame) { [1, rows * grid.outputs[1]] } else { [rows, grid.outputs[1]] };
            run(self.isa, source, taps, weights, sink, extent, finish);
        }
    }

    /// Source channels of a job.
    fn channels(&self, job: &Patches<'_>) -> Channels {
        if self.depthwise {
            return Channels { blocks: 1, full: C0, last: C0 };
        }
        let last = self.source.lanes(self.layout.sources(job.blocks.start).start + job.parts.end - 1);
        let full = if job.parts.len() == 1 { last } else { self.layout.lanes() };
        Channels { blocks: job.parts.len(), full, last }
    }

    /// Whether source pixels and outputs are the same, so that rows join to one run.
    fn is_flat(&self, frame: &Frame) -> bool {
        frame.direct
            && self.source_step == [1, 1]
            && self.dest_step == [1, 1]
            && self.grids.len() == 1
            && self.grids[0].taps.len() == 1
            && self.dest.w == self.source.w
    }
}

/// What is computed in one go: one image and one or two destination blocks of a task, from some source blocks.
struct Patches<'a> {
    blocks: Range<usize>,
    /// Source blocks, counted from the first that the destination blocks see.
    parts: Range<usize>,
    /// The frame, or the source itself.
    data: &'a [f32],
    /// Where the image and the first source block begin.
    start: usize,
    rows: Range<usize>,
    /// Whether sums from other source blocks are there already.
    accumulate: bool,
    /// Whether no source block is left.
    last: bool,
}

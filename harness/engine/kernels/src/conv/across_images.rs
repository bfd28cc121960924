//! Small maps: tiles that run across the images of a batch.
//!
//! On maps of a few pixels a run of output pixels is too short to keep the multipliers busy, and many taps of a padded
//! kernel read nothing but zeros. Here the source is first laid out as `[block][pixel][image][channel]`; a tile is then
//! one output pixel in several images, and each output pixel has only the taps that lie inside the map.

use super::correlate::Correlation;
use super::frame::Maps;
use crate::aligned::AlignedBuf;
use crate::blocked::C0;
use crate::micro::correlate::{Channels, Finish, MAX_BLOCKS, Moments, PixelPitch, Sink, Source, Taps, Weights, run};
use crate::parallel::{piece, pieces};
use rayon::prelude::*;
use std::cell::RefCell;
use std::ops::Range;

/// Fewest images that fill a tile's registers.
const FEWEST_IMAGES: usize = 16;

/// Runs of fewer output pixels than this are slower than tiles across images, with the copies that these need.
const SHORT_RUN: usize = 12;

/// Most output pixels of a map for which the copies pay.
const MOST_PIXELS: usize = 64;

/// Images of a task at least, and tasks that the work is cut into where there are enough images: by shape only, since
/// the order of moments follows.
const TASK_IMAGES: usize = 16;
const TASKS: usize = 16;

thread_local! {
    static SOURCE: RefCell<AlignedBuf> = RefCell::default();
    static RESULT: RefCell<AlignedBuf> = RefCell::default();
}

/// An output pixel and the taps inside the map, as positions in the source's layout.
struct Place {
    pixel: usize,
    taps: Taps,
}

/// One or two destination blocks in some of the images.
struct Task<'a> {
    images: Range<usize>,
    blocks: Range<usize>,
    /// Of each image and block, in that order.
    planes: Vec<&'a mut [f32]>,
}

impl Correlation<'_> {
    /// Whether runs of output pixels are short and there are images to run across instead. A bias would have to reach
    /// outputs without taps as well: convolutions that have one take the other way.
    fn is_across_images(&self) -> bool {
        let one_tap = self.grids.len() == 1 && self.grids[0].taps.len() == 1;
        let same_map = [self.source.h, self.source.w] == [self.dest.h, self.dest.w];
        let run = if one_tap && same_map { self.dest.pixels() } else { self.dest.w.div_ceil(self.dest_step[1]) };
        !self.depthwise
            && self.dest.n >= FEWEST_IMAGES
            && self.dest.pixels() <= MOST_PIXELS
            && run < SHORT_RUN
            && self.bias.is_none()
    }

    /// As [`Correlation::compute`], with moments of each chunk of images; `None` if that is not the way for these maps.
    pub(super) fn compute_across_images(&self, dest: &mut [f32], moments: bool) -> Option<Vec<Vec<Moments>>> {
        let Maps::Blocked(data) = self.maps else { return None };
        if !self.is_across_images() {
            return None;
        }
        let places = self.places();
        // Moments are taken where sums are made.
        if moments && places.iter().any(|place| place.taps.is_empty()) {
            return None;
        }
        // Taken, not borrowed: a thread that waits for its tasks may begin with another convolution.
        let mut source = SOURCE.take();
        self.lay_out(data, &mut source);
        let parts = self
            .images_tasks(dest)
            .into_par_iter()
            .with_max_len(1)
            .map(|task| RESULT.with_borrow_mut(|result| self.across(task, &source, &places, result, moments)));
        let parts: Vec<Vec<Moments>> = parts.collect();
        SOURCE.set(source);
        if !moments {
            return Some(Vec::new());
        }
        Some(parts.chunks(self.dest.c1().div_ceil(MAX_BLOCKS)).map(|chunk| chunk.concat()).collect())
    }

    /// Copies the source maps to `[block][pixel][image][channel]`.
    fn lay_out(&self, data: &[f32], laid_out: &mut AlignedBuf) {
        let extent = &self.source;
        laid_out.grow(extent.len());
        let block_len = extent.n * extent.plane_len();
        laid_out[..extent.len()].par_chunks_exact_mut(block_len).enumerate().for_each(|(block, maps)| {
            for (pixel, run) in maps.chunks_exact_mut(extent.n * C0).enumerate() {
                for (image, lanes) in run.as_chunks_mut::<C0>().0.iter_mut().enumerate() {
                    let at = image * extent.image_len() + block * extent.plane_len() + pixel * C0;
                    lanes.copy_from_slice(&data[at..at + C0]);
                }
            }
        });
    }

    /// The output pixels of all grids. Those that no tap reaches have none.
    fn places(&self) -> Vec<Place> {
        let inside = |at: usize, offset: isize, len: usize| at.checked_add_signed(offset).filter(|at| *at < len);
        let mut places = Vec::with_capacity(self.dest.pixels());
        for grid in &self.grids {
            for row in 0..grid.outputs[0] {
                for column in 0..grid.outputs[1] {
                    let taps = grid.taps.iter().filter_map(|&([dy, dx], tap)| {
                        let y = inside(row * self.source_step[0], dy, self.source.h)?;
                        let x = inside(column * self.source_step[1], dx, self.source.w)?;
                        let pixel = y * self.source.w + x;
                        Some((pixel * self.source.n * C0, tap * self.layout.tap_len()))
                    });
                    let y = grid.origin[0] + row * self.dest_step[0];
                    let x = grid.origin[1] + column * self.dest_step[1];
                    places.push(Place { pixel: y * self.dest.w + x, taps: Taps::new(taps) });
                }
            }
        }
        places
    }

    fn images_tasks<'d>(&self, dest: &'d mut [f32]) -> Vec<Task<'d>> {
        let (images, c1) = (self.dest.n, self.dest.c1());
        let pairs = c1.div_ceil(MAX_BLOCKS);
        let chunks = TASKS.div_ceil(pairs).min(images / TASK_IMAGES).max(1);
        let mut tasks: Vec<Task<'_>> = (0..chunks * pairs)
            .map(|task| {
                let first = task % pairs * MAX_BLOCKS;
                let blocks = first..(first + MAX_BLOCKS).min(c1);
                Task { images: piece(images, chunks, task / pairs), blocks, planes: Vec::new() }
            })
            .collect();
        let mut chunk = 0;
        for (index, plane) in dest.chunks_exact_mut(self.dest.plane_len()).enumerate() {
            let (image, block) = (index / c1, index % c1);
            if image >= tasks[chunk * pairs].images.end {
                chunk += 1;
            }
            tasks[chunk * pairs + block / MAX_BLOCKS].planes.push(plane);
        }
        tasks
    }

    /// Computes a task; returns the moments of its blocks.
    fn across(
        &self,
        mut task: Task<'_>,
        source: &[f32],
        places: &[Place],
        result: &mut AlignedBuf,
        moments: bool,
    ) -> Vec<Moments> {
        let (images, pixels) = (task.images.len(), self.dest.pixels());
        let plane = pixels * images * C0;
        result.grow(MAX_BLOCKS * plane);
        let mut collected = vec![Moments::default(); MAX_BLOCKS];
        // Blocks that see other sources (groups) are computed one after the other.
        let alike = self.layout.sources(task.blocks.start) == self.layout.sources(task.blocks.end - 1);
        let together = if alike { task.blocks.len() } else { 1 };
        for first in task.blocks.clone().step_by(together) {
            let at = first - task.blocks.start;
            let mut planes: Vec<&mut [f32]> = result[..together * plane].chunks_exact_mut(plane).collect();
            let mut own = [Moments::default(); MAX_BLOCKS];
            self.blocks(
                first..first + together,
                &task.images,
                source,
                places,
                &mut planes,
                moments.then_some(&mut own),
            );
            collected[at..at + together].copy_from_slice(&own[..together]);
            for (image, dest) in task.planes.chunks_exact_mut(task.blocks.len()).enumerate() {
                for (plane, dest) in planes.iter().zip(&mut dest[at..at + together]) {
                    for (pixel, lanes) in dest.as_chunks_mut::<C0>().0.iter_mut().enumerate() {
                        let from = (pixel * images + image) * C0;
                        lanes.copy_from_slice(&plane[from..from + C0]);
                    }
                    if let Some(rounding) = self.rounding {
                        rounding.part(dest);
                    }
                }
            }
        }
        collected.truncate(task.blocks.len());
        collected
    }

    /// Computes all output pixels of one or two blocks, in the layout `[pixel][image][channel]`.
    fn blocks(
        &self,
        blocks: Range<usize>,
        images: &Range<usize>,
        source: &[f32],
        places: &[Place],
        planes: &mut [&mut [f32]],
        mut moments: Option<&mut [Moments; MAX_BLOCKS]>,
    ) {
        let sources = self.layout.sources(blocks.start);
        let part_len = self.layout.part_len();
        let block_pitch = self.source.n * self.source.plane_len();
        let chunks = sources.len().div_ceil((super::correlate::WEIGHTS_LEN / (blocks.len() * part_len)).max(1));
        for (chunk, parts) in pieces(sources.len(), chunks).enumerate() {
            let mut weights = [&self.weights[..0]; MAX_BLOCKS];
            for (slot, block) in weights.iter_mut().zip(blocks.clone()) {
                *slot = &self.weights[self.layout.elements(block)][parts.start * part_len..];
            }
            let last = self.source.lanes(sources.start + parts.end - 1);
            let full = if parts.len() == 1 { last } else { self.layout.lanes() };
            for place in places {
                let start = place.pixel * images.len() * C0;
                if place.taps.is_empty() {
                    planes.iter_mut().for_each(|plane| plane[start..start + images.len() * C0].fill(0.0));
                    continue;
                }
                let from = Source {
                    data: source,
                    start: (sources.start + parts.start) * block_pitch + images.start * C0,
                    pixel_pitch: PixelPitch::Sixteen,
                    row_pitch: 0,
                    block_pitch,
                    channels: Channels { blocks: parts.len(), full, last },
                };
                let weights = Weights::Dense { planes: &weights[..blocks.len()], pitch: part_len };
                let sink = Sink { planes: &mut *planes, start, pixel_pitch: C0, row_pitch: 0 };
                let is_last = chunk + 1 == chunks;
                let finish = Finish {
                    accumulate: chunk > 0,
                    bias: None,
                    relu: self.relu && is_last,
                    moments: moments.as_deref_mut().filter(|_| is_last),
                };
                run(self.isa, from, &place.taps, weights, sink, [1, images.len()], finish);
            }
        }
    }
}

//! Positions: the output pixels of some images and rows, and the source pixels that their windows read.
//!
//! Source rows and columns are divided into phases modulo the step, so that a kernel element reads consecutive pixels of
//! one phase: `[row phase][column phase][image][row][column]`. Rows are as long as outputs and margin together.

use crate::blocked::{Blocked, C0};
use crate::conv::frame::Reach;
use std::ops::Range;

/// A position without a pixel: it is in the margin.
const NONE: u32 = u32::MAX;

/// Where each of some positions finds its pixel, from the first element of the maps' first block of channels.
pub(super) struct Pixels(Vec<u32>);

impl Pixels {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The pixel at `position` of the maps from the start of a block of channels on; zeros if there is none.
    #[inline(always)]
    pub(super) fn of<'a>(&self, position: usize, maps: &'a [f32]) -> &'a [f32; C0] {
        const ZERO: &[f32; C0] = &[0.0; C0];
        let at = self.0.get(position).copied().unwrap_or(NONE);
        maps.get(at as usize..).and_then(|rest| rest.first_chunk()).unwrap_or(ZERO)
    }
}

/// The positions of some images and output rows.
pub(super) struct Positions<'a> {
    reach: &'a Reach,
    source: &'a Blocked,
    images: Range<usize>,
    outputs: Range<usize>,
    /// Rows and columns of a phase.
    extent: [usize; 2],
}

impl<'a> Positions<'a> {
    pub(super) fn new(reach: &'a Reach, source: &'a Blocked, images: Range<usize>, outputs: Range<usize>) -> Self {
        let margin = reach.margin();
        let extent = [outputs.len() + margin[0], reach.outputs[1] + margin[1]];
        Self { reach, source, images, outputs, extent }
    }

    /// Positions of a row.
    pub(super) fn width(&self) -> usize {
        self.extent[1]
    }

    /// Positions of all phases.
    pub(super) fn len(&self) -> usize {
        self.reach.phases().iter().product::<usize>() * self.phase_len()
    }

    fn phase_len(&self) -> usize {
        self.images.len() * self.extent[0] * self.extent[1]
    }

    /// The source pixels of all positions.
    pub(super) fn sources(&self) -> Pixels {
        let [rows, columns] = [0, 1].map(|axis| {
            let (first, len) = [(self.outputs.start, self.source.h), (0, self.source.w)][axis];
            let place = move |(phase, at): (isize, usize)| {
                usize::try_from(((first + at) * self.reach.step[axis]).cast_signed() + phase)
                    .ok()
                    .filter(|at| *at < len)
            };
            let phases = self.reach.phase_offsets(axis);
            phases.map(|phase| (0..self.extent[axis]).map(|at| place((phase, at))).collect()).collect::<Vec<Vec<_>>>()
        });
        let mut pixels = Vec::with_capacity(self.len());
        for (rows, columns) in rows.iter().flat_map(|rows| columns.iter().map(move |columns| (rows, columns))) {
            for image in self.images.clone() {
                for row in rows {
                    let at = |column: usize| row.map(|row| self.pixel(self.source, image, row, column));
                    pixels.extend(columns.iter().map(|column| column.and_then(at).unwrap_or(NONE)));
                }
            }
        }
        Pixels(pixels)
    }

    /// The pixels of the outputs at the positions of the given runs, each filled up to a multiple of `unit`.
    pub(super) fn results(&self, output: &Blocked, runs: &[Range<usize>], unit: usize) -> Pixels {
        let pixel = |position: usize| {
            let (row, column) = (position / self.extent[1], position % self.extent[1]);
            let (image, row) = (self.images.start + row / self.extent[0], self.outputs.start + row % self.extent[0]);
            if column < output.w && row < self.outputs.end { self.pixel(output, image, row, column) } else { NONE }
        };
        let filled = |run: &Range<usize>| {
            let filling = run.len().next_multiple_of(unit) - run.len();
            run.clone().map(pixel).chain(std::iter::repeat_n(NONE, filling))
        };
        Pixels(runs.iter().flat_map(filled).collect())
    }

    /// A pixel's place, of block 0. Maps are of less than 2^32 elements here ([`fits`]).
    fn pixel(&self, maps: &Blocked, image: usize, row: usize, column: usize) -> u32 {
        (image * maps.image_len() + (row * maps.w + column) * C0) as u32
    }

    /// Where a kernel element finds the pixel of position 0.
    pub(super) fn tap(&self, offset: [isize; 2]) -> usize {
        let [(row_phase, row), (column_phase, column)] = self.reach.place(offset);
        let phase = row_phase * self.reach.phases()[1] + column_phase;
        phase * self.phase_len() + row * self.extent[1] + column
    }

    /// The positions of `outputs` rows and columns of each image, one run for each: or one for all, if there is no
    /// margin between them.
    pub(super) fn runs(&self, outputs: [usize; 2]) -> Vec<Range<usize>> {
        let (images, image_len) = (self.images.len(), self.extent[0] * self.extent[1]);
        let (count, len) = if outputs == self.extent {
            (1, images * image_len)
        } else {
            (images, (outputs[0] - 1) * self.extent[1] + outputs[1])
        };
        (0..count).map(|run| run * image_len..run * image_len + len).collect()
    }
}

/// Whether the elements of the maps can be numbered.
pub(super) fn fits(maps: &Blocked) -> bool {
    u32::try_from(maps.len()).is_ok()
}

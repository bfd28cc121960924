//! A frame: the part of the source maps that a task needs, with its zero margin, laid out so that every tap of a run
//! of output pixels reads consecutive pixels.
//!
//! Layout: `[image][block][row][column phase][column / step][channel]`. Columns are split into phases modulo the
//! column step, so a convolution of any stride walks through a phase pixel by pixel.

use crate::blocked::{Blocked, C0};
use crate::micro::correlate::PixelPitch;
use std::ops::Range;

/// Maps that a convolution reads.
#[derive(Clone, Copy, Debug)]
pub enum Maps<'a> {
    /// NC1HWC0.
    Blocked(&'a [f32]),
    /// NCHW with at most [`Maps::MAX_PLANAR`] channels: images, as the input pipeline delivers them.
    Planar(&'a [f32]),
}

impl<'a> Maps<'a> {
    /// Most channels that planar maps may have.
    pub const MAX_PLANAR: usize = C0;

    /// The elements, if they are blocked.
    pub(crate) fn blocked(&self) -> Option<&'a [f32]> {
        match self {
            Self::Blocked(data) => Some(data),
            Self::Planar(_) => None,
        }
    }

    pub(crate) fn check(&self, extent: &Blocked) {
        match self {
            Self::Blocked(data) => assert_eq!(data.len(), extent.len(), "blocked maps"),
            Self::Planar(data) => {
                assert!(extent.c <= Self::MAX_PLANAR, "{} channels are too many for planar maps", extent.c);
                assert_eq!(data.len(), extent.n * extent.c * extent.pixels(), "planar maps");
            }
        }
    }

    pub(crate) fn pixel_pitch(&self, extent: &Blocked) -> PixelPitch {
        match self {
            Self::Planar(_) if extent.c == 3 => PixelPitch::Three,
            Self::Blocked(_) | Self::Planar(_) => PixelPitch::Sixteen,
        }
    }
}

/// Offsets of source pixels, relative to an output pixel's position times the step, that some tap reads.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    /// Output rows and columns.
    pub(crate) outputs: [usize; 2],
    /// Source rows and columns between neighbouring outputs.
    pub(crate) step: [usize; 2],
    /// Smallest offset, in rows and columns.
    pub(crate) low: [isize; 2],
    /// Largest offset.
    pub(crate) high: [isize; 2],
    /// Residues of (offset - low) modulo the step that occur.
    phases: [Vec<usize>; 2],
}

impl Reach {
    /// Reach of taps at the given (row, column) offsets; there has to be one.
    pub(crate) fn new(outputs: [usize; 2], step: [usize; 2], taps: &[[isize; 2]]) -> Self {
        let along = |axis: usize| taps.iter().map(move |tap| tap[axis]);
        let low = [0, 1].map(|axis| along(axis).min().unwrap_or(0));
        let high = [0, 1].map(|axis| along(axis).max().unwrap_or(0));
        let phases = [0, 1].map(|axis| {
            let mut used: Vec<usize> = along(axis).map(|t| t.abs_diff(low[axis]) % step[axis]).collect();
            used.sort_unstable();
            used.dedup();
            used
        });
        Self { outputs, step, low, high, phases }
    }

    /// Phases of rows and of columns.
    pub(crate) fn phases(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.phases[axis].len())
    }

    /// Of each phase along an axis, the offset of the source pixel that output 0 reads first.
    pub(crate) fn phase_offsets(&self, axis: usize) -> impl Iterator<Item = isize> {
        self.phases[axis].iter().map(move |phase| self.low[axis].saturating_add_unsigned(*phase))
    }

    /// Phase of a tap's offset along each axis, and its distance there.
    pub(crate) fn place(&self, offset: [isize; 2]) -> [(usize, usize); 2] {
        [0, 1].map(|axis| {
            let distance = offset[axis].abs_diff(self.low[axis]);
            let phase = self.phases[axis].iter().position(|&p| p == distance % self.step[axis]).unwrap_or(0);
            (phase, distance / self.step[axis])
        })
    }

    /// Pixels of a phase along each axis beyond the first of each output.
    pub(crate) fn margin(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.high[axis].abs_diff(self.low[axis]) / self.step[axis])
    }

    /// Rows or columns that `outputs` consecutive outputs read.
    fn span(&self, axis: usize, outputs: usize) -> usize {
        (outputs - 1) * self.step[axis] + self.high[axis].abs_diff(self.low[axis]) + 1
    }

    /// Whether every source pixel that is read exists, one after the other along a row.
    pub(crate) fn lies_within(&self, source: &Blocked) -> bool {
        let inside = |axis: usize, len: usize| {
            let last = (self.outputs[axis] - 1) * self.step[axis];
            self.low[axis] >= 0 && last.checked_add_signed(self.high[axis]).is_some_and(|end| end < len)
        };
        self.step[1] == 1 && inside(0, source.h) && inside(1, source.w)
    }
}

/// Layout of a frame, in f32 elements.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    reach: Reach,
    pixel_pitch: PixelPitch,
    /// Pixels of a column phase.
    phase_width: usize,
    row_pitch: usize,
    pub(crate) block_pitch: usize,
    pub(crate) image_pitch: usize,
    /// Whether the source itself serves as the frame.
    pub(crate) direct: bool,
}

impl Frame {
    /// Frame for tasks of up to `rows` output rows that read `blocks` channel blocks.
    pub(crate) fn new(reach: Reach, maps: &Maps<'_>, source: &Blocked, blocks: usize, rows: usize) -> Self {
        let pixel_pitch = maps.pixel_pitch(source);
        if matches!(maps, Maps::Blocked(_)) && reach.lies_within(source) {
            let (row_pitch, block_pitch, image_pitch) = (source.w * C0, source.plane_len(), source.image_len());
            return Self {
                reach,
                pixel_pitch,
                phase_width: source.w,
                row_pitch,
                block_pitch,
                image_pitch,
                direct: true,
            };
        }
        let phase_width = reach.span(1, reach.outputs[1]).div_ceil(reach.step[1]);
        let row_pitch = reach.phases[1].len() * phase_width * pixel_pitch.elements();
        let block_pitch = reach.span(0, rows) * row_pitch;
        Self {
            phase_width,
            row_pitch,
            block_pitch,
            image_pitch: blocks * block_pitch,
            reach,
            pixel_pitch,
            direct: false,
        }
    }

    /// Position of the pixel that a tap reads for output column 0, from the start of the output's frame row.
    pub(crate) fn tap(&self, tap: [isize; 2]) -> usize {
        let row = tap[0].abs_diff(self.reach.low[0]);
        let [_, (phase, column)] = self.reach.place(tap);
        row * self.row_pitch + (phase * self.phase_width + column) * self.pixel_pitch.elements()
    }

    /// Position of the frame row of a task's first output row `first`, in image 0 and block 0.
    pub(crate) fn row(&self, first: usize) -> usize {
        if self.direct {
            (first * self.reach.step[0]).saturating_add_signed(self.reach.low[0]) * self.row_pitch
                + self.reach.low[1].unsigned_abs() * C0
        } else {
            0
        }
    }

    /// Distance of the frame rows of neighbouring output rows.
    pub(crate) fn row_step(&self) -> usize {
        self.reach.step[0] * self.row_pitch
    }

    /// Copies one image's part of the source into `frame`: the given channel blocks, for the output rows `rows`.
    pub(crate) fn copy(
        &self,
        maps: &Maps<'_>,
        source: &Blocked,
        image: usize,
        blocks: Range<usize>,
        rows: Range<usize>,
        frame: &mut [f32],
    ) {
        for (block, plane) in blocks.zip(frame.chunks_mut(self.block_pitch)) {
            for (offset, out) in plane.chunks_exact_mut(self.row_pitch).enumerate().take(self.reach.span(0, rows.len()))
            {
                if self.reach.phases[0].contains(&(offset % self.reach.step[0])) {
                    let row = (rows.start * self.reach.step[0] + offset)
                        .checked_add_signed(self.reach.low[0])
                        .filter(|&row| row < source.h);
                    self.copy_row(maps, source, [image, block], row, out);
                }
            }
        }
    }

    /// Copies a source row, or zeros if it lies outside the source, into its column phases.
    fn copy_row(&self, maps: &Maps<'_>, source: &Blocked, at: [usize; 2], row: Option<usize>, out: &mut [f32]) {
        let Some(row) = row else {
            out.fill(0.0);
            return;
        };
        let pitch = self.pixel_pitch.elements();
        let step = self.reach.step[1];
        for (&phase, out) in self.reach.phases[1].iter().zip(out.chunks_exact_mut(self.phase_width * pitch)) {
            // Frame pixel k of this phase is source column k * step + shift.
            let shift = self.reach.low[1].saturating_add_unsigned(phase);
            let first = usize::try_from(-shift).unwrap_or(0).div_ceil(step).min(self.phase_width);
            let column = (first * step).saturating_add_signed(shift);
            let count = source.w.saturating_sub(column).div_ceil(step).min(self.phase_width - first);
            let (before, rest) = out.split_at_mut(first * pitch);
            let (inside, after) = rest.split_at_mut(count * pitch);
            before.fill(0.0);
            after.fill(0.0);
            if count == 0 {
                continue;
            }
            match maps {
                Maps::Blocked(data) => {
                    let start = source.plane(at[0], at[1]).start + (row * source.w + column) * C0;
                    if step == 1 {
                        inside.copy_from_slice(&data[start..start + count * C0]);
                    } else {
                        let pixels = data[start..].chunks(step * C0);
                        for (to, from) in inside.chunks_exact_mut(C0).zip(pixels) {
                            to.copy_from_slice(&from[..C0]);
                        }
                    }
                }
                Maps::Planar(data) => {
                    inside.fill(0.0);
                    for channel in 0..source.c {
                        let start = ((at[0] * source.c + channel) * source.h + row) * source.w + column;
                        let pixels = data[start..].iter().step_by(step);
                        for (to, &value) in inside[channel..].iter_mut().step_by(pitch).zip(pixels) {
                            *to = value;
                        }
                    }
                }
            }
        }
    }
}

//! Upsampling of components, as in `jdsample.c` of libjpeg: factors of two with a triangle filter ("fancy upsampling"),
//! others by repetition.

use std::ops::Range;

use super::plane::Plane;
use crate::image::Size;

/// How a component is enlarged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    /// Triangle filter in both directions.
    SmoothBoth,
    /// Triangle filter along rows.
    SmoothAcross,
    /// Triangle filter along columns.
    SmoothDown,
    Repeat,
}

/// Enlarges a component, row by row.
pub(super) struct Upsampler<'a> {
    plane: &'a Plane,
    scale: Size,
    method: Method,
    /// Columns of the image that are needed.
    columns: Range<usize>,
    /// Samples that contribute to these columns, with one more on each side where there is one.
    sources: Range<usize>,
    /// Weighted sums of two rows over `sources`.
    sums: Vec<u16>,
    /// Enlarged samples of all of `sources`.
    wide: Vec<u8>,
}

impl<'a> Upsampler<'a> {
    /// An upsampler for `columns` of the image, `scale` pixels per sample.
    pub fn new(plane: &'a Plane, scale: Size, columns: Range<usize>) -> Self {
        let wide_enough = plane.size().width > 2;
        let method = match (scale.width, scale.height) {
            (2, 1) if wide_enough => Method::SmoothAcross,
            (2, 2) if wide_enough => Method::SmoothBoth,
            (1, 2) => Method::SmoothDown,
            _ => Method::Repeat,
        };
        let first = (columns.start / scale.width).saturating_sub(1);
        let end = ((columns.end - 1) / scale.width + 2).min(plane.size().width);
        let sources = first..end;
        let wide = vec![0; sources.len() * scale.width];
        Self { plane, scale, method, columns, sums: vec![0; sources.len()], sources, wide }
    }

    /// The samples of row `y` of the image in its `columns`.
    #[inline(always)]
    pub fn row(&mut self, y: usize) -> &[u8] {
        let at = y / self.scale.height;
        let near = part(self.plane, at, &self.sources);
        // The other row that contributes: above for the first of two, below for the second.
        let far = if y.is_multiple_of(2) { at.saturating_sub(1) } else { at + 1 };
        match self.method {
            Method::Repeat if self.scale.width == 1 => {
                return &near[self.columns.start - self.sources.start..][..self.columns.len()];
            }
            Method::Repeat => {
                for (out, &sample) in self.wide.chunks_exact_mut(self.scale.width).zip(near) {
                    out.fill(sample);
                }
            }
            Method::SmoothDown => {
                let bias = if y.is_multiple_of(2) { 1 } else { 2 };
                for ((out, &near), &far) in self.wide.iter_mut().zip(near).zip(part(self.plane, far, &self.sources)) {
                    *out = ((u16::from(near) * 3 + u16::from(far) + bias) >> 2) as u8;
                }
            }
            Method::SmoothAcross => {
                for (sum, &near) in self.sums.iter_mut().zip(near) {
                    *sum = near.into();
                }
                widen::<2, 1, 2>(&self.sums, &mut self.wide);
            }
            Method::SmoothBoth => {
                for ((sum, &near), &far) in self.sums.iter_mut().zip(near).zip(part(self.plane, far, &self.sources)) {
                    *sum = u16::from(near) * 3 + u16::from(far);
                }
                widen::<4, 8, 7>(&self.sums, &mut self.wide);
            }
        }
        &self.wide[self.columns.start - self.sources.start * self.scale.width..][..self.columns.len()]
    }
}

/// Samples `columns` of row `y` of a component.
#[inline(always)]
fn part<'a>(plane: &'a Plane, y: usize, columns: &Range<usize>) -> &'a [u8] {
    &plane.row(y)[columns.start - plane.first_column()..][..columns.len()]
}

/// Two samples for each one: three quarters of the nearer and one quarter of the farther neighbour, divided by
/// 2^SHIFT after adding LEFT or RIGHT for the left and the right one. The ends have no farther neighbour.
#[inline(always)]
fn widen<const SHIFT: u32, const LEFT: u16, const RIGHT: u16>(sums: &[u16], out: &mut [u8]) {
    let pairs = out.as_chunks_mut::<2>().0;
    let (last, n) = (sums.len() - 1, sums.len());
    let left = |near: u16, far: u16| ((near * 3 + far + LEFT) >> SHIFT) as u8;
    let right = |near: u16, far: u16| ((near * 3 + far + RIGHT) >> SHIFT) as u8;
    if n > 2 {
        for (pair, window) in pairs[1..last].iter_mut().zip(sums.windows(3)) {
            *pair = [left(window[1], window[0]), right(window[1], window[2])];
        }
    }
    let (first, second) = (sums[0], sums[1.min(last)]);
    pairs[0] = [left(first, first), right(first, second)];
    let (end, before) = (sums[last], sums[last.saturating_sub(1)]);
    if n > 1 {
        pairs[last] = [left(end, before), right(end, end)];
    }
}

//! Pillow's antialiased resize, to the bit.
//!
//! The algorithm is that of the `Resample.c` of Pillow 13 for 8-bit images: separable, with an 8-bit image in between;
//! first horizontal, then vertical, or the other way round where much more height than width goes. Filter weights are
//! computed in f64, normalised, and rounded to 22-bit fixed point; sums start at one half and are clipped to 0..=255.
//! When shrinking, the filter is widened by the scale (antialiasing); when enlarging it keeps its own width.

use std::ops::Range;

use zoo_settings::{Filter, ResizeTo};

use super::plan::Op;
use super::{Transform, sized};
use crate::Rng;
use crate::image::{Image, Rect, Size};

/// Fractional bits of a weight: 32 - 8 bits of pixel - 2 bits of headroom for overshoot (`PRECISION_BITS`).
const PRECISION: u32 = 22;

/// Reach of a filter from its centre.
fn support(filter: Filter) -> f64 {
    match filter {
        Filter::Bilinear => 1.0,
        Filter::Bicubic => 2.0,
    }
}

/// Weight at distance `x`; the order of operations is Pillow's.
fn weight(filter: Filter, x: f64) -> f64 {
    let x = x.abs();
    match filter {
        Filter::Bilinear if x < 1.0 => 1.0 - x,
        Filter::Bicubic if x < 1.0 => ((-0.5 + 2.0) * x - (-0.5 + 3.0)) * x * x + 1.0,
        Filter::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5,
        Filter::Bilinear | Filter::Bicubic => 0.0,
    }
}

impl Transform for ResizeTo {
    fn check(&self) -> Result<(), String> {
        sized(self.size.into())
    }

    fn output(&self, _from: Option<Size>) -> Option<Size> {
        Some(self.size.into())
    }

    fn plan(&self, _from: Size, _rng: &mut Rng) -> Vec<Op> {
        vec![Op::Resize { to: self.size.into(), filter: self.filter }]
    }
}

/// The scaling of one axis from `from` to `to` pixels.
#[derive(Debug, Clone, Copy)]
struct Axis {
    from: usize,
    to: usize,
    filter: Filter,
}

impl Axis {
    fn scale(self) -> f64 {
        self.from as f64 / self.to as f64
    }

    /// Input pixels under the filter of output pixel `x`, and the filter's centre.
    fn taps(self, x: usize) -> (Range<usize>, f64) {
        let support = support(self.filter) * self.scale().max(1.0);
        let centre = (x as f64 + 0.5) * self.scale();
        if self.from == self.to {
            // Both filters are 1 at their centre and 0 at all other whole numbers.
            return (x..x + 1, centre);
        }
        // Casts truncate towards zero and saturate at 0, which is Pillow's clamp.
        let first = (centre - support + 0.5) as usize;
        let last = ((centre + support + 0.5) as usize).min(self.from);
        (first..last, centre)
    }

    /// Input pixels that the output pixels `window` depend on.
    fn source(self, window: Range<usize>) -> Range<usize> {
        self.taps(window.start).0.start..self.taps(window.end - 1).0.end
    }

    /// Fixed-point weights of the output pixels `window`, with positions counted from `origin`.
    fn weights(self, window: Range<usize>, origin: usize) -> Weights {
        let inverse = 1.0 / self.scale().max(1.0);
        let mut weights = Weights { outputs: Vec::with_capacity(window.len()), taps: Vec::new() };
        let mut exact = Vec::new();
        for x in window {
            let (taps, centre) = self.taps(x);
            exact.clear();
            exact.extend(taps.clone().map(|tap| weight(self.filter, (tap as f64 - centre + 0.5) * inverse)));
            let sum: f64 = exact.iter().sum();
            weights.outputs.push((taps.start - origin, weights.taps.len()..weights.taps.len() + taps.len()));
            weights.taps.extend(exact.iter().map(|&w| fixed_point(if sum == 0.0 { w } else { w / sum })));
        }
        weights
    }
}

/// Rounds half away from zero, as `normalize_coeffs_8bpc`.
fn fixed_point(weight: f64) -> i32 {
    let scaled = weight * f64::from(1 << PRECISION);
    (if weight < 0.0 { scaled - 0.5 } else { scaled + 0.5 }) as i32
}

/// Weights of a run of output pixels.
struct Weights {
    /// Per output pixel: first input pixel, and its span of `taps`.
    outputs: Vec<(usize, Range<usize>)>,
    taps: Vec<i32>,
}

impl Weights {
    fn iter(&self) -> impl Iterator<Item = (usize, &[i32])> {
        self.outputs.iter().map(|(first, span)| (*first, &self.taps[span.clone()]))
    }
}

/// The part `window` of an image of size `from` resized to `to`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowedResize {
    pub from: Size,
    pub to: Size,
    pub filter: Filter,
    pub window: Rect,
}

impl WindowedResize {
    fn horizontal(self) -> Axis {
        Axis { from: self.from.width, to: self.to.width, filter: self.filter }
    }

    fn vertical(self) -> Axis {
        Axis { from: self.from.height, to: self.to.height, filter: self.filter }
    }

    /// Whether the vertical pass is the first: the height shrinks, by more than twice the pixels that the width does
    /// (`horizontal_first` in `ImagingResampleInner` of Pillow 13; before, the horizontal pass always was).
    fn vertical_first(self) -> bool {
        let shrinks = |from: usize, to: usize| from as i64 - to as i64;
        let height = shrinks(self.from.height, self.to.height);
        height > 0 && height > 2 * shrinks(self.from.width, self.to.width)
    }

    /// The part of the input that the window depends on.
    pub fn source(self) -> Rect {
        let x = self.horizontal().source(self.window.x..self.window.right());
        let y = self.vertical().source(self.window.y..self.window.bottom());
        Rect::new(x.start, y.start, x.len(), y.len())
    }

    /// Resizes `part`, which holds exactly [`source`](Self::source) of the input.
    pub fn run(self, part: Image) -> Image {
        let source = self.source();
        debug_assert_eq!(part.size(), source.size());
        if self.from == self.to {
            return part;
        }
        let x = self.horizontal().weights(self.window.x..self.window.right(), source.x);
        let y = self.vertical().weights(self.window.y..self.window.bottom(), source.y);
        let mut image = Image::filled(self.window.size(), [0; 3]);
        pulp::Arch::new().dispatch(Passes {
            part: &part,
            x: &x,
            y: &y,
            vertical_first: self.vertical_first(),
            out: &mut image,
        });
        image
    }
}

/// Both passes, compiled for each vector unit.
struct Passes<'a> {
    part: &'a Image,
    x: &'a Weights,
    y: &'a Weights,
    vertical_first: bool,
    out: &'a mut Image,
}

impl pulp::NullaryFnOnce for Passes<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { part, x, y, vertical_first, out } = self;
        if vertical_first {
            let mut between = Image::filled(Size::new(part.width(), out.height()), [0; 3]);
            resize_columns(part, y, between.pixels_mut());
            resize_rows(&between, x, out.pixels_mut());
        } else {
            let mut between = Image::filled(Size::new(out.width(), part.height()), [0; 3]);
            resize_rows(part, x, between.pixels_mut());
            resize_columns(&between, y, out.pixels_mut());
        }
    }
}

#[inline(always)]
fn clip(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

/// One half, in fixed point: the start value of sums.
const HALF: i32 = 1 << (PRECISION - 1);

/// Sums that are formed at once. A whole number of vectors, and enough of them that compilers keep the loop over them
/// as a loop of vector operations.
const LANES: usize = 64;

/// Rows that the horizontal pass works on at once: a pixel takes four lanes.
const ROWS: usize = LANES / 4;

/// The horizontal pass: every row of `part` to a row of `out`.
///
/// Pixels of [`ROWS`] rows are put side by side, so that one weight serves all lanes.
#[inline(always)]
fn resize_rows(part: &Image, weights: &Weights, out: &mut [u8]) {
    let row_bytes = weights.outputs.len() * 3;
    let mut columns = vec![[0; LANES]; part.width()];
    let mut resized = vec![[0; LANES]; weights.outputs.len()];
    for (group, out) in out.chunks_mut(row_bytes * ROWS).enumerate() {
        for row in 0..out.len() / row_bytes {
            let pixels = part.row(group * ROWS + row).as_chunks::<3>().0;
            for (column, pixel) in columns.iter_mut().zip(pixels) {
                column[4 * row..4 * row + 3].copy_from_slice(pixel);
            }
        }
        for (resized, (first, taps)) in resized.iter_mut().zip(weights.iter()) {
            *resized = weighted_sum(taps, columns[first..].iter());
        }
        for (row, out) in out.chunks_exact_mut(row_bytes).enumerate() {
            for (pixel, column) in out.as_chunks_mut::<3>().0.iter_mut().zip(&resized) {
                pixel.copy_from_slice(&column[4 * row..4 * row + 3]);
            }
        }
    }
}

/// The sum of `values`, each times its weight, rounded and clipped.
#[inline(always)]
fn weighted_sum<'a>(taps: &[i32], values: impl Iterator<Item = &'a [u8; LANES]>) -> [u8; LANES] {
    let mut sums = [HALF; LANES];
    for (tap, values) in taps.iter().zip(values) {
        for (sum, &value) in sums.iter_mut().zip(values) {
            *sum += i32::from(value) * tap;
        }
    }
    sums.map(clip)
}

/// The vertical pass: every column of `part` to a column of `out`.
#[inline(always)]
fn resize_columns(part: &Image, weights: &Weights, out: &mut [u8]) {
    let (rows, row_bytes) = (part.pixels(), part.width() * 3);
    for ((first, taps), out) in weights.iter().zip(out.chunks_exact_mut(row_bytes)) {
        let rows = rows[first * row_bytes..].chunks_exact(row_bytes);
        let (blocks, rest) = out.as_chunks_mut::<LANES>();
        for (block, out) in blocks.iter_mut().enumerate() {
            *out = weighted_sum(taps, rows.clone().filter_map(|row| row[block * LANES..].first_chunk()));
        }
        let done = blocks.len() * LANES;
        for (x, out) in rest.iter_mut().enumerate() {
            let column = taps.iter().zip(rows.clone());
            *out = clip(column.fold(HALF, |sum, (tap, row)| sum + i32::from(row[done + x]) * tap));
        }
    }
}

/// Resizes a whole image; identical to Pillow's `Image.resize((width, height), filter)`.
pub fn resize(image: &Image, to: Size, filter: Filter) -> Image {
    let to = Size::new(to.width.max(1), to.height.max(1));
    WindowedResize { from: image.size(), to, filter, window: Rect::full(to) }.run(image.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4 -> 2 pixels, bilinear: support 2, centres 1 and 3; taps 0..3 and 1..4 with weights 1:3:3:1 cut at the edge.
    #[test]
    fn weights_worked_by_hand() {
        let weights = Axis { from: 4, to: 2, filter: Filter::Bilinear }.weights(0..2, 0);
        let unit = f64::from(1 << PRECISION);
        let parts: Vec<(usize, Vec<f64>)> =
            weights.iter().map(|(first, taps)| (first, taps.iter().map(|&t| f64::from(t) / unit).collect())).collect();
        let near = |a: f64, b: f64| (a - b).abs() <= 0.5 / unit;
        assert_eq!((parts[0].0, parts[1].0), (0, 1));
        for (found, expected) in parts[0].1.iter().zip([3.0 / 7.0, 3.0 / 7.0, 1.0 / 7.0]) {
            assert!(near(*found, expected));
        }
        for (found, expected) in parts[1].1.iter().zip([1.0 / 7.0, 3.0 / 7.0, 3.0 / 7.0]) {
            assert!(near(*found, expected));
        }
    }

    /// Observed results of Pillow 13.0.0 on noise of these sizes.
    #[test]
    fn the_pass_that_shrinks_more_is_the_first() {
        let first = |from: (usize, usize), to: (usize, usize)| {
            let (from, to) = (Size::new(from.0, from.1), Size::new(to.0, to.1));
            WindowedResize { from, to, filter: Filter::Bilinear, window: Rect::full(to) }.vertical_first()
        };
        assert!(first((231, 640), (32, 88)) && first((25, 80), (12, 36)) && first((86, 119), (55, 40)));
        assert!(!first((91, 56), (30, 16)) && !first((10, 61), (75, 86)) && !first((10, 12), (9, 10)));
        assert!(!first((500, 375), (341, 256)) && first((10, 12), (10, 11)));
    }

    #[test]
    fn a_window_equals_the_crop_of_the_whole() {
        let size = Size::new(37, 23);
        let pixels = (0..size.area() * 3).map(|i| crate::hash::h("pixels", i as u64) as u8).collect();
        let image = Image::new(size, pixels).unwrap();
        for (to, filter) in [
            (Size::new(16, 11), Filter::Bilinear),
            (Size::new(90, 31), Filter::Bicubic),
            (Size::new(37, 9), Filter::Bicubic),
            // The vertical pass is the first.
            (Size::new(35, 12), Filter::Bilinear),
        ] {
            let window = Rect::new(3, 2, 9, 5);
            let part = WindowedResize { from: size, to, filter, window };
            let found = part.run(image.crop(part.source()).unwrap());
            assert_eq!(found, resize(&image, to, filter).crop(window).unwrap());
        }
    }
}

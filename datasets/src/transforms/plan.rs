//! The operations of a pipeline on one image, planned before a pixel is read.

use super::adjust::Adjust;
use super::resize::WindowedResize;
use crate::image::{Image, Rect, Size};
use zoo_settings::{Filter, PadMode};

/// A geometric operation on an image of known size, with everything random already drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Op {
    Crop(Rect),
    Resize {
        to: Size,
        filter: Filter,
    },
    Pad {
        left: usize,
        top: usize,
        to: Size,
        border: PadMode,
    },
    Mirror,
    /// A colour operation.
    Adjust(Adjust),
    /// Takes pixel `(x, y)` from `(a x + b y + c, d x + e y + f)`, measured between pixel centres; black outside the
    /// image.
    Affine([f64; 6]),
}

impl Op {
    pub(super) fn size(self, from: Size) -> Size {
        match self {
            Self::Crop(rect) => rect.size(),
            Self::Resize { to, .. } | Self::Pad { to, .. } => to,
            Self::Mirror | Self::Adjust(_) | Self::Affine(_) => from,
        }
    }

    /// The part of an input of size `from` that `window` of the output depends on.
    fn source(self, from: Size, window: Rect) -> Rect {
        match self {
            Self::Crop(rect) => Rect { x: rect.x + window.x, y: rect.y + window.y, ..window },
            Self::Resize { to, filter } => WindowedResize { from, to, filter, window }.source(),
            Self::Pad { border: PadMode::Reflect, .. } => Rect::full(from),
            Self::Pad { left, top, border: PadMode::Zeros, .. } => {
                let (x, width) = overlap(window.x..window.right(), left, from.width);
                let (y, height) = overlap(window.y..window.bottom(), top, from.height);
                Rect::new(x, y, width, height)
            }
            Self::Mirror => Rect { x: from.width - window.right(), ..window },
            Self::Adjust(adjust) if adjust.is_local() => window,
            Self::Adjust(_) | Self::Affine(_) => Rect::full(from),
        }
    }
}

/// The part of `from` pixels starting at `start` that lies in `window`, counted from `start`; one pixel if none does,
/// because images are never empty.
fn overlap(window: std::ops::Range<usize>, start: usize, from: usize) -> (usize, usize) {
    let first = window.start.saturating_sub(start).min(from - 1);
    let end = window.end.saturating_sub(start).min(from);
    (first, end.saturating_sub(first).max(1))
}

/// An operation with the size it works on and the window of its output that later operations need.
#[derive(Debug, Clone, Copy)]
struct Stage {
    op: Op,
    from: Size,
    window: Rect,
}

/// The operations of a [`Pipeline`](super::Pipeline) on one image: the required part, and the operations on it.
///
/// Operations run on the smallest part that the result depends on, and give the same bits as on the whole image.
#[derive(Debug, Clone)]
pub struct Plan {
    region: Rect,
    output: Size,
    stages: Vec<Stage>,
    erased: Option<Rect>,
}

impl Plan {
    pub(super) fn new(from: Size, ops: &[Op], erased: Option<Rect>) -> Self {
        let mut size = from;
        let mut stages: Vec<Stage> = Vec::with_capacity(ops.len());
        for &op in ops {
            let to = op.size(size);
            stages.push(Stage { op, from: size, window: Rect::full(to) });
            size = to;
        }
        let mut window = Rect::full(size);
        for stage in stages.iter_mut().rev() {
            stage.window = window;
            window = stage.op.source(stage.from, window);
        }
        Self { region: window, output: size, stages, erased }
    }

    /// The part of the image that is needed; [`run`](Self::run) takes exactly this part.
    pub fn region(&self) -> Rect {
        self.region
    }

    /// Size of the result.
    pub fn output(&self) -> Size {
        self.output
    }

    /// The part of the result that is erased after the normalisation.
    pub(super) fn erased(&self) -> Option<Rect> {
        self.erased
    }

    /// Transforms `part`, the [`region`](Self::region) of the image.
    ///
    /// # Panics
    /// If `part` has another size than the region.
    pub fn run(&self, part: Image) -> Image {
        assert_eq!(part.size(), self.region.size(), "the part must be the region of the plan");
        self.stages.iter().fold(part, |part, stage| stage.run(part))
    }
}

impl Stage {
    fn run(self, part: Image) -> Image {
        match self.op {
            Op::Crop(_) => part,
            Op::Resize { to, filter } => WindowedResize { from: self.from, to, filter, window: self.window }.run(part),
            Op::Pad { left, top, border: PadMode::Reflect, .. } => reflected(&part, self.window, left, top),
            Op::Pad { left, top, border: PadMode::Zeros, .. } => pad(&part, self.window, left, top, self.from),
            Op::Mirror => mirror(part),
            Op::Adjust(adjust) if adjust.is_local() => adjust.run(part),
            Op::Adjust(adjust) => cut(adjust.run(part), self.window),
            Op::Affine(matrix) => affine(&part, matrix, self.window),
        }
    }
}

/// The `window` of an image of size `from` with padding, from the part of it that the window shows.
fn pad(part: &Image, window: Rect, left: usize, top: usize, from: Size) -> Image {
    let mut image = Image::filled(window.size(), [0; 3]);
    let source = Op::Pad { left, top, to: from, border: PadMode::Zeros }.source(from, window);
    let (x, y) = (source.x + left, source.y + top);
    // The part lies outside of a window that shows padding alone.
    let inside = x >= window.x && x < window.right() && y >= window.y && y < window.bottom();
    if inside {
        let (x, y) = (x - window.x, y - window.y);
        let row_bytes = window.width * 3;
        for (row, target) in (0..part.height()).zip(image.pixels_mut().chunks_exact_mut(row_bytes).skip(y)) {
            target[x * 3..(x + part.width()) * 3].copy_from_slice(part.row(row));
        }
    }
    image
}

/// The `window` of a whole image with reflected padding.
fn reflected(image: &Image, window: Rect, left: usize, top: usize) -> Image {
    let place = |at: usize, start: usize, side: usize| reflected_place(at as isize - start as isize, side);
    let mut taken = Image::filled(window.size(), [0; 3]);
    let pixels = taken.pixels_mut().as_chunks_mut::<3>().0.chunks_exact_mut(window.width);
    for (y, row) in (window.y..).zip(pixels) {
        let from = image.row(place(y, top, image.height()));
        for (x, pixel) in (window.x..).zip(row) {
            let x = place(x, left, image.width());
            pixel.copy_from_slice(&from[3 * x..3 * x + 3]);
        }
    }
    taken
}

/// The pixel of `side` pixels that is shown at a place before, inside of or behind them: they are mirrored at the first
/// and the last one, which are not repeated, as often as necessary (`padding_mode="reflect"`).
pub fn reflected_place(at: isize, side: usize) -> usize {
    let period = (2 * side.max(1) - 2).max(1);
    let place = at.unsigned_abs() % period;
    place.min(period - place)
}

fn mirror(mut image: Image) -> Image {
    let row_bytes = image.width() * 3;
    for row in image.pixels_mut().chunks_exact_mut(row_bytes) {
        row.as_chunks_mut::<3>().0.reverse();
    }
    image
}

/// The `window` of a whole image.
fn cut(image: Image, window: Rect) -> Image {
    if window == Rect::full(image.size()) { image } else { image.crop(window).unwrap_or(image) }
}

/// The `window` of a whole image after [`Op::Affine`], in fixed point with 16 fractional bits as in Pillow's
/// `affine_fixed`.
fn affine(image: &Image, [a, b, c, d, e, f]: [f64; 6], window: Rect) -> Image {
    let fixed = |x: f64| (x * 65536.0 + 0.5).floor() as i64;
    let [xx, xy, x0] = [fixed(a), fixed(b), fixed(c + a * 0.5 + b * 0.5)];
    let [yx, yy, y0] = [fixed(d), fixed(e), fixed(f + d * 0.5 + e * 0.5)];
    let mut taken = Image::filled(window.size(), [0; 3]);
    let pixels = taken.pixels_mut().as_chunks_mut::<3>().0.chunks_exact_mut(window.width);
    for (y, row) in (window.y as i64..).zip(pixels) {
        for (x, pixel) in (window.x as i64..).zip(row) {
            let from = [x0 + x * xx + y * xy, y0 + x * yx + y * yy].map(|place| usize::try_from(place >> 16));
            if let [Ok(x), Ok(y)] = from
                && x < image.width()
                && y < image.height()
            {
                pixel.copy_from_slice(&image.row(y)[3 * x..3 * x + 3]);
            }
        }
    }
    taken
}

//! The operations of a pipeline on one image, planned before a pixel is read.

use super::resize::WindowedResize;
use super::{Filter, Resize};
use crate::image::{Image, Rect, Size};

/// A geometric operation on an image of known size, with everything random already drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Op {
    Crop(Rect),
    Resize { to: Size, filter: Filter },
    Pad { left: usize, top: usize, to: Size, fill: [u8; 3] },
    Mirror,
}

impl Op {
    pub(super) fn size(self, from: Size) -> Size {
        match self {
            Self::Crop(rect) => rect.size(),
            Self::Resize { to, .. } | Self::Pad { to, .. } => to,
            Self::Mirror => from,
        }
    }

    /// The part of an input of size `from` that `window` of the output depends on.
    fn source(self, from: Size, window: Rect) -> Rect {
        match self {
            Self::Crop(rect) => Rect { x: rect.x + window.x, y: rect.y + window.y, ..window },
            Self::Resize { to, filter } => WindowedResize { from, to, filter, window }.source(),
            Self::Pad { left, top, .. } => {
                let (x, width) = overlap(window.x..window.right(), left, from.width);
                let (y, height) = overlap(window.y..window.bottom(), top, from.height);
                Rect::new(x, y, width, height)
            }
            Self::Mirror => Rect { x: from.width - window.right(), ..window },
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
}

impl Plan {
    pub(super) fn new(from: Size, ops: &[Op]) -> Self {
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
        Self { region: window, output: size, stages }
    }

    /// The part of the image that is needed; [`run`](Self::run) takes exactly this part.
    pub fn region(&self) -> Rect {
        self.region
    }

    /// Size of the result.
    pub fn output(&self) -> Size {
        self.output
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
            Op::Pad { left, top, fill, .. } => pad(&part, self.window, left, top, self.from, fill),
            Op::Mirror => mirror(part),
        }
    }
}

/// The `window` of an image of size `from` with padding, from the part of it that the window shows.
fn pad(part: &Image, window: Rect, left: usize, top: usize, from: Size, fill: [u8; 3]) -> Image {
    let mut image = Image::filled(window.size(), fill);
    let source = Op::Pad { left, top, to: from, fill }.source(from, window);
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

fn mirror(mut image: Image) -> Image {
    let row_bytes = image.width() * 3;
    for row in image.pixels_mut().chunks_exact_mut(row_bytes) {
        row.as_chunks_mut::<3>().0.reverse();
    }
    image
}

impl From<Resize> for Op {
    fn from(resize: Resize) -> Self {
        Self::Resize { to: resize.size, filter: resize.filter }
    }
}

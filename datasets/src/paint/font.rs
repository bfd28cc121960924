//! Outlines of the embedded fonts.

use skrifa::{
    FontRef, MetadataProvider,
    outline::{DrawSettings, OutlinePen},
    prelude::{LocationRef, Size},
};

use super::Coverage;
use crate::geometry::Point;

/// The embedded faces: `datasets/fonts/`.
const FACES: [&[u8]; 9] = [
    include_bytes!("../../fonts/DejaVuSans.ttf"),
    include_bytes!("../../fonts/DejaVuSans-Bold.ttf"),
    include_bytes!("../../fonts/DejaVuSans-Oblique.ttf"),
    include_bytes!("../../fonts/DejaVuSansCondensed.ttf"),
    include_bytes!("../../fonts/DejaVuSansMono.ttf"),
    include_bytes!("../../fonts/DejaVuSansMono-Bold.ttf"),
    include_bytes!("../../fonts/DejaVuSerif.ttf"),
    include_bytes!("../../fonts/DejaVuSerif-Bold.ttf"),
    include_bytes!("../../fonts/DejaVuSerif-Italic.ttf"),
];

/// The embedded faces, ready for use.
pub(crate) fn embedded_faces() -> Vec<Face> {
    FACES.iter().filter_map(|bytes| FontRef::new(bytes).ok()).map(Face).collect()
}

/// One face.
pub(crate) struct Face(FontRef<'static>);

impl Face {
    /// The outline of `character` as the font has it, and its advance; `None` if the face lacks it or has nothing to
    /// draw.
    ///
    /// As FreeType does, skrifa moves an outline until its left side bearing is that of the table `hmtx`; here it stays
    /// where the table `glyf` has it, a unit away in the slanted faces: every picture ever generated depends on it.
    fn outline(&self, character: char) -> Option<(Outline, f32)> {
        let (size, location) = (Size::unscaled(), LocationRef::default());
        let glyph = self.0.charmap().map(character)?;
        let metrics = self.0.glyph_metrics(size, location);
        let moved = metrics.left_side_bearing(glyph)? - metrics.bounds(glyph)?.x_min;
        let mut outline = Outline::default();
        self.0.outline_glyphs().get(glyph)?.draw(DrawSettings::unhinted(size, location), &mut outline).ok()?;
        Some((outline.map(|(x, y)| (x - moved, y)), metrics.advance_width(glyph)?))
    }

    fn em(&self) -> f32 {
        self.0.metrics(Size::unscaled(), LocationRef::default()).units_per_em.into()
    }

    /// The outline of `character`, centred on the origin, y upwards, one em high.
    pub fn centred(&self, character: char) -> Option<Outline> {
        let (outline, _) = self.outline(character)?;
        let (low, high) = outline.bounds()?;
        let (cx, cy) = ((low.0 + high.0) / 2.0, (low.1 + high.1) / 2.0);
        let em = self.em();
        Some(outline.map(|(x, y)| ((x - cx) / em, (y - cy) / em)))
    }

    /// The outline of `word`, y downwards, one em high, centred on the origin, and its width and height in ems; `None`
    /// if the face lacks a character or there is none.
    pub fn word(&self, word: &str) -> Option<(Outline, f64, f64)> {
        let mut pen = 0.0;
        let mut all = Outline::default();
        for character in word.chars() {
            let (outline, advance) = self.outline(character)?;
            outline.bounds()?;
            all.segments.extend(outline.map(|(x, y)| (x + pen, y)).segments);
            pen += advance;
        }
        let (low, high) = all.bounds()?;
        let (em, cx, cy) = (self.em(), (low.0 + high.0) / 2.0, (low.1 + high.1) / 2.0);
        let (width, height) = (f64::from((high.0 - low.0) / em), f64::from((high.1 - low.1) / em));
        Some((all.map(|(x, y)| ((x - cx) / em, (cy - y) / em)), width, height))
    }
}

/// Closed curves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outline {
    segments: Vec<Segment>,
    start: (f32, f32),
    last: (f32, f32),
}

/// A line, or a quadratic Bézier curve (TrueType has no others).
#[derive(Debug, Clone, Copy)]
enum Segment {
    Line((f32, f32), (f32, f32)),
    Quad((f32, f32), (f32, f32), (f32, f32)),
}

impl OutlinePen for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        self.start = (x, y);
        self.last = (x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.segments.push(Segment::Line(self.last, (x, y)));
        self.last = (x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.segments.push(Segment::Quad(self.last, (x1, y1), (x, y)));
        self.last = (x, y);
    }

    fn curve_to(&mut self, _x1: f32, _y1: f32, _x2: f32, _y2: f32, x: f32, y: f32) {
        // Cubic curves occur in CFF fonts alone; the embedded ones are TrueType.
        self.line_to(x, y);
    }

    fn close(&mut self) {
        self.line_to(self.start.0, self.start.1);
    }
}

impl Outline {
    /// Lowest and highest coordinates of all points, those that steer curves included; `None` if there is nothing to
    /// draw.
    fn bounds(&self) -> Option<((f32, f32), (f32, f32))> {
        let points = self.segments.iter().flat_map(|segment| match *segment {
            Segment::Line(a, b) => [a, b, b],
            Segment::Quad(a, b, c) => [a, b, c],
        });
        points
            .map(|p| (p, p))
            .reduce(|(low, high), (p, _)| ((low.0.min(p.0), low.1.min(p.1)), (high.0.max(p.0), high.1.max(p.1))))
    }

    fn map(mut self, f: impl Fn((f32, f32)) -> (f32, f32)) -> Self {
        for segment in &mut self.segments {
            *segment = match *segment {
                Segment::Line(a, b) => Segment::Line(f(a), f(b)),
                Segment::Quad(a, b, c) => Segment::Quad(f(a), f(b), f(c)),
            };
        }
        self
    }

    /// Adds the outline, mapped to pixels, to `coverage`.
    pub fn draw(&self, coverage: &mut Coverage, map: impl Fn(Point) -> Point) {
        let map = |(x, y): (f32, f32)| map(Point::new(x.into(), y.into()));
        for segment in &self.segments {
            match *segment {
                Segment::Line(a, b) => coverage.line(map(a), map(b)),
                Segment::Quad(a, b, c) => coverage.quad(map(a), map(b), map(c)),
            }
        }
    }
}

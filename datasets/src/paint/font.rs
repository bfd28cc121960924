//! Outlines of the embedded faces.

use ttf_parser::OutlineBuilder;

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
    FACES.iter().filter_map(|bytes| ttf_parser::Face::parse(bytes, 0).ok()).map(Face).collect()
}

/// One face.
pub(crate) struct Face(ttf_parser::Face<'static>);

impl Face {
    /// The outline of `character` as the font has it, and its advance; `None` if the face lacks it.
    fn outline(&self, character: char) -> Option<(Outline, ttf_parser::Rect, f32)> {
        let glyph = self.0.glyph_index(character)?;
        let mut outline = Outline::default();
        let bounds = self.0.outline_glyph(glyph, &mut outline)?;
        Some((outline, bounds, f32::from(self.0.glyph_hor_advance(glyph)?)))
    }

    fn em(&self) -> f32 {
        f32::from(self.0.units_per_em())
    }

    /// The outline of `character`, centred on the origin, y upwards, one em high.
    pub fn centred(&self, character: char) -> Option<Outline> {
        let (outline, bounds, _) = self.outline(character)?;
        let middle = |low: i16, high: i16| (f32::from(low) + f32::from(high)) / 2.0;
        let (cx, cy) = (middle(bounds.x_min, bounds.x_max), middle(bounds.y_min, bounds.y_max));
        let em = self.em();
        Some(outline.map(|(x, y)| ((x - cx) / em, (y - cy) / em)))
    }

    /// The outline of `word`, y downwards, one em high, centred on the origin, and its width and height in ems; `None`
    /// if the face lacks a character or there is none.
    pub fn word(&self, word: &str) -> Option<(Outline, f64, f64)> {
        let mut pen = 0.0;
        let mut all = Outline::default();
        let (mut low, mut high) = ((f32::INFINITY, f32::INFINITY), (f32::NEG_INFINITY, f32::NEG_INFINITY));
        for character in word.chars() {
            let (outline, bounds, advance) = self.outline(character)?;
            let (left, right) = (pen + f32::from(bounds.x_min), pen + f32::from(bounds.x_max));
            low = (low.0.min(left), low.1.min(bounds.y_min.into()));
            high = (high.0.max(right), high.1.max(bounds.y_max.into()));
            all.segments.extend(outline.map(|(x, y)| (x + pen, y)).segments);
            pen += advance;
        }
        if all.segments.is_empty() {
            return None;
        }
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

impl OutlineBuilder for Outline {
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

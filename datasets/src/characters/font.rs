//! Outlines of the embedded faces, and their coverage of pixels.

use ab_glyph_rasterizer::{Point, Rasterizer, point};
use ttf_parser::{Face, OutlineBuilder};

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

/// A plane affine map: `(x, y) -> (xx*x + xy*y + dx, yx*x + yy*y + dy)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Affine {
    pub xx: f64,
    pub xy: f64,
    pub yx: f64,
    pub yy: f64,
    pub dx: f64,
    pub dy: f64,
}

impl Affine {
    fn apply(&self, (x, y): (f32, f32)) -> Point {
        let (x, y) = (f64::from(x), f64::from(y));
        point((self.xx * x + self.xy * y + self.dx) as f32, (self.yx * x + self.yy * y + self.dy) as f32)
    }
}

/// The outline of a character, centred on the origin, y upwards, one em high.
#[derive(Debug, Clone, Default)]
pub(super) struct Outline {
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

impl Segment {
    fn map(self, f: impl Fn((f32, f32)) -> (f32, f32)) -> Self {
        match self {
            Self::Line(a, b) => Self::Line(f(a), f(b)),
            Self::Quad(a, b, c) => Self::Quad(f(a), f(b), f(c)),
        }
    }
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
    /// The outline of `character` in a face; `None` if the face lacks it.
    fn new(face: &Face<'_>, character: char) -> Option<Self> {
        let mut outline = Self::default();
        let bounds = face.outline_glyph(face.glyph_index(character)?, &mut outline)?;
        let em = f32::from(face.units_per_em());
        let middle = |low: i16, high: i16| (f32::from(low) + f32::from(high)) / 2.0;
        let (cx, cy) = (middle(bounds.x_min, bounds.x_max), middle(bounds.y_min, bounds.y_max));
        for segment in &mut outline.segments {
            *segment = segment.map(|(x, y)| ((x - cx) / em, (y - cy) / em));
        }
        Some(outline)
    }

    /// The outlines of `characters` in every embedded face that has them: one list per character.
    pub fn embedded(characters: impl Iterator<Item = char>) -> Vec<Vec<Self>> {
        let faces: Vec<Face<'_>> = FACES.iter().filter_map(|bytes| Face::parse(bytes, 0).ok()).collect();
        characters.map(|c| faces.iter().filter_map(|face| Self::new(face, c)).collect()).collect()
    }

    /// Adds the outline, mapped to pixels, to `mask`.
    pub fn draw(&self, mask: &mut Mask, map: &Affine) {
        for segment in &self.segments {
            match *segment {
                Segment::Line(a, b) => mask.line(map.apply(a), map.apply(b)),
                Segment::Quad(a, b, c) => mask.quad(map.apply(a), map.apply(b), map.apply(c)),
            }
        }
    }
}

/// Antialiased coverage of a square of pixels by closed outlines.
pub(super) struct Mask {
    /// The square and a margin around it: the rasterizer wraps what leaves its canvas on the right.
    canvas: Rasterizer,
    side: usize,
    margin: usize,
}

impl Mask {
    /// An empty mask of `side` x `side` pixels.
    pub fn new(side: usize) -> Self {
        let margin = side / 2;
        Self { canvas: Rasterizer::new(side + 2 * margin, side + 2 * margin), side, margin }
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.canvas.clear();
    }

    /// Moves a point onto the canvas, and to its border if it lies beyond.
    fn place(&self, p: Point) -> Point {
        let last = (self.side + 2 * self.margin - 1) as f32;
        point((p.x + self.margin as f32).clamp(0.0, last), (p.y + self.margin as f32).clamp(0.0, last))
    }

    pub fn line(&mut self, a: Point, b: Point) {
        let (a, b) = (self.place(a), self.place(b));
        self.canvas.draw_line(a, b);
    }

    fn quad(&mut self, a: Point, b: Point, c: Point) {
        let (a, b, c) = (self.place(a), self.place(b), self.place(c));
        self.canvas.draw_quad(a, b, c);
    }

    /// Calls `paint(index, coverage)` for every pixel of the square that is covered, row by row.
    pub fn for_each_covered(&self, mut paint: impl FnMut(usize, f32)) {
        let width = self.side + 2 * self.margin;
        let inside = self.margin..self.margin + self.side;
        self.canvas.for_each_pixel(|index, coverage| {
            let (x, y) = (index % width, index / width);
            if coverage > 0.0 && inside.contains(&x) && inside.contains(&y) {
                paint((y - self.margin) * self.side + x - self.margin, coverage.min(1.0));
            }
        });
    }
}

//! Generated scenes with text.
//!
//! Words in nine embedded faces, some bent along an arc, in perspective, at various contrasts, with or without a plate
//! behind them, on a textured background with other shapes: strokes, boxes, ellipses, rows of bars.

use std::sync::Arc;

use super::TextRegion;
use super::word::{Word, WordStyle, random_bend, random_word};
use crate::geometry::{Bounds, Point};
use crate::image::{Image, Rect, Size};
use crate::paint::{Canvas, Coverage, Face, contrasting_colour, embedded_faces, random_colour};
use crate::{Annotated, DataError, Rng};

/// How scenes are drawn. Lengths are pixels of a 192-pixel scene and scale with its shorter side; pairs are the
/// smallest and the largest value of a uniform draw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TextScenesConfig {
    /// Size of the scenes.
    pub size: Size,
    /// Words in a scene; fewer where no place is left.
    pub words: (usize, usize),
    /// Letters of a word.
    pub letters: (usize, usize),
    /// Size of an em.
    pub font_size: (f64, f64),
    /// Deviation of the rotation, in degrees.
    pub rotation: f64,
    /// Largest move of each corner, as a part of a word's height.
    pub jitter: f64,
    /// Part of the words that are bent.
    pub bent: f64,
    /// Largest bend, as a part of a half circle.
    pub bend: f64,
    /// Smallest difference of luminance (0..255) between a word and its background.
    pub luminance_gap: (f64, f64),
    /// Share of the words on a separate plate.
    pub plates: f64,
    /// Share of the scenes with a word that is too small to read and must be ignored.
    pub illegible: f64,
    /// Part of the scenes without any text.
    pub empty: f64,
    /// Largest deviation of the texture's grid from the background colour, per channel.
    pub texture: (f64, f64),
    /// Number of shapes that are not text.
    pub distractors: (usize, usize),
    /// Deviation of the Gaussian blur.
    pub blur: (f64, f64),
    /// Deviation of the noise, in levels of 0..255.
    pub noise: (f64, f64),
}

impl Default for TextScenesConfig {
    fn default() -> Self {
        Self {
            size: Size::square(192),
            words: (1, 5),
            letters: (3, 7),
            font_size: (16.0, 34.0),
            rotation: 12.0,
            jitter: 0.12,
            bent: 0.15,
            bend: 0.4,
            luminance_gap: (45.0, 90.0),
            plates: 0.25,
            illegible: 0.1,
            empty: 0.02,
            texture: (10.0, 50.0),
            distractors: (3, 9),
            blur: (0.0, 1.0),
            noise: (2.0, 10.0),
        }
    }
}

/// Generated scenes: sample `i` is a pure function of configuration, seed and `first + i`.
#[derive(Clone)]
pub struct TextScenes {
    config: TextScenesConfig,
    seed: u64,
    first: u64,
    len: usize,
    faces: Arc<Vec<Face>>,
}

/// Attempts to find a place for a word.
const ATTEMPTS: usize = 40;

/// Smallest distance between words, in pixels of a 192-pixel scene.
const GAP: f64 = 5.0;

/// Size of an em of words too small to read, in pixels of a 192-pixel scene.
const ILLEGIBLE: (f64, f64) = (5.0, 7.0);

impl TextScenes {
    /// Where held-out samples start, far beyond any training set.
    pub const HELD_OUT: u64 = 1_000_000;

    /// Scenes `first..first + len` of the set that `config` and `seed` describe.
    ///
    /// # Errors
    /// If `config` has a side below 32 or above 4096, or a range that is empty, not finite or, where that makes no
    /// sense, negative.
    pub fn new(config: TextScenesConfig, seed: u64, first: u64, len: usize) -> Result<Self, DataError> {
        check(&config).map_err(|reason| DataError::Config(format!("text scenes: {reason}")))?;
        Ok(Self { config, seed, first, len, faces: Arc::new(embedded_faces()) })
    }

    /// Draws scene `index`.
    pub fn render(&self, index: usize) -> (Image, Vec<TextRegion>) {
        let rng = Rng::new(self.seed, 0, self.first.wrapping_add(index as u64));
        Scene::new(&self.config, &self.faces, rng).draw()
    }
}

/// A scene in the making.
struct Scene<'a> {
    config: &'a TextScenesConfig,
    faces: &'a [Face],
    rng: Rng,
    /// Pixels of the scene per pixel of a 192-pixel scene.
    unit: f64,
    canvas: Canvas,
    coverage: Coverage,
}

impl<'a> Scene<'a> {
    fn new(config: &'a TextScenesConfig, faces: &'a [Face], mut rng: Rng) -> Self {
        let amplitude = rng.uniform(config.texture.0, config.texture.1) as f32;
        let cells = 3 + rng.below(10);
        let background = random_colour(&mut rng);
        let canvas = Canvas::textured(config.size, background, cells, amplitude, &mut rng);
        let unit = config.size.width.min(config.size.height) as f64 / 192.0;
        // Shapes reach less than 45 pixels of a 192-pixel scene beyond the border.
        let coverage = Coverage::new(config.size, config.size.width.max(config.size.height) / 4);
        Self { config, faces, rng, unit, canvas, coverage }
    }

    fn within(&mut self, (low, high): (f64, f64)) -> f64 {
        self.rng.uniform(low, high)
    }

    fn count(&mut self, (low, high): (usize, usize)) -> usize {
        low + self.rng.below(high - low + 1)
    }

    fn draw(mut self) -> (Image, Vec<TextRegion>) {
        let config = self.config;
        for _ in 0..self.count(config.distractors) {
            self.distract();
        }
        let mut regions: Vec<TextRegion> = Vec::new();
        if !self.rng.chance(config.empty) {
            for _ in 0..self.count(config.words) {
                let font_size = self.within(config.font_size);
                regions.extend(self.word(font_size, &regions));
            }
            if self.rng.chance(config.illegible) {
                let font_size = self.within(ILLEGIBLE);
                let region = self.word(font_size, &regions);
                regions.extend(region.map(|region| TextRegion { ignore: true, ..region }));
            }
        }
        let blur = self.within(config.blur) * self.unit;
        let noise = self.within(config.noise) as f32;
        self.canvas.blur(blur as f32);
        (self.canvas.finish(noise, &mut self.rng), regions)
    }

    /// Draws a word where there is place for it.
    fn word(&mut self, font_size: f64, others: &[TextRegion]) -> Option<TextRegion> {
        let config = self.config;
        let letters = self.count(config.letters);
        let text = random_word(letters, &mut self.rng);
        let bent = letters > 3 && self.rng.chance(config.bent);
        let style = WordStyle {
            font_size: font_size * self.unit,
            rotation: config.rotation,
            jitter: config.jitter,
            bend: if bent { random_bend(config.bend, &mut self.rng) } else { 0.0 },
        };
        let face = &self.faces[self.rng.below(self.faces.len())];
        let (width, height) = (config.size.width as f64, config.size.height as f64);
        let (gap, edge) = (GAP * self.unit, 2.0 * self.unit);
        let word = (0..ATTEMPTS).find_map(|_| {
            let centre = Point::new(self.rng.uniform(0.0, width), self.rng.uniform(0.0, height));
            let word = Word::new(face, &text, &style, centre, &mut self.rng)?;
            let Bounds { low, high } = word.polygon.bounds();
            let inside = low.x > edge && low.y > edge && high.x < width - edge && high.y < height - edge;
            let around = Bounds { low: low - Point::new(gap, gap), high: high + Point::new(gap, gap) };
            let free = !others.iter().any(|other| other.polygon.bounds().overlaps(&around));
            (inside && free).then_some(word)
        })?;
        let bounds = word.polygon.bounds();
        let gap = self.within(config.luminance_gap) as f32;
        let mut behind = self.mean(&bounds);
        if self.rng.chance(config.plates) {
            behind = contrasting_colour(behind, gap / 2.0, &mut self.rng);
            let grow = 1.0 + self.rng.uniform(0.1, 0.4);
            let centre = word.polygon.centre();
            let corners: Vec<Point> = word.polygon.points().iter().map(|&p| centre + (p - centre) * grow).collect();
            self.coverage.clear();
            self.coverage.polygon(&corners);
            self.canvas.fill(&self.coverage, behind);
        }
        let colour = contrasting_colour(behind, gap, &mut self.rng);
        self.coverage.clear();
        word.draw(&mut self.coverage);
        self.canvas.fill(&self.coverage, colour);
        Some(TextRegion { polygon: word.polygon, text, ignore: false })
    }

    /// The mean colour inside bounds, which must be in the scene.
    fn mean(&self, bounds: &Bounds) -> [f32; 3] {
        let (x, y) = (bounds.low.x.max(0.0) as usize, bounds.low.y.max(0.0) as usize);
        let size = self.config.size;
        let width = (bounds.width().ceil() as usize).clamp(1, size.width - x);
        let height = (bounds.height().ceil() as usize).clamp(1, size.height - y);
        self.canvas.mean(Rect::new(x, y, width, height))
    }

    /// Draws a shape that is no text.
    fn distract(&mut self) {
        let size = self.config.size;
        let centre = Point::new(self.rng.unit() * size.width as f64, self.rng.unit() * size.height as f64);
        let colour = random_colour(&mut self.rng);
        let half = Point::new(self.within((4.0, 30.0)) * self.unit, self.within((4.0, 30.0)) * self.unit);
        let angle = self.within((0.0, std::f64::consts::TAU));
        let turn = (libm::sin(angle), libm::cos(angle));
        let place = |x: f64, y: f64| {
            let (x, y) = (x * half.x, y * half.y);
            centre + Point::new(x * turn.1 - y * turn.0, x * turn.0 + y * turn.1)
        };
        self.coverage.clear();
        match self.rng.below(8) {
            0..=2 => return self.canvas.stroke(&mut self.coverage, &mut self.rng),
            3..=4 => {
                let square = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)].map(|(x, y)| place(x, y));
                self.coverage.polygon(&square);
            }
            5..=6 => {
                let ellipse: Vec<Point> = (0..32)
                    .map(|i| f64::from(i) * std::f64::consts::TAU / 32.0)
                    .map(|t| place(libm::cos(t), libm::sin(t)))
                    .collect();
                self.coverage.polygon(&ellipse);
            }
            _ => {
                // Bars like those of a fence: as dense as letters, but all alike.
                let bars = 3 + self.rng.below(5);
                for i in 0..bars {
                    let left = 2.0 * i as f64 / bars as f64 - 1.0;
                    let right = left + 1.0 / bars as f64;
                    let bar = [(left, -1.0), (right, -1.0), (right, 1.0), (left, 1.0)].map(|(x, y)| place(x, y));
                    self.coverage.polygon(&bar);
                }
            }
        }
        self.canvas.fill(&self.coverage, colour);
    }
}

fn check(config: &TextScenesConfig) -> Result<(), String> {
    let sided = |side: usize| (32..=4096).contains(&side);
    if !sided(config.size.width) || !sided(config.size.height) {
        return Err(format!("scenes of {} pixels", config.size));
    }
    let around_zero = |limit: f64| (-limit, limit);
    let ranges = [
        ("font_size", config.font_size, 4.0),
        ("rotation", around_zero(config.rotation), -180.0),
        ("jitter", (0.0, config.jitter), 0.0),
        ("luminance_gap", config.luminance_gap, 0.0),
        ("texture", config.texture, 0.0),
        ("blur", config.blur, 0.0),
        ("noise", config.noise, 0.0),
    ];
    for (name, (low, high), least) in ranges {
        if !(low >= least && low <= high && high <= 1e4) {
            return Err(format!("{name} from {low} to {high}"));
        }
    }
    let counts = [("words", config.words, 0), ("letters", config.letters, 1), ("distractors", config.distractors, 0)];
    for (name, (low, high), least) in counts {
        if low < least || low > high || high > 1000 {
            return Err(format!("{name} from {low} to {high}"));
        }
    }
    let parts = [
        ("bent", config.bent),
        ("bend", config.bend),
        ("plates", config.plates),
        ("illegible", config.illegible),
        ("empty", config.empty),
    ];
    match parts.into_iter().find(|(_, part)| !(0.0..=1.0).contains(part)) {
        Some((name, part)) => Err(format!("{name} is {part}, which is not a part of 1")),
        None => Ok(()),
    }
}

impl Annotated<Vec<TextRegion>> for TextScenes {
    fn len(&self) -> usize {
        self.len
    }

    fn name(&self, index: usize) -> String {
        format!("text scenes(seed {})[{}]", self.seed, self.first.wrapping_add(index as u64))
    }

    fn load(&self, index: usize) -> Result<(Image, Vec<TextRegion>), DataError> {
        Ok(self.render(index))
    }
}

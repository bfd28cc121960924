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
use crate::{Annotated, DataError, Rng, checks::Checks};
use zoo_settings as settings;

/// Letters of a word.
const LETTERS: [usize; 2] = [3, 7];
/// Largest move of each corner, as a part of a word's height.
const JITTER: f64 = 0.12;
/// Largest bend, as a part of a half circle.
const BEND: f64 = 0.4;
/// Share of the words on a separate plate.
const PLATES: f64 = 0.25;
/// Largest deviation of the texture's grid from the background colour, per channel.
const TEXTURE: [f64; 2] = [10.0, 50.0];
/// Deviation of the Gaussian blur, in pixels of a 192-pixel scene.
const BLUR: [f64; 2] = [0.0, 1.0];

/// Generated scenes: sample `i` is a pure function of the settings, their seed and `first + i`.
#[derive(Clone)]
pub struct TextScenes {
    settings: settings::TextScenes,
    first: u64,
    len: usize,
    faces: Arc<Vec<Face>>,
}

/// Attempts to find a place for a word.
const ATTEMPTS: usize = 40;

/// Smallest distance between words, in pixels of a 192-pixel scene.
const GAP: f64 = 5.0;

/// Size of an em of words too small to read, in pixels of a 192-pixel scene.
const ILLEGIBLE: [f64; 2] = [5.0, 7.0];

impl TextScenes {
    /// Where held-out samples start, far beyond any training set.
    pub const HELD_OUT: u64 = 1_000_000;

    /// Scenes `first..first + len` of the set that the settings describe.
    ///
    /// # Errors
    /// If a side is below 32 or above 4096, or a range is empty, not finite or, where that makes no sense, negative.
    pub fn new(settings: &settings::TextScenes, first: u64, len: usize) -> Result<Self, DataError> {
        const MOST: f64 = 1e4;
        Checks::of("text scenes")
            .size(settings.size.into(), 32)
            .range("font", settings.font, [4.0, MOST])
            .limit("rotation", settings.rotation, 180.0)
            .range("contrast", settings.contrast, [0.0, MOST])
            .range("noise", settings.noise, [0.0, MOST])
            .count("words", settings.words, 1000)
            .count("distractors", settings.distractors, 1000)
            .limit("bent", settings.bent, 1.0)
            .limit("illegible", settings.illegible, 1.0)
            .limit("empty", settings.empty, 1.0)
            .done()?;
        Ok(Self { settings: settings.clone(), first, len, faces: Arc::new(embedded_faces()) })
    }

    /// Draws scene `index`.
    pub fn render(&self, index: usize) -> (Image, Vec<TextRegion>) {
        let rng = Rng::new(self.settings.seed, 0, self.first.wrapping_add(index as u64));
        Scene::new(&self.settings, &self.faces, rng).draw()
    }
}

/// A scene in the making.
struct Scene<'a> {
    settings: &'a settings::TextScenes,
    size: Size,
    faces: &'a [Face],
    rng: Rng,
    /// Pixels of the scene per pixel of a 192-pixel scene.
    unit: f64,
    canvas: Canvas,
    coverage: Coverage,
}

impl<'a> Scene<'a> {
    fn new(settings: &'a settings::TextScenes, faces: &'a [Face], mut rng: Rng) -> Self {
        let size = Size::from(settings.size);
        let amplitude = rng.within(TEXTURE) as f32;
        let cells = 3 + rng.below(10);
        let background = random_colour(&mut rng);
        let canvas = Canvas::textured(size, background, cells, amplitude, &mut rng);
        let unit = size.width.min(size.height) as f64 / 192.0;
        // Shapes reach less than 45 pixels of a 192-pixel scene beyond the border.
        let coverage = Coverage::new(size, size.width.max(size.height) / 4);
        Self { settings, size, faces, rng, unit, canvas, coverage }
    }

    fn draw(mut self) -> (Image, Vec<TextRegion>) {
        let settings = self.settings;
        for _ in 0..self.rng.count(settings.distractors) {
            self.distract();
        }
        let mut regions: Vec<TextRegion> = Vec::new();
        if !self.rng.chance(settings.empty) {
            for _ in 0..self.rng.count(settings.words) {
                let font_size = self.rng.within(settings.font);
                regions.extend(self.word(font_size, &regions));
            }
            if self.rng.chance(settings.illegible) {
                let font_size = self.rng.within(ILLEGIBLE);
                let region = self.word(font_size, &regions);
                regions.extend(region.map(|region| TextRegion { ignore: true, ..region }));
            }
        }
        let blur = self.rng.within(BLUR) * self.unit;
        let noise = self.rng.within(settings.noise) as f32;
        self.canvas.blur(blur as f32);
        (self.canvas.finish(noise, &mut self.rng), regions)
    }

    /// Draws a word where there is place for it.
    fn word(&mut self, font_size: f64, others: &[TextRegion]) -> Option<TextRegion> {
        let settings = self.settings;
        let letters = self.rng.count(LETTERS);
        let text = random_word(letters, &mut self.rng);
        let bent = letters > 3 && self.rng.chance(settings.bent);
        let style = WordStyle {
            font_size: font_size * self.unit,
            rotation: settings.rotation,
            jitter: JITTER,
            bend: if bent { random_bend(BEND, &mut self.rng) } else { 0.0 },
        };
        let face = &self.faces[self.rng.below(self.faces.len())];
        let (width, height) = (self.size.width as f64, self.size.height as f64);
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
        let gap = self.rng.within(settings.contrast) as f32;
        let mut behind = self.mean(&bounds);
        if self.rng.chance(PLATES) {
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
        let size = self.size;
        let width = (bounds.width().ceil() as usize).clamp(1, size.width - x);
        let height = (bounds.height().ceil() as usize).clamp(1, size.height - y);
        self.canvas.mean(Rect::new(x, y, width, height))
    }

    /// Draws a shape that is no text.
    fn distract(&mut self) {
        let size = self.size;
        let centre = Point::new(self.rng.unit() * size.width as f64, self.rng.unit() * size.height as f64);
        let colour = random_colour(&mut self.rng);
        let half = Point::new(self.rng.within([4.0, 30.0]) * self.unit, self.rng.within([4.0, 30.0]) * self.unit);
        let angle = self.rng.within([0.0, std::f64::consts::TAU]);
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

impl Annotated<Vec<TextRegion>> for TextScenes {
    fn len(&self) -> usize {
        self.len
    }

    fn name(&self, index: usize) -> String {
        format!("text scenes(seed {})[{}]", self.settings.seed, self.first.wrapping_add(index as u64))
    }

    fn load(&self, index: usize) -> Result<(Image, Vec<TextRegion>), DataError> {
        Ok(self.render(index))
    }
}

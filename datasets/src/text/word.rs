//! A rendered word and its outline.

use std::f64::consts::PI;

use crate::Rng;
use crate::geometry::{Point, Polygon};
use crate::paint::{Coverage, Face, Outline};

/// How words are placed.
#[derive(Debug, Clone, Copy)]
pub(super) struct WordStyle {
    /// Size of an em in pixels.
    pub font_size: f64,
    /// Deviation of the rotation, in degrees.
    pub rotation: f64,
    /// Largest move of each corner, as a part of the word's height.
    pub jitter: f64,
    /// Angle from the first letter to the last along an arc, in radians; 0 is straight, negative bends upwards.
    pub bend: f64,
}

/// A word in its place.
pub(super) struct Word {
    outline: Outline,
    shape: WordShape,
    /// Its outline in pixels; centres of pixels are whole numbers.
    pub polygon: Polygon,
}

/// From ems around the word's centre to pixels.
#[derive(Debug, Clone, Copy)]
struct WordShape {
    font_size: f64,
    /// Half the width and height of the word, with a small border, in ems.
    half: (f64, f64),
    bend: f64,
    /// Moves of the upper left, upper right, lower right and lower left corner, in pixels.
    corners: [Point; 4],
    turn: (f64, f64),
    centre: Point,
}

/// Border around the letters, in ems.
const BORDER: f64 = 0.04;

/// Points along each of the long sides of a bent word's polygon, as in Total-Text.
const POINTS_ALONG: usize = 5;

impl Word {
    /// `text` in `face`, around `centre`; `None` if the face lacks a letter.
    pub fn new(face: &Face, text: &str, style: &WordStyle, centre: Point, rng: &mut Rng) -> Option<Self> {
        let (outline, width, height) = face.word(text)?;
        let reach = style.jitter * height * style.font_size;
        let corners = std::array::from_fn(|_| Point::new(rng.uniform(-reach, reach), rng.uniform(-reach, reach)));
        let angle = (style.rotation * f64::from(rng.normal())).to_radians();
        let shape = WordShape {
            font_size: style.font_size,
            half: (width / 2.0 + BORDER, height / 2.0 + BORDER),
            bend: style.bend,
            corners,
            turn: (libm::sin(angle), libm::cos(angle)),
            centre,
        };
        let polygon = Polygon::new(shape.outline()).ok()?.map(|p| p - Point::new(0.5, 0.5));
        Some(Self { outline, shape, polygon })
    }

    /// Covers the letters.
    pub fn draw(&self, coverage: &mut Coverage) {
        self.outline.draw(coverage, |p| self.shape.place(p));
    }
}

impl WordShape {
    /// The pixel place of a place in ems.
    fn place(&self, p: Point) -> Point {
        let (u, v) = ((p.x / self.half.0 + 1.0) / 2.0, (p.y / self.half.1 + 1.0) / 2.0);
        let weights = [(1.0 - u) * (1.0 - v), u * (1.0 - v), u * v, (1.0 - u) * v];
        let moved = self.corners.iter().zip(weights).fold(Point::default(), |sum, (&corner, w)| sum + corner * w);
        let bent = if self.bend == 0.0 {
            p
        } else {
            let radius = 2.0 * self.half.0 / self.bend;
            let angle = p.x / radius;
            // The middle of the word stays at the origin.
            Point::new((radius - p.y) * libm::sin(angle), radius - (radius - p.y) * libm::cos(angle))
        };
        let p = bent * self.font_size + moved;
        let (sin, cos) = self.turn;
        self.centre + Point::new(p.x * cos - p.y * sin, p.x * sin + p.y * cos)
    }

    /// The outline around all letters, from the upper left on, clockwise as seen on the screen.
    fn outline(&self) -> Vec<Point> {
        let along = if self.bend == 0.0 { 2 } else { POINTS_ALONG };
        let at = |i: usize, y: f64| {
            self.place(Point::new(self.half.0 * (2.0 * i as f64 / (along - 1) as f64 - 1.0), y * self.half.1))
        };
        (0..along).map(|i| at(i, -1.0)).chain((0..along).rev().map(|i| at(i, 1.0))).collect()
    }
}

/// A made-up word of `letters` characters: capitals, small letters, a mixture, or digits.
pub(super) fn random_word(letters: usize, rng: &mut Rng) -> String {
    let of = |first: u8, count: usize, rng: &mut Rng| char::from(first + rng.below(count) as u8);
    let style = rng.below(8);
    (0..letters)
        .map(|i| match style {
            0..=2 => of(b'A', 26, rng),
            3..=4 => of(b'a', 26, rng),
            5..=6 if i == 0 => of(b'A', 26, rng),
            5..=6 => of(b'a', 26, rng),
            _ => of(b'0', 10, rng),
        })
        .collect()
}

/// A bend of at least a tenth and at most `largest` of a half circle, to either side.
pub(super) fn random_bend(largest: f64, rng: &mut Rng) -> f64 {
    let size = rng.uniform(0.1_f64.min(largest), largest) * PI;
    if rng.chance(0.5) { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Size;
    use crate::paint::embedded_faces;

    /// Letters lie inside the polygon and fill it from side to side.
    #[test]
    fn polygons_enclose_their_letters() {
        let faces = embedded_faces();
        for (i, bend) in [0.0, 0.9, -1.4].into_iter().enumerate() {
            let style = WordStyle { font_size: 24.0, rotation: 20.0, jitter: 0.1, bend };
            let mut rng = Rng::new(1, 2, i as u64);
            let size = Size::new(200, 150);
            let word = Word::new(&faces[i], "Heidelberg", &style, Point::new(100.0, 75.0), &mut rng).unwrap();
            let mut coverage = Coverage::new(size, 0);
            word.draw(&mut coverage);
            let mut inside = crate::Grid::filled(size, false);
            let corners: Vec<_> = word.polygon.points().iter().map(|p| p.truncated()).collect();
            crate::geometry::fill_polygon(&mut inside, &corners, true);
            let (mut ink, mut outside) = (0.0, 0.0);
            coverage.for_each_covered(|index, covered| {
                ink += covered;
                if !inside.values()[index] {
                    outside += covered;
                }
            });
            assert!(ink > 500.0 && outside < 0.03 * ink, "{bend}: {outside} of {ink} outside");
            assert!(word.polygon.is_simple());
            assert!(f64::from(ink) > 0.15 * word.polygon.area());
        }
    }
}

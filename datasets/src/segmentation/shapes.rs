//! Generated scenes of shapes: the class depends only on the outline.
//!
//! Shapes with random position, size, angle, colour and texture overlap on a textured background with strokes, which
//! belong to the background. Partly covered pixels have no class, like contours in PASCAL VOC.

use std::f64::consts::TAU;

use super::{LabelMap, VOID};
use crate::geometry::Point;
use crate::image::{Image, Size};
use crate::paint::{Canvas, Coverage, random_colour};
use crate::{Annotated, DataError, Rng, checks::Checks};
use zoo_settings as settings;

/// The classes of pixels, in the order of the labels.
pub(crate) const CLASSES: [&str; 5] = ["background", "disc", "triangle", "square", "star"];

/// Corners of a polygon in place of a circle.
const ROUND: usize = 48;

/// Distance of a star's inner corners from its centre, over that of its tips: that of a regular pentagram.
const WAIST: f64 = 0.381_966_011_250_105;

/// Generated scenes: sample `i` is a pure function of the settings, their seed and `first + i`.
#[derive(Debug, Clone)]
pub struct Shapes {
    settings: settings::Shapes,
    first: u64,
    len: usize,
    classes: Vec<String>,
}

impl Shapes {
    /// Where held-out samples start, far beyond any training set.
    pub const HELD_OUT: u64 = 1_000_000;

    /// Scenes `first..first + len` of the set that the settings describe.
    ///
    /// # Errors
    /// If a side is below 16 or above 4096, or a range is empty, negative or not finite.
    pub fn new(settings: &settings::Shapes, first: u64, len: usize) -> Result<Self, DataError> {
        Checks::of("scenes of shapes")
            .size(settings.size.into(), 16)
            .count("shapes", settings.shapes, 1000)
            .range("radius", settings.radius, [0.0, 1.0])
            .range("contrast", settings.contrast, [0.0, 255.0])
            .count("strokes", [0, settings.strokes], 1000)
            .range("noise", settings.noise, [0.0, 255.0])
            .done()?;
        Ok(Self { settings: settings.clone(), first, len, classes: CLASSES.map(str::to_owned).to_vec() })
    }

    /// Draws scene `index`.
    pub fn render(&self, index: usize) -> (Image, LabelMap) {
        let settings = &self.settings;
        let mut rng = Rng::new(settings.seed, 0, self.first.wrapping_add(index as u64));
        let size = Size::from(settings.size);
        let side = size.width.min(size.height) as f64;
        let background = random_colour(&mut rng);
        let (cells, amplitude) = (3 + rng.below(8), rng.uniform(5.0, 30.0) as f32);
        let mut canvas = Canvas::textured(size, background, cells, amplitude, &mut rng);
        let mut labels = LabelMap::filled(size, 0);
        let mut coverage = Coverage::new(size, size.width.max(size.height));
        for _ in 0..settings.strokes {
            canvas.stroke(&mut coverage, &mut rng);
        }
        for _ in 0..rng.count(settings.shapes) {
            let class = 1 + rng.below(CLASSES.len() - 1);
            let radius = rng.within(settings.radius) * side;
            let centre = Point::new(rng.unit() * size.width as f64, rng.unit() * size.height as f64);
            coverage.clear();
            coverage.polygon(&outline(class, centre, radius, rng.uniform(0.0, TAU)));
            let middle = centre.y as usize * size.width + centre.x as usize;
            canvas.fill_contrasting(&coverage, middle, settings.contrast, &mut rng);
            coverage.for_each_covered(|index, covered| {
                // The rasterizer sums areas in f32, and leaves a little behind the last edge of a row.
                match covered {
                    whole if whole > 0.999 => labels.values_mut()[index] = class as u8,
                    part if part > 0.001 => labels.values_mut()[index] = VOID,
                    _ => {}
                }
            });
        }
        let noise = rng.within(settings.noise) as f32;
        (canvas.finish(noise, &mut rng), labels)
    }
}

/// Corners of a shape that touches a circle from within: that of a class, or for larger numbers a star.
pub(crate) fn outline(class: usize, centre: Point, radius: f64, angle: f64) -> Vec<Point> {
    let (corners, waist) = match class {
        1 => (ROUND, 1.0),
        2 => (3, 1.0),
        3 => (4, 1.0),
        _ => (10, WAIST),
    };
    let corner = |i: usize| {
        let (at, reach) = (angle + TAU * i as f64 / corners as f64, if i % 2 == 1 { waist * radius } else { radius });
        centre + Point::new(reach * libm::cos(at), reach * libm::sin(at))
    };
    (0..corners).map(corner).collect()
}

impl Annotated<LabelMap> for Shapes {
    fn len(&self) -> usize {
        self.len
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn name(&self, index: usize) -> String {
        format!("shapes seed {} sample {}", self.settings.seed, self.first.wrapping_add(index as u64))
    }

    fn load(&self, index: usize) -> Result<(Image, LabelMap), DataError> {
        Ok(self.render(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_depends_on_its_number_alone() {
        let settings = settings::Shapes { seed: 3, ..Default::default() };
        let whole = Shapes::new(&settings, 0, 8).unwrap();
        let part = Shapes::new(&settings, 5, 3).unwrap();
        assert_eq!(whole.render(6), part.render(1));
        let other = settings::Shapes { seed: 4, ..settings };
        assert_ne!(whole.render(6), Shapes::new(&other, 0, 8).unwrap().render(6));
    }

    /// Areas of the shapes in a circle of radius r: pi r^2 nearly, 3 sqrt(3)/4 r^2, 2 r^2, and ten triangles of
    /// r * waist r * sin(36 degrees) / 2.
    #[test]
    fn outlines_have_their_areas() {
        for (class, share) in [(1, 3.1326), (2, 1.299), (3, 2.0), (4, 5.0 * WAIST * 0.587_785)] {
            let mut coverage = Coverage::new(Size::square(64), 64);
            coverage.polygon(&outline(class, Point::new(32.0, 32.0), 20.0, 0.7));
            let mut area = 0.0;
            coverage.for_each_covered(|_, covered| area += f64::from(covered));
            assert!((area / 400.0 - share).abs() < 2e-3, "{class}: {}", area / 400.0);
        }
    }

    #[test]
    fn every_class_occurs_and_contours_are_void() {
        let set = Shapes::new(&settings::Shapes::default(), 0, 64).unwrap();
        let mut counts = [0usize; 256];
        for index in 0..set.len() {
            set.render(index).1.values().iter().for_each(|label| counts[usize::from(*label)] += 1);
        }
        let all = counts.iter().sum::<usize>() as f64;
        assert_eq!(counts[CLASSES.len()..255].iter().sum::<usize>(), 0);
        assert!((1..5).all(|class| counts[class] as f64 > 0.01 * all), "{:?}", &counts[..5]);
        assert!((0.01..0.1).contains(&(counts[255] as f64 / all)), "{} void", counts[255]);
    }

    #[test]
    fn settings_without_sense_are_refused() {
        let good = settings::Shapes::default;
        for bad in [
            settings::Shapes { size: settings::ImageSize::Square(8), ..good() },
            settings::Shapes { shapes: [3, 1], ..good() },
            settings::Shapes { radius: [0.2, 0.1], ..good() },
            settings::Shapes { noise: [0.0, f64::NAN], ..good() },
        ] {
            assert!(matches!(Shapes::new(&bad, 0, 1), Err(DataError::Config(_))), "{bad:?}");
        }
    }
}

//! Generated scenes of shapes: the class depends only on the outline.
//!
//! Shapes with random position, size, angle, colour and texture overlap on a textured background with strokes, which
//! belong to the background. Partly covered pixels have no class, like contours in PASCAL VOC.

use std::f64::consts::TAU;

use super::{LabelMap, VOID};
use crate::geometry::Point;
use crate::image::{Image, Size};
use crate::paint::{Canvas, Coverage, random_colour};
use crate::{Annotated, DataError, Rng};

/// How scenes are drawn. Lengths are shares of the shorter side; pairs are the smallest and the largest value of a
/// uniform draw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShapesConfig {
    /// Size of the scenes.
    pub size: Size,
    /// Number of shapes in a scene.
    pub shapes: (usize, usize),
    /// Radius of a shape.
    pub radius: (f64, f64),
    /// Smallest difference of luminance (0..255) between a shape and the background of its centre.
    pub luminance_gap: (f64, f64),
    /// Number of lines drawn over the background.
    pub strokes: usize,
    /// Deviation of the noise, in levels of 0..255.
    pub noise: (f64, f64),
}

impl Default for ShapesConfig {
    fn default() -> Self {
        Self {
            size: Size::square(64),
            shapes: (1, 4),
            radius: (0.12, 0.26),
            luminance_gap: (30.0, 70.0),
            strokes: 3,
            noise: (2.0, 10.0),
        }
    }
}

/// The classes of pixels, in the order of the labels.
pub(crate) const CLASSES: [&str; 5] = ["background", "disc", "triangle", "square", "star"];

/// Corners of a polygon in place of a circle.
const ROUND: usize = 48;

/// Distance of a star's inner corners from its centre, over that of its tips: that of a regular pentagram.
const WAIST: f64 = 0.381_966_011_250_105;

/// Generated scenes: sample `i` is a pure function of configuration, seed and `first + i`.
#[derive(Debug, Clone)]
pub struct Shapes {
    config: ShapesConfig,
    seed: u64,
    first: u64,
    len: usize,
    classes: Vec<String>,
}

impl Shapes {
    /// Where held-out samples start, far beyond any training set.
    pub const HELD_OUT: u64 = 1_000_000;

    /// Scenes `first..first + len` of the set that `config` and `seed` describe.
    ///
    /// # Errors
    /// If `config` has a side below 16 or above 4096, or a range that is empty, negative or not finite.
    pub fn new(config: ShapesConfig, seed: u64, first: u64, len: usize) -> Result<Self, DataError> {
        let ShapesConfig { size, shapes, radius, luminance_gap, strokes, noise } = config;
        let sided = |side: usize| (16..=4096).contains(&side);
        let ordered = |(low, high): (f64, f64), most: f64| 0.0 <= low && low <= high && high <= most;
        let sane = sided(size.width) && sided(size.height) && shapes.0 <= shapes.1 && shapes.1 <= 1000;
        let sane = sane && ordered(radius, 1.0) && ordered(luminance_gap, 255.0) && ordered(noise, 255.0);
        if !sane || strokes > 1000 {
            return Err(DataError::Config(format!("scenes of shapes: {config:?}")));
        }
        Ok(Self { config, seed, first, len, classes: CLASSES.map(str::to_owned).to_vec() })
    }

    /// Draws scene `index`.
    pub fn render(&self, index: usize) -> (Image, LabelMap) {
        let config = &self.config;
        let mut rng = Rng::new(self.seed, 0, self.first.wrapping_add(index as u64));
        let (size, side) = (config.size, config.size.width.min(config.size.height) as f64);
        let background = random_colour(&mut rng);
        let (cells, amplitude) = (3 + rng.below(8), rng.uniform(5.0, 30.0) as f32);
        let mut canvas = Canvas::textured(size, background, cells, amplitude, &mut rng);
        let mut labels = LabelMap::filled(size, 0);
        let mut coverage = Coverage::new(size, size.width.max(size.height));
        for _ in 0..config.strokes {
            canvas.stroke(&mut coverage, &mut rng);
        }
        let (fewest, most) = config.shapes;
        for _ in 0..fewest + rng.below(most - fewest + 1) {
            let class = 1 + rng.below(CLASSES.len() - 1);
            let radius = rng.uniform(config.radius.0, config.radius.1) * side;
            let centre = Point::new(rng.unit() * size.width as f64, rng.unit() * size.height as f64);
            coverage.clear();
            coverage.polygon(&outline(class, centre, radius, rng.uniform(0.0, TAU)));
            let middle = centre.y as usize * size.width + centre.x as usize;
            canvas.fill_contrasting(&coverage, middle, config.luminance_gap, &mut rng);
            coverage.for_each_covered(|index, covered| {
                // The rasterizer sums areas in f32, and leaves a little behind the last edge of a row.
                match covered {
                    whole if whole > 0.999 => labels.values_mut()[index] = class as u8,
                    part if part > 0.001 => labels.values_mut()[index] = VOID,
                    _ => {}
                }
            });
        }
        let noise = rng.uniform(config.noise.0, config.noise.1) as f32;
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
        format!("shapes seed {} sample {}", self.seed, self.first.wrapping_add(index as u64))
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
        let whole = Shapes::new(ShapesConfig::default(), 3, 0, 8).unwrap();
        let part = Shapes::new(ShapesConfig::default(), 3, 5, 3).unwrap();
        assert_eq!(whole.render(6), part.render(1));
        assert_ne!(whole.render(6), Shapes::new(ShapesConfig::default(), 4, 0, 8).unwrap().render(6));
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
        let set = Shapes::new(ShapesConfig::default(), 0, 0, 64).unwrap();
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
        let good = ShapesConfig::default();
        for bad in [
            ShapesConfig { size: Size::square(8), ..good },
            ShapesConfig { shapes: (3, 1), ..good },
            ShapesConfig { radius: (0.2, 0.1), ..good },
            ShapesConfig { noise: (0.0, f64::NAN), ..good },
        ] {
            assert!(matches!(Shapes::new(bad, 0, 0, 1), Err(DataError::Config(_))), "{bad:?}");
        }
    }
}

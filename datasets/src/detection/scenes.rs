//! Generated scenes of shapes with boxes: a class depends only on the outline.
//!
//! Shapes with random position, size, angle, colour and texture lie on a textured background, among strokes, crosses
//! and half discs, which are no objects. Objects lie inside the image and hardly cover each other.

use std::f64::consts::{PI, TAU};

use super::{BoundingBox, Object, Role};
use crate::geometry::Point;
use crate::image::{Image, Size};
use crate::paint::{Canvas, Coverage, random_colour};
use crate::segmentation::{CLASSES, outline};
use crate::{Annotated, DataError, Rng};

/// How scenes are drawn. Lengths are shares of the shorter side; pairs are the smallest and the largest value of a
/// uniform draw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BoxScenesConfig {
    /// Size of the scenes.
    pub size: Size,
    /// Number of objects in a scene; fewer if there is no room for them.
    pub objects: (usize, usize),
    /// Number of shapes that are no objects.
    pub distractors: (usize, usize),
    /// Radius of a shape.
    pub radius: (f64, f64),
    /// Smallest difference of luminance (0..255) between a shape and the background of its centre.
    pub luminance_gap: (f64, f64),
    /// Number of lines drawn over the background.
    pub strokes: usize,
    /// Deviation of the noise, in levels of 0..255.
    pub noise: (f64, f64),
}

impl Default for BoxScenesConfig {
    fn default() -> Self {
        Self {
            size: Size::square(96),
            objects: (1, 4),
            distractors: (0, 3),
            radius: (0.08, 0.24),
            luminance_gap: (40.0, 90.0),
            strokes: 3,
            noise: (2.0, 10.0),
        }
    }
}

/// Corners of half a circle.
const HALF_ROUND: usize = 24;

/// Places that are tried for an object before it is left out.
const TRIES: usize = 30;

/// Largest part of the smaller one of two boxes that may lie in the other.
const COMMON: f64 = 0.1;

/// Generated scenes: sample `i` is a pure function of configuration, seed and `first + i`.
#[derive(Debug, Clone)]
pub struct BoxScenes {
    config: BoxScenesConfig,
    seed: u64,
    first: u64,
    len: usize,
    classes: Vec<String>,
}

impl BoxScenes {
    /// Where held-out samples start, far beyond any training set.
    pub const HELD_OUT: u64 = 1_000_000;

    /// Scenes `first..first + len` of the set that `config` and `seed` describe.
    ///
    /// # Errors
    /// If `config` has a side below 16 or above 4096, or a range that is empty, negative or not finite.
    pub fn new(config: BoxScenesConfig, seed: u64, first: u64, len: usize) -> Result<Self, DataError> {
        let BoxScenesConfig { size, objects, distractors, radius, luminance_gap, strokes, noise } = config;
        let sided = |side: usize| (16..=4096).contains(&side);
        let counted = |(low, high): (usize, usize)| low <= high && high <= 1000;
        let ordered = |(low, high): (f64, f64), most: f64| 0.0 <= low && low <= high && high <= most;
        let sane = sided(size.width) && sided(size.height) && counted(objects) && counted(distractors);
        let sane = sane && radius.0 > 0.0 && ordered(radius, 0.5) && ordered(luminance_gap, 255.0);
        if !sane || !ordered(noise, 255.0) || strokes > 1000 {
            return Err(DataError::Config(format!("scenes of shapes with boxes: {config:?}")));
        }
        Ok(Self { config, seed, first, len, classes: CLASSES.map(str::to_owned).to_vec() })
    }

    /// Draws scene `index`.
    pub fn render(&self, index: usize) -> (Image, Vec<Object>) {
        let config = &self.config;
        let mut rng = Rng::new(self.seed, 0, self.first.wrapping_add(index as u64));
        let (size, side) = (config.size, config.size.width.min(config.size.height) as f64);
        let background = random_colour(&mut rng);
        let (cells, amplitude) = (3 + rng.below(8), rng.uniform(5.0, 30.0) as f32);
        let mut canvas = Canvas::textured(size, background, cells, amplitude, &mut rng);
        let mut coverage = Coverage::new(size, size.width.max(size.height));
        for _ in 0..config.strokes {
            canvas.stroke(&mut coverage, &mut rng);
        }
        let mut paint = |corners: &[Point], centre: Point, rng: &mut Rng| {
            coverage.clear();
            coverage.polygon(corners);
            let middle = centre.y as usize * size.width + centre.x as usize;
            canvas.fill_contrasting(&coverage, middle, config.luminance_gap, rng);
        };
        let somewhere = |rng: &mut Rng| Point::new(rng.unit() * size.width as f64, rng.unit() * size.height as f64);
        let counted = |(low, high): (usize, usize), rng: &mut Rng| low + rng.below(high - low + 1);
        for _ in 0..counted(config.distractors, &mut rng) {
            let (centre, radius) = (somewhere(&mut rng), rng.uniform(config.radius.0, config.radius.1) * side);
            let angle = rng.uniform(0.0, TAU);
            let corners = if rng.chance(0.5) { cross(centre, radius, angle) } else { half_disc(centre, radius, angle) };
            paint(&corners, centre, &mut rng);
        }
        let mut objects: Vec<Object> = Vec::new();
        for _ in 0..counted(config.objects, &mut rng) {
            let class = 1 + rng.below(CLASSES.len() - 1);
            let (radius, angle) = (rng.uniform(config.radius.0, config.radius.1) * side, rng.uniform(0.0, TAU));
            for _ in 0..TRIES {
                let centre = somewhere(&mut rng);
                let corners = outline(class, centre, radius, angle);
                let bounds = bounds(&corners);
                if bounds.inside(size) == Some(bounds) && objects.iter().all(|other| apart(&bounds, &other.bounds)) {
                    paint(&corners, centre, &mut rng);
                    objects.push(Object { class, bounds, area: bounds.area(), role: Role::Single });
                    break;
                }
            }
        }
        let noise = rng.uniform(config.noise.0, config.noise.1) as f32;
        (canvas.finish(noise, &mut rng), objects)
    }
}

/// The smallest box around points.
fn bounds(points: &[Point]) -> BoundingBox {
    let range = |along: fn(&Point) -> f64| {
        points.iter().map(along).fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)))
    };
    let ((left, right), (top, bottom)) = (range(|p| p.x), range(|p| p.y));
    BoundingBox { x: left, y: top, width: right - left, height: bottom - top }
}

/// Whether two boxes hardly cover each other.
fn apart(a: &BoundingBox, b: &BoundingBox) -> bool {
    a.intersection(b) <= COMMON * a.area().min(b.area())
}

/// A point at a distance from `centre` in a direction.
fn at(centre: Point, reach: f64, angle: f64) -> Point {
    centre + Point::new(reach * libm::cos(angle), reach * libm::sin(angle))
}

/// A cross with four equal arms inside a circle: its width is a third of its length.
fn cross(centre: Point, radius: f64, angle: f64) -> Vec<Point> {
    // The corners of an arm are at (r', r'/3) and (r', -r'/3) with r' = r * 3 / sqrt(10); inner corners at r'/3.
    let (spread, inner) = (libm::atan2(1.0, 3.0), radius * libm::sqrt(2.0 / 10.0));
    let arm = |i: usize| {
        let towards = angle + TAU * i as f64 / 4.0;
        [
            at(centre, radius, towards - spread),
            at(centre, radius, towards + spread),
            at(centre, inner, towards + PI / 4.0),
        ]
    };
    (0..4).flat_map(arm).collect()
}

/// Half a disc; the centre of the whole one is `centre`.
fn half_disc(centre: Point, radius: f64, angle: f64) -> Vec<Point> {
    (0..=HALF_ROUND).map(|i| at(centre, radius, angle + PI * i as f64 / HALF_ROUND as f64)).collect()
}

impl Annotated<Vec<Object>> for BoxScenes {
    fn len(&self) -> usize {
        self.len
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn name(&self, index: usize) -> String {
        format!("boxed shapes seed {} sample {}", self.seed, self.first.wrapping_add(index as u64))
    }

    fn load(&self, index: usize) -> Result<(Image, Vec<Object>), DataError> {
        Ok(self.render(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_depends_on_its_number_alone() {
        let whole = BoxScenes::new(BoxScenesConfig::default(), 3, 0, 8).unwrap();
        let part = BoxScenes::new(BoxScenesConfig::default(), 3, 5, 3).unwrap();
        assert_eq!(whole.render(6), part.render(1));
        assert_ne!(whole.render(6), BoxScenes::new(BoxScenesConfig::default(), 4, 0, 8).unwrap().render(6));
    }

    #[test]
    fn objects_lie_inside_and_apart_and_all_classes_occur() {
        let config = BoxScenesConfig::default();
        let set = BoxScenes::new(config, 0, 0, 64).unwrap();
        let (mut counts, mut per_scene) = ([0; 5], Vec::new());
        for index in 0..set.len() {
            let (image, objects) = set.load(index).unwrap();
            assert_eq!(image.size(), config.size);
            for (number, object) in objects.iter().enumerate() {
                counts[object.class] += 1;
                assert_eq!(object.bounds.inside(config.size), Some(object.bounds));
                assert!(object.bounds.width > 7.0, "{object:?}");
                assert!(objects[..number].iter().all(|other| apart(&other.bounds, &object.bounds)));
            }
            per_scene.push(objects.len());
        }
        assert!(counts[0] == 0 && counts[1..].iter().all(|n| *n > 20), "{counts:?}");
        assert!((1..=4).all(|n| per_scene.contains(&n)) && per_scene.iter().all(|n| *n <= 4), "{per_scene:?}");
    }

    /// The box of a disc has sides of its diameter; of a cross, arms are a third as wide as it is long.
    #[test]
    fn outlines_by_hand() {
        let centre = Point::new(20.0, 20.0);
        let disc = bounds(&outline(1, centre, 10.0, 0.0));
        assert!((disc.x - 10.0).abs() < 1e-9 && (disc.height - 20.0).abs() < 1e-9, "{disc:?}");
        let cross = cross(centre, 10.0, 0.0);
        let reach = 30.0 / 10.0_f64.sqrt();
        let size = bounds(&cross);
        assert!((size.width - 2.0 * reach).abs() < 1e-9 && (size.height - 2.0 * reach).abs() < 1e-9, "{size:?}");
        assert!((cross[2].x - 20.0 - reach / 3.0).abs() < 1e-9 && (cross[2].y - 20.0 - reach / 3.0).abs() < 1e-9);
        assert!((bounds(&half_disc(centre, 10.0, 0.0)).height - 10.0).abs() < 1e-9);
    }

    #[test]
    fn settings_without_sense_are_refused() {
        let good = BoxScenesConfig::default();
        for bad in [
            BoxScenesConfig { size: Size::square(8), ..good },
            BoxScenesConfig { objects: (3, 1), ..good },
            BoxScenesConfig { radius: (0.0, 0.1), ..good },
            BoxScenesConfig { noise: (0.0, f64::NAN), ..good },
        ] {
            assert!(matches!(BoxScenes::new(bad, 0, 0, 1), Err(DataError::Config(_))), "{bad:?}");
        }
    }
}

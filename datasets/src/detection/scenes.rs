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
use crate::{Annotated, DataError, Rng, checks::Checks};
use zoo_settings::BoxedShapes;

/// Corners of half a circle.
const HALF_ROUND: usize = 24;

/// Places that are tried for an object before it is left out.
const TRIES: usize = 30;

/// Largest part of the smaller one of two boxes that may lie in the other.
const COMMON: f64 = 0.1;

/// Generated scenes: sample `i` is a pure function of the settings, their seed and `first + i`.
#[derive(Debug, Clone)]
pub struct BoxScenes {
    settings: BoxedShapes,
    first: u64,
    len: usize,
    classes: Vec<String>,
}

impl BoxScenes {
    /// Where held-out samples start, far beyond any training set.
    pub const HELD_OUT: u64 = 1_000_000;

    /// Scenes `first..first + len` of the set that the settings describe.
    ///
    /// # Errors
    /// If a side is below 16 or above 4096, or a range is empty, negative or not finite.
    pub fn new(settings: &BoxedShapes, first: u64, len: usize) -> Result<Self, DataError> {
        Checks::of("scenes of shapes with boxes")
            .size(settings.size.into(), 16)
            .count("objects", settings.objects, 1000)
            .count("distractors", settings.distractors, 1000)
            .range("radius", settings.radius, [f64::MIN_POSITIVE, 0.5])
            .range("contrast", settings.contrast, [0.0, 255.0])
            .count("strokes", [0, settings.strokes], 1000)
            .range("noise", settings.noise, [0.0, 255.0])
            .done()?;
        Ok(Self { settings: settings.clone(), first, len, classes: CLASSES.map(str::to_owned).to_vec() })
    }

    /// Draws scene `index`.
    pub fn render(&self, index: usize) -> (Image, Vec<Object>) {
        let settings = &self.settings;
        let mut rng = Rng::new(settings.seed, 0, self.first.wrapping_add(index as u64));
        let size = Size::from(settings.size);
        let side = size.width.min(size.height) as f64;
        let background = random_colour(&mut rng);
        let (cells, amplitude) = (3 + rng.below(8), rng.uniform(5.0, 30.0) as f32);
        let mut canvas = Canvas::textured(size, background, cells, amplitude, &mut rng);
        let mut coverage = Coverage::new(size, size.width.max(size.height));
        for _ in 0..settings.strokes {
            canvas.stroke(&mut coverage, &mut rng);
        }
        let mut paint = |corners: &[Point], centre: Point, rng: &mut Rng| {
            coverage.clear();
            coverage.polygon(corners);
            let middle = centre.y as usize * size.width + centre.x as usize;
            canvas.fill_contrasting(&coverage, middle, settings.contrast, rng);
        };
        let somewhere = |rng: &mut Rng| Point::new(rng.unit() * size.width as f64, rng.unit() * size.height as f64);
        for _ in 0..rng.count(settings.distractors) {
            let (centre, radius) = (somewhere(&mut rng), rng.within(settings.radius) * side);
            let angle = rng.uniform(0.0, TAU);
            let corners = if rng.chance(0.5) { cross(centre, radius, angle) } else { half_disc(centre, radius, angle) };
            paint(&corners, centre, &mut rng);
        }
        let mut objects: Vec<Object> = Vec::new();
        for _ in 0..rng.count(settings.objects) {
            let class = 1 + rng.below(CLASSES.len() - 1);
            let (radius, angle) = (rng.within(settings.radius) * side, rng.uniform(0.0, TAU));
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
        let noise = rng.within(settings.noise) as f32;
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
        format!("boxed shapes seed {} sample {}", self.settings.seed, self.first.wrapping_add(index as u64))
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
        let settings = BoxedShapes { seed: 3, ..Default::default() };
        let whole = BoxScenes::new(&settings, 0, 8).unwrap();
        let part = BoxScenes::new(&settings, 5, 3).unwrap();
        assert_eq!(whole.render(6), part.render(1));
        let other = BoxedShapes { seed: 4, ..settings };
        assert_ne!(whole.render(6), BoxScenes::new(&other, 0, 8).unwrap().render(6));
    }

    #[test]
    fn objects_lie_inside_and_apart_and_all_classes_occur() {
        let size = Size::square(96);
        let set = BoxScenes::new(&BoxedShapes::default(), 0, 64).unwrap();
        let (mut counts, mut per_scene) = ([0; 5], Vec::new());
        for index in 0..set.len() {
            let (image, objects) = set.load(index).unwrap();
            assert_eq!(image.size(), size);
            for (number, object) in objects.iter().enumerate() {
                counts[object.class] += 1;
                assert_eq!(object.bounds.inside(size), Some(object.bounds));
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
        let good = BoxedShapes::default;
        for bad in [
            BoxedShapes { size: zoo_settings::ImageSize::Square(8), ..good() },
            BoxedShapes { objects: [3, 1], ..good() },
            BoxedShapes { radius: [0.0, 0.1], ..good() },
            BoxedShapes { noise: [0.0, f64::NAN], ..good() },
        ] {
            assert!(matches!(BoxScenes::new(&bad, 0, 1), Err(DataError::Config(_))), "{bad:?}");
        }
    }
}

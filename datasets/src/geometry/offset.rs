//! Offsets of polygons (Vatti), as in pyclipper for DB.
//!
//! The outline is moved as in Clipper 6.4.2 (`ClipperOffset`, round joins, arc tolerance 0.25, whole coordinates): its
//! successor Clipper2 rounds arcs differently. The parts of the moved outline that turned over are removed by a union.

use i_overlay::core::fill_rule::FillRule;
use i_overlay::core::overlay::Overlay;
use i_overlay::core::overlay_rule::OverlayRule;
use i_overlay::i_float::int::point::IntPoint;

use super::{Pixel, Point, Polygon};

/// Clipper's default tolerance for arcs, in pixels.
const ARC_TOLERANCE: f64 = 0.25;

/// Steps per pixel in which crossings are worked out before they are rounded to pixels: the library cuts them to whole
/// steps, Clipper rounds them. Coordinates up to twice [`Polygon::MAX_COORDINATE`] stay within the library's 2^30.
const FINE: i32 = 256;

/// Pixels from steps, rounded.
fn coarse(steps: i32) -> i32 {
    (steps + FINE / 2).div_euclid(FINE)
}

/// The outlines (without holes) of `polygon` moved outwards by `distance` pixels, or inwards if it is negative; none if
/// nothing is left. Coordinates are cut to whole numbers first, as pyclipper does. The lowest outline comes first.
pub fn offset_polygon(polygon: &Polygon, distance: f64) -> Vec<Vec<Pixel>> {
    let corners = outline(polygon);
    if corners.len() < 3 || !distance.is_finite() || distance.abs() > Polygon::MAX_COORDINATE {
        return Vec::new();
    }
    let raw = if distance.abs() < 1e-20 { corners } else { Moved::new(&corners, distance).outline() };
    let raw: Vec<IntPoint<i32>> = raw.iter().map(|p| IntPoint::new(p.x * FINE, p.y * FINE)).collect();
    // Growing does not invert parts; parts that are inverted by shrinking have the other orientation. In both cases the
    // positive parts remain.
    let shapes = Overlay::from_subj(&raw).overlay(OverlayRule::Subject, FillRule::Positive);
    let mut outlines: Vec<Vec<Pixel>> = shapes
        .into_iter()
        .filter_map(|shape| shape.into_iter().next())
        .map(|contour| contour.into_iter().map(|p| Pixel::new(coarse(p.x), coarse(p.y))).collect())
        .collect();
    outlines.sort_by_key(|outline: &Vec<Pixel>| std::cmp::Reverse(outline.iter().map(|p| p.y).max()));
    outlines
}

/// Whole corners without repetitions, so that the enclosed area is positive.
fn outline(polygon: &Polygon) -> Vec<Pixel> {
    let mut corners: Vec<Pixel> = polygon.points().iter().map(|p| p.truncated()).collect();
    while corners.len() > 1 && corners.first() == corners.last() {
        corners.pop();
    }
    corners.dedup();
    let area: i64 = (0..corners.len())
        .map(|i| {
            let (a, b) = (corners[i], corners[(i + 1) % corners.len()]);
            i64::from(a.x) * i64::from(b.y) - i64::from(a.y) * i64::from(b.x)
        })
        .sum();
    if area < 0 {
        corners.reverse();
    }
    corners
}

/// An outline on its way.
struct Moved<'a> {
    corners: &'a [Pixel],
    /// Outward unit normals of the sides, from each corner to the next.
    normals: Vec<Point>,
    distance: f64,
    /// Steps of an arc per radian, and the turn of one step.
    steps_per_radian: f64,
    sin: f64,
    cos: f64,
    moved: Vec<Pixel>,
}

impl<'a> Moved<'a> {
    fn new(corners: &'a [Pixel], distance: f64) -> Self {
        let normals = (0..corners.len())
            .map(|i| {
                let side = Point::from(corners[(i + 1) % corners.len()]) - Point::from(corners[i]);
                let unit = side * (1.0 / side.length());
                Point::new(unit.y, -unit.x)
            })
            .collect();
        let tau = std::f64::consts::TAU;
        let tolerance = ARC_TOLERANCE.min(distance.abs() * ARC_TOLERANCE);
        let steps = std::f64::consts::PI / libm::acos(1.0 - tolerance / distance.abs());
        let steps = steps.min(distance.abs() * std::f64::consts::PI);
        let sin = libm::sin(tau / steps);
        Self {
            corners,
            normals,
            distance,
            steps_per_radian: steps / tau,
            sin: if distance < 0.0 { -sin } else { sin },
            cos: libm::cos(tau / steps),
            moved: Vec::with_capacity(4 * corners.len()),
        }
    }

    fn outline(mut self) -> Vec<Pixel> {
        let mut before = self.corners.len() - 1;
        for corner in 0..self.corners.len() {
            before = self.corner(corner, before);
        }
        self.moved
    }

    /// The corner between the sides `before` and `corner`; returns the side before the next one.
    fn corner(&mut self, corner: usize, before: usize) -> usize {
        let (m, n) = (self.normals[before], self.normals[corner]);
        let (mut sin, cos) = (m.cross(n), m.dot(n));
        if (sin * self.distance).abs() < 1.0 {
            if cos > 0.0 {
                // Nearly straight: one point, and Clipper continues with the previous side.
                self.push(corner, m);
                return before;
            }
        } else {
            sin = sin.clamp(-1.0, 1.0);
        }
        if sin * self.distance < 0.0 {
            // The moved sides cross; the union removes the loop.
            self.push(corner, m);
            self.moved.push(self.corners[corner]);
            self.push(corner, n);
        } else {
            let angle = libm::atan2(sin, cos);
            let steps = round(self.steps_per_radian * angle.abs()).max(1);
            let mut arm = m;
            for _ in 0..steps {
                self.push(corner, arm);
                arm = Point::new(arm.x * self.cos - self.sin * arm.y, arm.x * self.sin + arm.y * self.cos);
            }
            self.push(corner, n);
        }
        corner
    }

    /// Adds the corner, moved along a unit vector.
    fn push(&mut self, corner: usize, along: Point) {
        let p = Point::from(self.corners[corner]) + along * self.distance;
        self.moved.push(Pixel::new(round(p.x), round(p.y)));
    }
}

/// Rounds half away from zero.
fn round(value: f64) -> i32 {
    (if value < 0.0 { value - 0.5 } else { value + 0.5 }) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rectangle(width: f64, height: f64) -> Polygon {
        Polygon::rectangle(10.0, 20.0, width, height)
    }

    fn corners(outline: &[Pixel]) -> Vec<(i32, i32)> {
        let mut corners: Vec<(i32, i32)> = outline.iter().map(|p| (p.x, p.y)).collect();
        corners.sort_unstable();
        corners
    }

    #[test]
    fn a_shrunken_rectangle_is_a_rectangle() {
        for polygon in [rectangle(40.0, 30.0), rectangle(40.0, 30.0).reversed()] {
            let outlines = offset_polygon(&polygon, -5.0);
            assert_eq!(outlines.len(), 1);
            assert_eq!(corners(&outlines[0]), [(15, 25), (15, 45), (45, 25), (45, 45)]);
        }
        assert!(offset_polygon(&rectangle(40.0, 30.0), -16.0).is_empty());
    }

    #[test]
    fn a_grown_rectangle_has_round_corners() {
        let outlines = offset_polygon(&rectangle(40.0, 30.0), 10.0);
        assert_eq!(outlines.len(), 1);
        let grown = Polygon::new(outlines[0].iter().map(|&p| p.into()).collect()).unwrap();
        // Steiner's formula: area + perimeter * distance + pi * distance^2; arcs are approximated from inside.
        let exact = 1200.0 + 140.0 * 10.0 + std::f64::consts::PI * 100.0;
        assert!(grown.area() < exact && grown.area() > exact - 15.0, "{} {exact}", grown.area());
        let bounds = grown.bounds();
        assert_eq!((bounds.low, bounds.high), (Point::new(0.0, 10.0), Point::new(60.0, 60.0)));
    }

    #[test]
    fn a_dumbbell_falls_into_two_parts_the_lower_first() {
        let points = [
            (0, 0),
            (40, 0),
            (40, 40),
            (24, 40),
            (24, 60),
            (40, 60),
            (40, 90),
            (0, 90),
            (0, 60),
            (16, 60),
            (16, 40),
            (0, 40),
        ];
        let polygon = Polygon::new(points.iter().map(|&(x, y)| Pixel::new(x, y).into()).collect()).unwrap();
        let outlines = offset_polygon(&polygon, -6.0);
        assert_eq!(outlines.len(), 2);
        assert!(outlines[0].iter().all(|p| p.y > 60) && outlines[1].iter().all(|p| p.y < 40));
    }

    #[test]
    fn degenerate_polygons_have_no_outline() {
        for distance in [-3.0, 0.0, 3.0, f64::NAN, f64::INFINITY] {
            let dot = Polygon::quad([Point::new(1.0, 1.0); 4]);
            assert!(offset_polygon(&dot, distance).is_empty());
        }
    }
}

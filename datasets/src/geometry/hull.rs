//! Convex hulls and the smallest rectangle around points.

use super::{Point, Polygon};

/// The convex hull of `points`, counterclockwise with y upwards, without points on its sides (Andrew's monotone chain).
pub fn convex_hull(points: &[Point]) -> Vec<Point> {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.x.total_cmp(&b.x).then(a.y.total_cmp(&b.y)));
    sorted.dedup();
    if sorted.len() < 3 {
        return sorted;
    }
    let half = |points: &mut dyn Iterator<Item = Point>| {
        let mut chain: Vec<Point> = Vec::new();
        for p in points {
            while let [.., a, b] = chain[..]
                && (b - a).cross(p - b) <= 0.0
            {
                chain.pop();
            }
            chain.push(p);
        }
        // The last point begins the other half.
        chain.pop();
        chain
    };
    let mut hull = half(&mut sorted.iter().copied());
    hull.extend(half(&mut sorted.iter().rev().copied()));
    hull
}

/// A rectangle at any angle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RotatedRect {
    /// Corners from the upper left one on, clockwise as seen on the screen: of the two corners on the left the upper
    /// one comes first.
    pub corners: [Point; 4],
    /// The shorter side.
    pub shorter: f64,
    /// The longer side.
    pub longer: f64,
}

impl RotatedRect {
    /// As a polygon.
    pub fn polygon(&self) -> Polygon {
        Polygon::quad(self.corners)
    }
}

/// The minimum-area rectangle around `points`; `None` if there are none. One of its sides lies on a side of the convex
/// hull (Freeman and Shapira 1975), so all of those are tried.
pub fn min_area_rect(points: &[Point]) -> Option<RotatedRect> {
    let hull = convex_hull(points);
    let first = *hull.first()?;
    let mut best = (f64::INFINITY, [first; 4], 0.0, 0.0);
    for (i, &a) in hull.iter().enumerate() {
        let b = hull[(i + 1) % hull.len()];
        let length = a.distance(b);
        if length == 0.0 {
            continue;
        }
        let along = (b - a) * (1.0 / length);
        let across = Point::new(-along.y, along.x);
        let (mut low, mut high, mut far) = (f64::INFINITY, f64::NEG_INFINITY, 0.0_f64);
        for &p in &hull {
            let t = (p - a).dot(along);
            (low, high) = (low.min(t), high.max(t));
            far = far.max((p - a).dot(across));
        }
        let (width, height) = (high - low, far);
        if width * height < best.0 {
            let corner = |t: f64, s: f64| a + along * t + across * s;
            let corners = [corner(low, 0.0), corner(high, 0.0), corner(high, far), corner(low, far)];
            best = (width * height, corners, width, height);
        }
    }
    let (_, corners, width, height) = best;
    Some(RotatedRect { corners: in_order(corners), shorter: width.min(height), longer: width.max(height) })
}

/// Puts corners in the order of [`RotatedRect::corners`] (DB's `get_mini_boxes`).
fn in_order(mut corners: [Point; 4]) -> [Point; 4] {
    corners.sort_by(|a, b| a.x.total_cmp(&b.x));
    let [a, b, c, d] = corners;
    let (upper_left, lower_left) = if b.y > a.y { (a, b) } else { (b, a) };
    let (upper_right, lower_right) = if d.y > c.y { (c, d) } else { (d, c) };
    [upper_left, upper_right, lower_right, lower_left]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(list: &[(f64, f64)]) -> Vec<Point> {
        list.iter().map(|&(x, y)| Point::new(x, y)).collect()
    }

    #[test]
    fn the_hull_leaves_out_what_is_inside_or_on_a_side() {
        let hull =
            convex_hull(&points(&[(0.0, 0.0), (2.0, 0.0), (1.0, 0.0), (1.0, 1.0), (2.0, 2.0), (0.0, 2.0), (0.0, 0.0)]));
        assert_eq!(hull, points(&[(0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (0.0, 2.0)]));
    }

    #[test]
    fn a_tilted_square_is_found() {
        // A square of side sqrt(2), standing on a corner, with a point inside.
        let rect = min_area_rect(&points(&[(1.0, 0.0), (2.0, 1.0), (1.0, 2.0), (0.0, 1.0), (1.0, 1.2)])).unwrap();
        assert!((rect.shorter - 2.0_f64.sqrt()).abs() < 1e-12 && (rect.longer - rect.shorter).abs() < 1e-12);
        assert!((rect.polygon().area() - 2.0).abs() < 1e-12);
    }

    #[test]
    fn corners_begin_at_the_upper_left_and_degenerate_points_have_a_flat_rectangle() {
        let rect = min_area_rect(&points(&[(5.0, 1.0), (0.0, 4.0), (0.0, 1.0), (5.0, 4.0)])).unwrap();
        assert_eq!(rect.corners.to_vec(), points(&[(0.0, 1.0), (5.0, 1.0), (5.0, 4.0), (0.0, 4.0)]));
        assert_eq!((rect.shorter, rect.longer), (3.0, 5.0));
        let line = min_area_rect(&points(&[(0.0, 0.0), (3.0, 4.0)])).unwrap();
        assert_eq!((line.shorter, line.longer), (0.0, 5.0));
        let dot = min_area_rect(&points(&[(1.0, 1.0)])).unwrap();
        assert_eq!((dot.shorter, dot.longer), (0.0, 0.0));
        assert_eq!(min_area_rect(&[]), None);
    }
}

//! Simplification of outlines (Douglas and Peucker), as in OpenCV's `approxPolyDP` for closed curves.

use super::Point;

/// The corners of a closed outline that stays within `tolerance` of `points`.
pub fn simplify_closed(points: &[Point], tolerance: f64) -> Vec<Point> {
    let n = points.len();
    if n < 3 {
        return points.to_vec();
    }
    let squared = tolerance * tolerance;
    // Two corners far apart: three times the farthest point from the last one found.
    let (mut start, mut end) = (0, 0);
    let mut farthest = 0.0;
    for _ in 0..3 {
        start = end;
        farthest = 0.0;
        for j in 1..n {
            let i = (start + j) % n;
            let distance = (points[i] - points[start]).dot(points[i] - points[start]);
            if distance > farthest {
                (farthest, end) = (distance, i);
            }
        }
    }
    if farthest <= squared {
        return vec![points[start]];
    }
    let mut kept = Vec::new();
    keep(points, start, end, squared, &mut kept);
    keep(points, end, start, squared, &mut kept);
    without_straight_corners(kept, squared)
}

/// Adds the corners from `start` on, without `end`, counting around the end of the list.
fn keep(points: &[Point], start: usize, end: usize, squared: f64, kept: &mut Vec<Point>) {
    let n = points.len();
    let mut stack = vec![(start, end)];
    while let Some((start, end)) = stack.pop() {
        let (a, b) = (points[start], points[end]);
        let side = b - a;
        let (mut largest, mut split) = (0.0, start);
        let mut i = (start + 1) % n;
        while i != end {
            let distance = side.cross(points[i] - a).abs();
            if distance > largest {
                (largest, split) = (distance, i);
            }
            i = (i + 1) % n;
        }
        if largest * largest <= squared * side.dot(side) {
            kept.push(a);
        } else {
            stack.push((split, end));
            stack.push((start, split));
        }
    }
}

/// Removes corners that are almost on the line between their neighbours.
fn without_straight_corners(corners: Vec<Point>, squared: f64) -> Vec<Point> {
    let mut corners = corners;
    let mut i = 0;
    while i < corners.len() && corners.len() > 2 {
        let n = corners.len();
        let (before, at, after) = (corners[(i + n - 1) % n], corners[i], corners[(i + 1) % n]);
        let side = after - before;
        let distance = side.cross(at - before);
        let onwards = (at - before).dot(after - at) >= 0.0;
        if distance * distance <= 0.5 * squared * side.dot(side) && side.x != 0.0 && side.y != 0.0 && onwards {
            corners.remove(i);
        } else {
            i += 1;
        }
    }
    corners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jagged_square_becomes_a_square() {
        let mut points = Vec::new();
        for i in 0..20 {
            points.push(Point::new(f64::from(i), f64::from(i % 2)));
        }
        points.extend([(20.0, 0.0), (20.0, 20.0), (0.0, 20.0)].map(|(x, y)| Point::new(x, y)));
        let mut corners = simplify_closed(&points, 1.5);
        corners.sort_by(|a, b| (a.x + 100.0 * a.y).total_cmp(&(b.x + 100.0 * b.y)));
        let expected = [(0.0, 0.0), (20.0, 0.0), (0.0, 20.0), (20.0, 20.0)].map(|(x, y)| Point::new(x, y));
        assert_eq!(corners, expected);
        assert_eq!(simplify_closed(&points, 100.0).len(), 1);
        assert_eq!(simplify_closed(&points[..2], 1.0), points[..2]);
    }
}

//! Points and closed polygons.

/// A point in pixels. Whole numbers are the centres of pixels, as in the reference implementations.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Point {
    /// To the right.
    pub x: f64,
    /// Downwards.
    pub y: f64,
}

impl Point {
    /// The point (`x`, `y`).
    pub const fn new(x: f64, y: f64) -> Self {
        Self { x, y }
    }

    /// Distance to `other`.
    pub fn distance(self, other: Self) -> f64 {
        (self - other).length()
    }

    /// Distance to the origin.
    pub fn length(self) -> f64 {
        (self.x * self.x + self.y * self.y).sqrt()
    }

    /// The z component of the cross product of two vectors.
    pub const fn cross(self, other: Self) -> f64 {
        self.x * other.y - self.y * other.x
    }

    /// The inner product of two vectors.
    pub const fn dot(self, other: Self) -> f64 {
        self.x * other.x + self.y * other.y
    }

    /// The pixel after truncation of the coordinates (towards zero, as C casts).
    pub const fn truncated(self) -> Pixel {
        Pixel::new(self.x as i32, self.y as i32)
    }
}

impl std::ops::Add for Point {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::new(self.x + other.x, self.y + other.y)
    }
}

impl std::ops::Sub for Point {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self::new(self.x - other.x, self.y - other.y)
    }
}

impl std::ops::Mul<f64> for Point {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self::new(self.x * factor, self.y * factor)
    }
}

/// A point with whole coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pixel {
    /// Column.
    pub x: i32,
    /// Row.
    pub y: i32,
}

impl Pixel {
    /// The pixel in column `x` and row `y`.
    pub const fn new(x: i32, y: i32) -> Self {
        Self { x, y }
    }
}

impl From<Pixel> for Point {
    fn from(pixel: Pixel) -> Self {
        Self::new(f64::from(pixel.x), f64::from(pixel.y))
    }
}

/// The smallest upright rectangle around something.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Smallest x and y.
    pub low: Point,
    /// Largest x and y.
    pub high: Point,
}

impl Bounds {
    /// Around `points`; empty (low above high) if there are none.
    pub fn around(points: impl IntoIterator<Item = Point>) -> Self {
        let empty = Self {
            low: Point::new(f64::INFINITY, f64::INFINITY),
            high: Point::new(f64::NEG_INFINITY, f64::NEG_INFINITY),
        };
        points.into_iter().fold(empty, |bounds, p| Self {
            low: Point::new(bounds.low.x.min(p.x), bounds.low.y.min(p.y)),
            high: Point::new(bounds.high.x.max(p.x), bounds.high.y.max(p.y)),
        })
    }

    /// Extent to the right.
    pub fn width(&self) -> f64 {
        self.high.x - self.low.x
    }

    /// Extent downwards.
    pub fn height(&self) -> f64 {
        self.high.y - self.low.y
    }

    /// True if the two have more than a border in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.low.x < other.high.x && other.low.x < self.high.x && self.low.y < other.high.y && other.low.y < self.high.y
    }
}

/// Why points are no polygon.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum PolygonError {
    /// Fewer than three points, or more than [`Polygon::MAX_POINTS`].
    #[error("{0} points (a polygon has 3 to {max})", max = Polygon::MAX_POINTS)]
    PointCount(usize),
    /// A coordinate that is not a number, or beyond [`Polygon::MAX_COORDINATE`].
    #[error("point {point} has a coordinate beyond {max} pixels", max = Polygon::MAX_COORDINATE)]
    Coordinate {
        /// Number of the point, from 0.
        point: usize,
    },
}

/// A closed polygon; the last point is joined to the first. It may cross itself ([`is_simple`](Self::is_simple)).
#[derive(Debug, Clone, PartialEq)]
pub struct Polygon {
    points: Vec<Point>,
}

impl Polygon {
    /// Most points of a polygon.
    pub const MAX_POINTS: usize = 4096;

    /// Largest coordinate, in either direction from 0. Integer arithmetic on offsets stays far from overflow.
    pub const MAX_COORDINATE: f64 = 1e6;

    /// A polygon with these corners.
    ///
    /// # Errors
    /// If there are too few or too many points, or a coordinate is not finite or too large.
    pub fn new(points: Vec<Point>) -> Result<Self, PolygonError> {
        if !(3..=Self::MAX_POINTS).contains(&points.len()) {
            return Err(PolygonError::PointCount(points.len()));
        }
        let sane = |value: f64| value.abs() <= Self::MAX_COORDINATE;
        match points.iter().position(|p| !sane(p.x) || !sane(p.y)) {
            Some(point) => Err(PolygonError::Coordinate { point }),
            None => Ok(Self { points }),
        }
    }

    /// The upright rectangle from (`x`, `y`) with these sides; coordinates beyond the limit are moved to it.
    pub fn rectangle(x: f64, y: f64, width: f64, height: f64) -> Self {
        Self::quad([(x, y), (x + width, y), (x + width, y + height), (x, y + height)].map(|(x, y)| Point::new(x, y)))
    }

    /// The polygon of four corners; coordinates beyond the limit are moved to it, and those that are no numbers to 0.
    pub fn quad(corners: [Point; 4]) -> Self {
        Self { points: corners.to_vec() }.map(|p| p)
    }

    /// The corners.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The corners `f` makes of these; coordinates beyond the limit are moved to it, and those that are no numbers to
    /// 0.
    pub fn map(&self, f: impl Fn(Point) -> Point) -> Self {
        let limit = |value: f64| {
            if value.is_nan() { 0.0 } else { value.clamp(-Self::MAX_COORDINATE, Self::MAX_COORDINATE) }
        };
        let points = self.points.iter().map(|&p| f(p)).map(|p| Point::new(limit(p.x), limit(p.y)));
        Self { points: points.collect() }
    }

    /// The corners in the opposite order.
    pub fn reversed(&self) -> Self {
        Self { points: self.points.iter().rev().copied().collect() }
    }

    /// The sides, from each corner to the next.
    pub fn sides(&self) -> impl Iterator<Item = (Point, Point)> {
        let next = self.points.iter().cycle().skip(1);
        self.points.iter().copied().zip(next.copied())
    }

    /// Twice the integral is the sum of cross products; positive if the corners go clockwise as seen on the screen.
    pub fn signed_area(&self) -> f64 {
        // Relative to the first corner, so that no digits are lost far from the origin.
        let origin = self.points[0];
        self.sides().map(|(a, b)| (a - origin).cross(b - origin)).sum::<f64>() / 2.0
    }

    /// Area enclosed; where the polygon crosses itself, the difference of its parts.
    pub fn area(&self) -> f64 {
        self.signed_area().abs()
    }

    /// Length of all sides.
    pub fn perimeter(&self) -> f64 {
        self.sides().map(|(a, b)| a.distance(b)).sum()
    }

    /// The smallest upright rectangle around it.
    pub fn bounds(&self) -> Bounds {
        Bounds::around(self.points.iter().copied())
    }

    /// The mean of the corners.
    pub fn centre(&self) -> Point {
        let sum = self.points.iter().fold(Point::default(), |sum, &p| sum + p);
        sum * (1.0 / self.points.len() as f64)
    }

    /// True if the polygon encloses an area and no two sides have more in common than the corner they share.
    pub fn is_simple(&self) -> bool {
        let mut corners = self.points.clone();
        corners.dedup();
        while corners.len() > 1 && corners.first() == corners.last() {
            corners.pop();
        }
        let n = corners.len();
        if n < 3 || self.area() == 0.0 {
            return false;
        }
        let side = |i: usize| (corners[i], corners[(i + 1) % n]);
        (0..n).all(|i| {
            let (a, b) = side(i);
            let (_, after) = side((i + 1) % n);
            let folds_back = (b - a).cross(after - b) == 0.0 && (b - a).dot(after - b) < 0.0;
            let apart = |j: &usize| j.abs_diff(i) > 1 && !(i == 0 && *j == n - 1);
            !folds_back && (i + 1..n).filter(apart).all(|j| !touch((a, b), side(j)))
        })
    }
}

/// True if two segments have a point in common.
fn touch((a, b): (Point, Point), (c, d): (Point, Point)) -> bool {
    let turn = |p: Point, q: Point, r: Point| {
        let cross = (q - p).cross(r - p);
        if cross == 0.0 { 0 } else { cross.signum() as i32 }
    };
    let within = |p: Point, q: Point, r: Point| {
        r.x >= p.x.min(q.x) && r.x <= p.x.max(q.x) && r.y >= p.y.min(q.y) && r.y <= p.y.max(q.y)
    };
    let (abc, abd, cda, cdb) = (turn(a, b, c), turn(a, b, d), turn(c, d, a), turn(c, d, b));
    (abc != abd && cda != cdb && abc * abd <= 0 && cda * cdb <= 0)
        || (abc == 0 && within(a, b, c))
        || (abd == 0 && within(a, b, d))
        || (cda == 0 && within(c, d, a))
        || (cdb == 0 && within(c, d, b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polygon(points: &[(f64, f64)]) -> Polygon {
        Polygon::new(points.iter().map(|&(x, y)| Point::new(x, y)).collect()).unwrap()
    }

    #[test]
    fn measures_of_a_triangle() {
        let triangle = polygon(&[(1e5, 1e5), (1e5 + 3.0, 1e5), (1e5, 1e5 + 4.0)]);
        assert_eq!(
            (triangle.signed_area(), triangle.reversed().signed_area(), triangle.perimeter()),
            (6.0, -6.0, 12.0)
        );
    }

    #[test]
    fn simple_polygons_are_told_from_others() {
        let square = [(0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (0.0, 4.0)];
        assert!(polygon(&square).is_simple() && polygon(&square).reversed().is_simple());
        // A repeated corner is harmless, also around the end.
        assert!(polygon(&[square[0], square[0], square[1], square[2], square[3], square[0]]).is_simple());
        // A concave one.
        assert!(polygon(&[(0.0, 0.0), (4.0, 0.0), (1.0, 1.0), (0.0, 4.0)]).is_simple());
        for broken in [
            vec![square[0], square[2], square[1], square[3]],
            vec![(0.0, 0.0), (2.0, 0.0), (4.0, 0.0)],
            vec![(0.0, 0.0), (4.0, 0.0), (2.0, 0.0), (0.0, 4.0)],
            // A corner on another side.
            vec![(0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (2.0, 0.0), (0.0, 4.0)],
            vec![(1.0, 1.0); 4],
        ] {
            assert!(!polygon(&broken).is_simple(), "{broken:?}");
        }
    }

    #[test]
    fn impossible_polygons_are_refused() {
        let p = Point::new(0.0, 0.0);
        assert_eq!(Polygon::new(vec![p; 2]), Err(PolygonError::PointCount(2)));
        assert_eq!(Polygon::new(vec![p; 5000]), Err(PolygonError::PointCount(5000)));
        for bad in [f64::NAN, f64::INFINITY, -2e6] {
            let error = Polygon::new(vec![p, p, Point::new(1.0, bad)]);
            assert_eq!(error, Err(PolygonError::Coordinate { point: 2 }));
        }
    }
}

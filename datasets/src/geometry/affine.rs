//! Affine maps of the plane.

use super::Point;

/// `(x, y) -> (xx*x + xy*y + dx, yx*x + yy*y + dy)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Affine {
    /// x from x.
    pub xx: f64,
    /// x from y.
    pub xy: f64,
    /// y from x.
    pub yx: f64,
    /// y from y.
    pub yy: f64,
    /// Shift to the right.
    pub dx: f64,
    /// Shift downwards.
    pub dy: f64,
}

impl Affine {
    /// Leaves everything where it is.
    pub const IDENTITY: Self = Self::scaling(1.0, 1.0);

    /// Scales both axes about the origin.
    pub const fn scaling(x: f64, y: f64) -> Self {
        Self { xx: x, xy: 0.0, yx: 0.0, yy: y, dx: 0.0, dy: 0.0 }
    }

    /// Moves by (`dx`, `dy`).
    pub const fn translation(dx: f64, dy: f64) -> Self {
        Self { dx, dy, ..Self::IDENTITY }
    }

    /// Turns by `radians` about `centre`, from the x axis towards the y axis (clockwise as seen on the screen).
    pub fn rotation(radians: f64, centre: Point) -> Self {
        // libm, because the platforms' own functions differ in the last bit.
        let (sin, cos) = (libm::sin(radians), libm::cos(radians));
        let turn = Self { xx: cos, xy: -sin, yx: sin, yy: cos, dx: 0.0, dy: 0.0 };
        Self::translation(-centre.x, -centre.y).then(turn).then(Self::translation(centre.x, centre.y))
    }

    /// The image of a point.
    pub const fn apply(&self, p: Point) -> Point {
        Point::new(self.xx * p.x + self.xy * p.y + self.dx, self.yx * p.x + self.yy * p.y + self.dy)
    }

    /// This map, and `next` after it.
    pub const fn then(self, next: Self) -> Self {
        Self {
            xx: next.xx * self.xx + next.xy * self.yx,
            xy: next.xx * self.xy + next.xy * self.yy,
            yx: next.yx * self.xx + next.yy * self.yx,
            yy: next.yx * self.xy + next.yy * self.yy,
            dx: next.xx * self.dx + next.xy * self.dy + next.dx,
            dy: next.yx * self.dx + next.yy * self.dy + next.dy,
        }
    }

    /// The map that undoes this one; `None` if it squeezes the plane into a line.
    pub fn inverse(self) -> Option<Self> {
        let determinant = self.xx * self.yy - self.xy * self.yx;
        let inverse = Self {
            xx: self.yy / determinant,
            xy: -self.xy / determinant,
            yx: -self.yx / determinant,
            yy: self.xx / determinant,
            dx: (self.xy * self.dy - self.yy * self.dx) / determinant,
            dy: (self.yx * self.dx - self.xx * self.dy) / determinant,
        };
        let values = [inverse.xx, inverse.xy, inverse.yx, inverse.yy, inverse.dx, inverse.dy];
        values.iter().all(|value| value.is_finite()).then_some(inverse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_compose_and_invert() {
        let quarter = Affine::rotation(std::f64::consts::FRAC_PI_2, Point::new(1.0, 1.0));
        let p = quarter.apply(Point::new(2.0, 1.0));
        assert!(p.distance(Point::new(1.0, 2.0)) < 1e-12);
        let all = quarter.then(Affine::scaling(2.0, 3.0)).then(Affine::translation(5.0, -1.0));
        let there = all.apply(Point::new(2.0, 1.0));
        assert!(there.distance(Point::new(7.0, 5.0)) < 1e-12);
        assert!(all.inverse().unwrap().apply(there).distance(Point::new(2.0, 1.0)) < 1e-12);
        assert_eq!(Affine::scaling(0.0, 1.0).inverse(), None);
    }
}

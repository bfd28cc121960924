//! Antialiased coverage of pixels by closed outlines.

use ab_glyph_rasterizer::{Rasterizer, point};

use crate::geometry::Point;
use crate::image::Size;

/// How much of each pixel of an image is covered. The centre of the first pixel is (0.5, 0.5) here.
pub(crate) struct Coverage {
    /// The image and a margin around it: the rasterizer wraps what leaves its canvas on the right.
    canvas: Rasterizer,
    size: Size,
    margin: usize,
}

impl Coverage {
    /// Creates an empty coverage. Points further than `margin` pixels outside the image are moved to the border of the
    /// margin.
    pub fn new(size: Size, margin: usize) -> Self {
        Self { canvas: Rasterizer::new(size.width + 2 * margin, size.height + 2 * margin), size, margin }
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.canvas.clear();
    }

    /// Moves a point onto the canvas, and to its border if it lies beyond.
    fn place(&self, p: Point) -> ab_glyph_rasterizer::Point {
        let limit = |value: f64, side: usize| {
            let last = (side + 2 * self.margin - 1) as f32;
            (value as f32 + self.margin as f32).clamp(0.0, last)
        };
        point(limit(p.x, self.size.width), limit(p.y, self.size.height))
    }

    /// A straight part of an outline.
    pub fn line(&mut self, a: Point, b: Point) {
        let (a, b) = (self.place(a), self.place(b));
        self.canvas.draw_line(a, b);
    }

    /// A part of an outline that is a quadratic Bézier curve.
    pub fn quad(&mut self, a: Point, b: Point, c: Point) {
        let (a, b, c) = (self.place(a), self.place(b), self.place(c));
        self.canvas.draw_quad(a, b, c);
    }

    /// A closed outline of straight parts.
    pub fn polygon(&mut self, corners: &[Point]) {
        let next = corners.iter().cycle().skip(1);
        for (&a, &b) in corners.iter().zip(next) {
            self.line(a, b);
        }
    }

    /// Calls `paint(index, coverage)` for every pixel of the image that is covered, row by row.
    pub fn for_each_covered(&self, mut paint: impl FnMut(usize, f32)) {
        let width = self.size.width + 2 * self.margin;
        let columns = self.margin..self.margin + self.size.width;
        let rows = self.margin..self.margin + self.size.height;
        self.canvas.for_each_pixel(|index, coverage| {
            let (x, y) = (index % width, index / width);
            if coverage > 0.0 && columns.contains(&x) && rows.contains(&y) {
                paint((y - self.margin) * self.size.width + x - self.margin, coverage.min(1.0));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(corners: &[(f64, f64)]) -> Vec<(usize, f32)> {
        let mut coverage = Coverage::new(Size::new(4, 3), 8);
        coverage.polygon(&corners.iter().map(|&(x, y)| Point::new(x, y)).collect::<Vec<_>>());
        let mut found = Vec::new();
        coverage.for_each_covered(|index, covered| found.push((index, covered)));
        found
    }

    #[test]
    fn parts_of_pixels_are_covered_in_part() {
        // The lower halves of pixels 1 and 2 of row 1.
        assert_eq!(covered(&[(1.0, 1.5), (3.0, 1.5), (3.0, 2.0), (1.0, 2.0)]), [(5, 0.5), (6, 0.5)]);
    }

    #[test]
    fn what_lies_outside_the_image_covers_nothing() {
        assert_eq!(covered(&[(-9.0, -9.0), (20.0, -9.0), (20.0, 20.0), (-9.0, 20.0)]).len(), 12);
        for (x, y) in [(-3.0, 1.0), (5.0, 1.0), (1.0, -3.0), (1.0, 5.0)] {
            assert!(covered(&[(x, y), (x + 1.0, y), (x + 1.0, y + 1.0), (x, y + 1.0)]).is_empty(), "{x} {y}");
        }
        assert!(covered(&[]).is_empty());
    }
}

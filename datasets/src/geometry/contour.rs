//! Outlines of connected pixels (Suzuki and Abe, "Topological structural analysis of digitized binary images by border
//! following", CVGIP 30, 1985), as OpenCV's `findContours` with `CHAIN_APPROX_SIMPLE`.

use super::{Pixel, Point};
use crate::grid::{Grid, Mask};
use crate::image::Size;

/// The kind of an outline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContourKind {
    /// Connected pixels of the mask.
    Outer,
    /// Pixels that do not belong to the mask but lie within it; the outline runs on the mask's pixels around them.
    Hole,
}

/// The pixels of an outline, without those between the ends of straight runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contour {
    /// Its kind.
    pub kind: ContourKind,
    /// Ends of straight runs, in order.
    pub pixels: Vec<Pixel>,
}

impl Contour {
    /// The area of the polygon through the centres of the outline's pixels (OpenCV's `contourArea`).
    pub fn area(&self) -> f64 {
        let n = self.pixels.len();
        let cross = |i: usize| {
            let (a, b) = (self.pixels[i], self.pixels[(i + 1) % n]);
            i64::from(a.x) * i64::from(b.y) - i64::from(a.y) * i64::from(b.x)
        };
        (0..n).map(cross).sum::<i64>().abs() as f64 / 2.0
    }

    /// The pixels as points.
    pub fn points(&self) -> Vec<Point> {
        self.pixels.iter().map(|&pixel| pixel.into()).collect()
    }
}

/// Steps to the eight neighbours, counterclockwise as seen on the screen, beginning on the right.
const STEPS: [(isize, isize); 8] = [(1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1)];

/// All outlines of `mask`, 8-connected, from the last one found to the first (OpenCV's order with `RETR_LIST`).
pub fn find_contours(mask: &Mask) -> Vec<Contour> {
    let mut tracer = Tracer::new(mask);
    let mut contours = Vec::new();
    for y in 1..=mask.height() {
        for x in 1..=mask.width() {
            let (here, left, right) = (tracer.at(x, y), tracer.at(x - 1, y), tracer.at(x + 1, y));
            if here == Label::Inside && left == Label::Background {
                contours.push(Contour { kind: ContourKind::Outer, pixels: tracer.follow((x, y), 4) });
            } else if matches!(here, Label::Inside | Label::Seen) && right == Label::Background {
                contours.push(Contour { kind: ContourKind::Hole, pixels: tracer.follow((x, y), 0) });
            }
        }
    }
    contours.reverse();
    contours
}

/// The state of a pixel. The outline to which it belongs is not needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    /// Not in the mask.
    Background,
    /// In the mask, on no outline yet.
    Inside,
    /// On an outline.
    Seen,
    /// On an outline, with background to its right that the outline has passed.
    SeenOnTheLeft,
}

/// The mask with a border of background.
struct Tracer {
    labels: Grid<Label>,
}

impl Tracer {
    fn new(mask: &Mask) -> Self {
        let size = Size::new(mask.width() + 2, mask.height() + 2);
        let mut labels = Grid::filled(size, Label::Background);
        for y in 0..mask.height() {
            for (label, &inside) in labels.row_mut(y + 1)[1..].iter_mut().zip(mask.row(y)) {
                if inside {
                    *label = Label::Inside;
                }
            }
        }
        Self { labels }
    }

    fn at(&self, x: usize, y: usize) -> Label {
        self.labels.row(y)[x]
    }

    /// The neighbour of `at` in direction `step`. It exists, because pixels of the mask are never on the border.
    fn neighbour((x, y): (usize, usize), step: usize) -> (usize, usize) {
        let (dx, dy) = STEPS[step % 8];
        (x.wrapping_add_signed(dx), y.wrapping_add_signed(dy))
    }

    /// Follows the outline that begins at `start`, seen from its background neighbour in direction `background`.
    fn follow(&mut self, start: (usize, usize), background: usize) -> Vec<Pixel> {
        let inside = |tracer: &Self, at: (usize, usize)| tracer.at(at.0, at.1) != Label::Background;
        // Clockwise from the background to the first pixel of the mask.
        let first = (1..8).map(|i| (background + 8 - i) % 8).find(|&step| inside(self, Self::neighbour(start, step)));
        let Some(first) = first else {
            self.labels.row_mut(start.1)[start.0] = Label::SeenOnTheLeft;
            return vec![pixel(start)];
        };
        let last = Self::neighbour(start, first);
        let (mut at, mut from) = (start, first);
        let mut pixels = Vec::new();
        // The step by which the outline comes back to its start.
        let mut previous = (first + 4) % 8;
        loop {
            // Counterclockwise from where we came to the next pixel of the mask.
            let mut passed_right = false;
            let mut step = from;
            let next = loop {
                step = (step + 1) % 8;
                let next = Self::neighbour(at, step);
                if inside(self, next) {
                    break next;
                }
                passed_right |= step == 0;
            };
            let label = &mut self.labels.row_mut(at.1)[at.0];
            if passed_right {
                *label = Label::SeenOnTheLeft;
            } else if *label == Label::Inside {
                *label = Label::Seen;
            }
            if previous != step {
                pixels.push(pixel(at));
                previous = step;
            }
            if next == start && at == last {
                return pixels;
            }
            at = next;
            from = (step + 4) % 8;
        }
    }
}

/// The pixel of the mask at a place in the bordered grid.
fn pixel((x, y): (usize, usize)) -> Pixel {
    Pixel::new(x as i32 - 1, y as i32 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(rows: &[&str]) -> Mask {
        let values = rows.iter().flat_map(|row| row.bytes().map(|b| b == b'#')).collect();
        Mask::new(Size::new(rows[0].len(), rows.len()), values).unwrap()
    }

    fn pixels(contour: &Contour) -> Vec<(i32, i32)> {
        contour.pixels.iter().map(|p| (p.x, p.y)).collect()
    }

    #[test]
    fn a_ring_has_an_outline_outside_and_one_inside() {
        let found = find_contours(&mask(&["......", ".####.", ".#..#.", ".####.", "......"]));
        assert_eq!(found.len(), 2);
        // As OpenCV: counterclockwise from the upper left corner; the hole on the mask's pixels around it.
        assert_eq!((found[1].kind, pixels(&found[1])), (ContourKind::Outer, vec![(1, 1), (1, 3), (4, 3), (4, 1)]));
        assert_eq!(found[0].kind, ContourKind::Hole);
        assert_eq!(pixels(&found[0]), [(1, 2), (2, 1), (3, 1), (4, 2), (3, 3), (2, 3)]);
        assert_eq!(found[1].area(), 6.0);
    }

    #[test]
    fn single_pixels_lines_and_borders() {
        let found = find_contours(&mask(&["#..#", "....", "####"]));
        let all: Vec<Vec<(i32, i32)>> = found.iter().map(pixels).collect();
        assert_eq!(all, [vec![(0, 2), (3, 2)], vec![(3, 0)], vec![(0, 0)]]);
        assert!(find_contours(&mask(&["..."])).is_empty());
        // Diagonal neighbours are connected.
        assert_eq!(find_contours(&mask(&["#.", ".#"])).len(), 1);
    }
}

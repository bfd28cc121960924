//! Filling polygons and drawing lines on pixels, to OpenCV's bits (`fillPoly`, `line`, 8-connected, without smoothing).
//!
//! OpenCV fills between the sides (even-odd, in 16-bit fixed point) and also draws every side as a line, so that all
//! pixels on the outline belong to the polygon.

use super::Pixel;
use crate::grid::Grid;
use crate::image::Size;

/// Bits of fraction of x.
const SHIFT: u32 = 16;
const ONE: i64 = 1 << SHIFT;

/// A side of the polygon on its way down.
struct Edge {
    /// Rows it covers: from the first up to, but without, the last.
    rows: std::ops::Range<i64>,
    /// x in the first row, in fixed point.
    x: i64,
    /// Change of x per row.
    dx: i64,
}

/// Sets the pixels of a closed polygon, including its outline, to `value`; parts outside the grid are clipped.
pub fn fill_polygon<T: Copy>(grid: &mut Grid<T>, corners: &[Pixel], value: T) {
    let size = grid.size();
    if corners.is_empty() || size.area() == 0 {
        return;
    }
    let mut edges = Vec::with_capacity(corners.len());
    for (i, &to) in corners.iter().enumerate() {
        let from = corners[(i + corners.len() - 1) % corners.len()];
        for pixel in line_pixels(from, to, size) {
            grid.row_mut(pixel.y as usize)[pixel.x as usize] = value;
        }
        edges.extend(edge(from, to, size));
    }
    let (width, height) = (size.width as i64, size.height as i64);
    let first = edges.iter().map(|edge| edge.rows.start).min().unwrap_or(0).max(0);
    let last = edges.iter().map(|edge| edge.rows.end).max().unwrap_or(0).min(height);
    let mut crossings = Vec::new();
    for y in first..last {
        crossings.clear();
        crossings.extend(edges.iter().filter(|edge| edge.rows.contains(&y)).map(|e| e.x + e.dx * (y - e.rows.start)));
        crossings.sort_unstable();
        for pair in crossings.as_chunks::<2>().0 {
            // The pixels between the sides; pixels that the sides cross are drawn with the outline.
            let (left, right) = ((pair[0] + ONE - 1) >> SHIFT, pair[1] >> SHIFT);
            if left <= right && left < width && right >= 0 {
                let row = grid.row_mut(y as usize);
                row[left.max(0) as usize..=right.min(width - 1) as usize].fill(value);
            }
        }
    }
}

/// The side between two corners; `None` if it lies in one row.
fn edge(from: Pixel, to: Pixel, size: Size) -> Option<Edge> {
    if from.y == to.y {
        return None;
    }
    // The slope is that of the part inside, whose ends are rounded.
    let (a, b) = clip_line(from, to, size).unwrap_or((from, to));
    let fixed = |p: Pixel| i64::from(p.x) << SHIFT;
    let dx = (fixed(b) - fixed(a)).checked_div(i64::from(b.y) - i64::from(a.y)).unwrap_or(0);
    let rows = i64::from(from.y.min(to.y))..i64::from(from.y.max(to.y));
    Some(Edge { x: fixed(a) + (rows.start - i64::from(a.y)) * dx, dx, rows })
}

/// The part of a line inside an image (Cohen and Sutherland's method, as OpenCV's `clipLine`).
fn clip_line(from: Pixel, to: Pixel, size: Size) -> Option<(Pixel, Pixel)> {
    let (right, bottom) = (size.width as i64 - 1, size.height as i64 - 1);
    let sides = |x: i64| u8::from(x < 0) + 2 * u8::from(x > right);
    let code = |x: i64, y: i64| sides(x) + 4 * u8::from(y < 0) + 8 * u8::from(y > bottom);
    let (mut x1, mut y1, mut x2, mut y2) = (i64::from(from.x), i64::from(from.y), i64::from(to.x), i64::from(to.y));
    let (mut c1, mut c2) = (code(x1, y1), code(x2, y2));
    // OpenCV's order of operations: a product in double precision, cut off.
    let along = |n: i64, d: i64, length: i64| (n as f64 * length as f64 / d as f64) as i64;
    if c1 & c2 == 0 && (c1 | c2) != 0 {
        if c1 & 12 != 0 {
            let y = if c1 < 8 { 0 } else { bottom };
            x1 += along(y - y1, y2 - y1, x2 - x1);
            (y1, c1) = (y, sides(x1));
        }
        if c2 & 12 != 0 {
            let y = if c2 < 8 { 0 } else { bottom };
            x2 += along(y - y2, y2 - y1, x2 - x1);
            (y2, c2) = (y, sides(x2));
        }
    }
    if c1 & c2 == 0 && (c1 | c2) != 0 {
        if c1 != 0 {
            let x = if c1 == 1 { 0 } else { right };
            y1 += along(x - x1, x2 - x1, y2 - y1);
            (x1, c1) = (x, 0);
        }
        if c2 != 0 {
            let x = if c2 == 1 { 0 } else { right };
            y2 += along(x - x2, x2 - x1, y2 - y1);
            (x2, c2) = (x, 0);
        }
    }
    // Both ends are inside now, or the line passes by.
    let pixel = |x: i64, y: i64| Pixel::new(x as i32, y as i32);
    ((c1 | c2) == 0).then(|| (pixel(x1, y1), pixel(x2, y2)))
}

/// The pixels of a line inside an image, by Bresenham's method with OpenCV's choices: the line between the rounded
/// ends of the part inside, from left to right, and on a tie along the longer axis alone.
pub fn line_pixels(from: Pixel, to: Pixel, size: Size) -> impl Iterator<Item = Pixel> {
    clip_line(from, to, size).into_iter().flat_map(|(p, q)| bresenham(p, q))
}

fn bresenham(from: Pixel, to: Pixel) -> impl Iterator<Item = Pixel> {
    let (mut at, end) = if to.x < from.x { (to, from) } else { (from, to) };
    let (dx, dy) = (end.x - at.x, (end.y - at.y).abs());
    let down = if end.y < at.y { -1 } else { 1 };
    let steep = dy > dx;
    let (long, short) = if steep { (dy, dx) } else { (dx, dy) };
    let mut error = long - 2 * short;
    (0..=long).map(move |_| {
        let pixel = at;
        let both = error < 0;
        error += if both { 2 * long - 2 * short } else { -2 * short };
        if steep || both {
            at.y += down;
        }
        if !steep || both {
            at.x += 1;
        }
        pixel
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_includes_its_outline() {
        let mut grid = Grid::filled(Size::new(6, 5), 0_u8);
        let corners = [(1, 1), (4, 1), (4, 3), (1, 3)].map(|(x, y)| Pixel::new(x, y));
        fill_polygon(&mut grid, &corners, 1);
        assert_eq!(grid.values().iter().map(|&v| u32::from(v)).sum::<u32>(), 12);
        assert_eq!(grid.row(1), [0, 1, 1, 1, 1, 0]);
    }

    #[test]
    fn what_lies_outside_is_left_out() {
        let mut grid = Grid::filled(Size::new(4, 4), 0_u8);
        let corners = [(-5, -5), (20, -5), (20, 20), (-5, 20)].map(|(x, y)| Pixel::new(x, y));
        fill_polygon(&mut grid, &corners, 1);
        assert!(grid.values().iter().all(|&v| v == 1));
        let beyond = [(10, 10), (20, 10), (15, 20)].map(|(x, y)| Pixel::new(x, y));
        fill_polygon(&mut grid, &beyond, 2);
        fill_polygon(&mut grid, &[], 2);
        assert!(grid.values().iter().all(|&v| v == 1));
    }

    #[test]
    fn a_line_takes_one_pixel_per_step_of_its_longer_axis() {
        let pixels: Vec<(i32, i32)> =
            line_pixels(Pixel::new(4, 0), Pixel::new(0, 2), Size::new(5, 5)).map(|p| (p.x, p.y)).collect();
        assert_eq!(pixels, [(0, 2), (1, 2), (2, 1), (3, 1), (4, 0)]);
    }
}

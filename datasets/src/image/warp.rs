//! Images under affine maps, interpolated linearly.

use super::{Image, Size};
use crate::geometry::{Affine, Point};
use crate::grid::Grid;

/// The four pixels around a place and their weights. Pixels beyond the border are left to the caller.
struct Taps {
    x: isize,
    y: isize,
    /// Weights of (x, y), (x+1, y), (x, y+1), (x+1, y+1).
    weights: [f32; 4],
}

impl Taps {
    fn at(p: Point) -> Self {
        let (x, y) = (p.x.floor(), p.y.floor());
        let (u, v) = ((p.x - x) as f32, (p.y - y) as f32);
        let weights = [(1.0 - u) * (1.0 - v), u * (1.0 - v), (1.0 - u) * v, u * v];
        Self { x: x as isize, y: y as isize, weights }
    }

    fn places(&self) -> [(isize, isize); 4] {
        let (x, y) = (self.x, self.y);
        [(x, y), (x + 1, y), (x, y + 1), (x + 1, y + 1)]
    }
}

/// An image of size `to` whose pixel p shows the place `map(p)` of `image`; beyond the border everything is `fill`.
pub fn warp(image: &Image, to: Size, map: &Affine, fill: [u8; 3]) -> Image {
    let mut out = Image::filled(to, fill);
    let (width, height) = (image.width() as isize, image.height() as isize);
    let pixels = image.pixels().as_chunks::<3>().0;
    let columns = out.width();
    for (i, value) in out.pixels_mut().as_chunks_mut::<3>().0.iter_mut().enumerate() {
        let taps = Taps::at(map.apply(Point::new((i % columns) as f64, (i / columns) as f64)));
        if taps.x < -1 || taps.y < -1 || taps.x >= width || taps.y >= height {
            continue;
        }
        let mut sum = [0.5_f32; 3];
        for ((x, y), weight) in taps.places().into_iter().zip(taps.weights) {
            let inside = x >= 0 && y >= 0 && x < width && y < height;
            let pixel = if inside { pixels[(y * width + x) as usize] } else { fill };
            for (sum, channel) in sum.iter_mut().zip(pixel) {
                *sum += weight * f32::from(channel);
            }
        }
        // The cast cuts off, and half was added.
        *value = sum.map(|sum| sum as u8);
    }
    out
}

/// As [`warp`], for one number per pixel.
pub fn warp_grid(grid: &Grid<f32>, to: Size, map: &Affine, fill: f32) -> Grid<f32> {
    let mut out = Grid::filled(to, fill);
    for y in 0..to.height {
        for (x, value) in out.row_mut(y).iter_mut().enumerate() {
            let taps = Taps::at(map.apply(Point::new(x as f64, y as f64)));
            let values = taps.places().map(|(x, y)| grid.get(x, y).unwrap_or(fill));
            *value = values.iter().zip(taps.weights).map(|(value, weight)| value * weight).sum();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_pixel_mixes_neighbours_and_the_border_mixes_with_the_fill() {
        let image = Image::new(Size::new(2, 1), vec![100, 0, 0, 200, 10, 0]).unwrap();
        let moved = warp(&image, Size::new(3, 1), &Affine::translation(-0.5, 0.0), [0, 0, 50]);
        assert_eq!(moved.pixels(), [50, 0, 25, 150, 5, 0, 100, 5, 25]);
        assert_eq!(warp(&image, image.size(), &Affine::IDENTITY, [9; 3]), image);
        let far = warp(&image, Size::new(2, 2), &Affine::translation(1e9, 0.0), [1, 2, 3]);
        assert_eq!(far.pixels(), [1, 2, 3].repeat(4));
    }

    #[test]
    fn grids_follow_the_same_rule() {
        let grid = Grid::new(Size::new(2, 1), vec![1.0, 3.0]).unwrap();
        let moved = warp_grid(&grid, Size::new(3, 1), &Affine::translation(-0.5, 0.0), -1.0);
        assert_eq!(moved.values(), [0.0, 2.0, 1.0]);
    }
}

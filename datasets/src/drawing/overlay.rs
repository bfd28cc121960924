//! Draws outlines and masks on an image.

use crate::geometry::{Pixel, Polygon, line_pixels};
use crate::grid::Mask;
use crate::image::Image;

/// Draws the outline of `polygon`, `width` pixels wide; parts outside the image are clipped.
pub fn draw_polygon(image: &mut Image, polygon: &Polygon, colour: [u8; 3], width: usize) {
    let size = image.size();
    let around = |width: usize| {
        let before = (width.saturating_sub(1) / 2) as i32;
        -before..width as i32 - before
    };
    let pixel = |p: crate::geometry::Point| Pixel::new(p.x.round() as i32, p.y.round() as i32);
    for (a, b) in polygon.sides() {
        let (a, b) = (pixel(a), pixel(b));
        for (dx, dy) in around(width).flat_map(|dy| around(width).map(move |dx| (dx, dy))) {
            let moved = |p: Pixel| Pixel::new(p.x + dx, p.y + dy);
            for p in line_pixels(moved(a), moved(b), size) {
                let at = 3 * (p.y as usize * size.width + p.x as usize);
                image.pixels_mut()[at..at + 3].copy_from_slice(&colour);
            }
        }
    }
}

/// Draws an upright rectangle from its corner and size.
pub fn draw_rectangle(image: &mut Image, corner: (f64, f64), size: (f64, f64), colour: [u8; 3], width: usize) {
    draw_polygon(image, &Polygon::rectangle(corner.0, corner.1, size.0, size.1), colour, width);
}

/// Mixes `colour` into the pixels of `mask`, `strength` from 0 to 1. Parts of a mask outside the image are ignored.
pub fn tint(image: &mut Image, mask: &Mask, colour: [u8; 3], strength: f32) {
    let strength = strength.clamp(0.0, 1.0);
    let width = image.width();
    let (rows, columns) = (image.height().min(mask.height()), width.min(mask.width()));
    for y in 0..rows {
        let pixels = image.pixels_mut()[3 * y * width..][..3 * columns].as_chunks_mut::<3>().0;
        for (pixel, _) in pixels.iter_mut().zip(mask.row(y)).filter(|(_, inside)| **inside) {
            for (value, colour) in pixel.iter_mut().zip(colour) {
                *value = (f32::from(*value) + (f32::from(colour) - f32::from(*value)) * strength + 0.5) as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Size;

    #[test]
    fn outlines_are_drawn_inside_the_image() {
        let mut image = Image::filled(Size::new(6, 6), [0; 3]);
        draw_rectangle(&mut image, (1.0, 1.0), (20.0, 3.0), [9, 8, 7], 1);
        let drawn = image.pixels().chunks(3).filter(|p| *p == [9, 8, 7]).count();
        assert_eq!(drawn, 5 + 5 + 2);
        draw_polygon(&mut image, &Polygon::rectangle(-50.0, -50.0, 5.0, 5.0), [1; 3], 3);
        assert!(!image.pixels().contains(&1));
    }

    #[test]
    fn a_mask_is_mixed_in() {
        let mut image = Image::filled(Size::new(2, 1), [100; 3]);
        let mask = Mask::new(Size::new(1, 3), vec![true; 3]).unwrap();
        tint(&mut image, &mask, [200, 0, 100], 0.5);
        assert_eq!(image.pixels(), [150, 50, 100, 100, 100, 100]);
    }
}

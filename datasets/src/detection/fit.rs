//! From an image to the input of a detector (torchvision's `references/detection` and `GeneralizedRCNNTransform`).

use super::interpolate::interpolate;
use super::{BoundingBox, Corners};
use crate::image::{Image, Size};
use crate::{DataError, Normalize};

/// How images are scaled into the input of a network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// Width and height of the network's input.
    pub network: Size,
    /// Length to which the shorter side is scaled; less if the image would not fit into the network.
    pub shorter: usize,
}

/// An image as a network takes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The normalised image in the upper left corner, and zeros; CHW.
    pub pixels: Vec<f32>,
    /// Size of the image.
    pub from: Size,
    /// Size of the part of the input that shows it.
    pub shown: Size,
}

impl Fit {
    /// Refuses settings that make no sense.
    ///
    /// # Errors
    /// Sides of 0, or above 8192.
    pub fn check(&self) -> Result<(), DataError> {
        let sane = [self.network.width, self.network.height, self.shorter].iter().all(|n| (1..=8192).contains(n));
        if sane { Ok(()) } else { Err(DataError::Config(format!("input of a detector: {self:?}"))) }
    }

    /// Size of an image of `from` pixels after scaling, cut to whole pixels.
    pub fn shown(&self, from: Size) -> Size {
        let scale = (self.shorter as f64 / from.width.min(from.height) as f64)
            .min(self.network.width as f64 / from.width as f64)
            .min(self.network.height as f64 / from.height as f64);
        let side = |length: usize, most: usize| ((length as f64 * scale) as usize).clamp(1, most);
        Size::new(side(from.width, self.network.width), side(from.height, self.network.height))
    }

    /// Normalises an image, scales it and fills the rest of the network's input with zeros.
    pub fn apply(&self, image: &Image, normalize: &Normalize) -> Fitted {
        let (from, shown) = (image.size(), self.shown(image.size()));
        let mut own = vec![0.0; normalize.planes() * from.area()];
        normalize.apply(image, &mut own);
        let scaled = interpolate(&own, from, shown);
        if shown == self.network {
            return Fitted { pixels: scaled, from, shown };
        }
        let mut pixels = vec![0.0; normalize.planes() * self.network.area()];
        let planes = pixels.chunks_exact_mut(self.network.area()).zip(scaled.chunks_exact(shown.area()));
        for (plane, scaled) in planes {
            let rows = plane.chunks_exact_mut(self.network.width).zip(scaled.chunks_exact(shown.width));
            rows.for_each(|(row, scaled)| row[..shown.width].copy_from_slice(scaled));
        }
        Fitted { pixels, from, shown }
    }
}

impl Fitted {
    /// A box of the image in the pixels of the network's input.
    pub fn corners(&self, bounds: BoundingBox) -> Corners {
        Corners::from(bounds).scaled(ratios(self.from, self.shown))
    }

    /// A box in the network's input in the pixels of the image.
    pub fn bounds(&self, corners: Corners) -> BoundingBox {
        corners.scaled(ratios(self.shown, self.from)).into()
    }
}

/// Factors by which boxes are scaled, `[x, y]` (torchvision's `resize_boxes`).
fn ratios(from: Size, to: Size) -> [f32; 2] {
    [to.width as f32 / from.width as f32, to.height as f32 / from.height as f32]
}

/// Swaps left and right in an image and its boxes.
pub fn mirror<'a>(image: &mut Image, boxes: impl IntoIterator<Item = &'a mut BoundingBox>) {
    let width = image.width();
    for row in image.pixels_mut().chunks_exact_mut(3 * width) {
        row.as_chunks_mut::<3>().0.reverse();
    }
    boxes.into_iter().for_each(|bounds| bounds.x = width as f64 - (bounds.x + bounds.width));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_by_hand() {
        let square = Fit { network: Size::square(800), shorter: 800 };
        assert_eq!(square.shown(Size::new(640, 480)), Size::new(800, 600));
        assert_eq!(square.shown(Size::new(480, 640)), Size::new(600, 800));
        let wide = Fit { network: Size::new(1344, 800), shorter: 600 };
        assert_eq!(wide.shown(Size::new(640, 480)), Size::new(800, 600));
        assert_eq!(wide.shown(Size::new(1000, 1)), Size::new(1344, 1));
        assert!(square.check().is_ok());
        assert!(Fit { shorter: 0, ..square }.check().is_err());
    }

    #[test]
    fn boxes_stay_with_their_pixels() {
        let mut image = Image::filled(Size::new(8, 4), [0; 3]);
        // A red rectangle over columns 1 and 2 of rows 0 and 1.
        for pixel in [1, 2, 9, 10] {
            image.pixels_mut()[3 * pixel] = 255;
        }
        let mut bounds = BoundingBox { x: 1.0, y: 0.0, width: 2.0, height: 2.0 };
        mirror(&mut image, [&mut bounds]);
        assert_eq!(bounds, BoundingBox { x: 5.0, y: 0.0, width: 2.0, height: 2.0 });
        let fit = Fit { network: Size::square(16), shorter: 16 };
        let fitted = fit.apply(&image, &Normalize::UNCHANGED);
        assert_eq!(fitted.shown, Size::new(16, 8));
        let corners = fitted.corners(bounds);
        assert_eq!(corners, Corners::new([10.0, 0.0, 14.0, 4.0]));
        assert_eq!(fitted.bounds(corners), bounds);
        let red: Vec<bool> = fitted.pixels[..16].iter().map(|value| *value > 0.5).collect();
        assert_eq!(red.iter().position(|red| *red), Some(10));
        assert_eq!(red.iter().filter(|red| **red).count(), 4);
        assert!(fitted.pixels[8 * 16..16 * 16].iter().all(|value| *value == 0.0));
    }
}

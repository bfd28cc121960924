//! From 8-bit pixels to the network's numbers.

use crate::image::Image;

/// The scale on which mean and deviation are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PixelScale {
    /// Pixels are divided by 255 first (torchvision's `ToTensor`).
    #[default]
    Unit,
    /// Pixels are taken as they are, 0 to 255.
    Byte,
}

/// `(pixel - mean) / deviation` per channel, as f32 in CHW order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalize {
    /// Mean of R, G, B.
    pub mean: [f32; 3],
    /// Standard deviation of R, G, B.
    pub std: [f32; 3],
    /// The scale of both.
    pub scale: PixelScale,
}

impl Normalize {
    /// Mean and deviation of ImageNet on 0..1, as torchvision's models use them.
    pub const IMAGENET: Self =
        Self { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], scale: PixelScale::Unit };

    /// The value of a pixel: one f32 rounding per operation, in torchvision's order.
    pub fn value(&self, channel: usize, pixel: u8) -> f32 {
        let pixel = match self.scale {
            PixelScale::Unit => f32::from(pixel) / 255.0,
            PixelScale::Byte => f32::from(pixel),
        };
        (pixel - self.mean[channel]) / self.std[channel]
    }

    /// Writes `image` to `out`, which holds `3 * height * width` numbers in CHW order.
    ///
    /// # Panics
    /// If `out` has another length.
    pub fn apply(&self, image: &Image, out: &mut [f32]) {
        let area = image.size().area();
        assert_eq!(out.len(), 3 * area, "one number per channel and pixel");
        let tables: [[f32; 256]; 3] =
            std::array::from_fn(|channel| std::array::from_fn(|pixel| self.value(channel, pixel as u8)));
        let (red, rest) = out.split_at_mut(area);
        let (green, blue) = rest.split_at_mut(area);
        let planes = red.iter_mut().zip(green).zip(blue);
        for (pixel, ((red, green), blue)) in image.pixels().as_chunks::<3>().0.iter().zip(planes) {
            *red = tables[0][pixel[0] as usize];
            *green = tables[1][pixel[1] as usize];
            *blue = tables[2][pixel[2] as usize];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Size;

    #[test]
    fn channels_become_planes() {
        let image = Image::new(Size::new(2, 1), vec![0, 128, 255, 64, 192, 32]).unwrap();
        let normalize = Normalize { mean: [128.0; 3], std: [64.0; 3], scale: PixelScale::Byte };
        let mut out = [0.0; 6];
        normalize.apply(&image, &mut out);
        assert_eq!(out, [-2.0, -1.0, 0.0, 1.0, 127.0 / 64.0, -1.5]);
    }

    #[test]
    fn both_scales_agree() {
        let byte = Normalize { mean: [127.5; 3], std: [51.0; 3], scale: PixelScale::Byte };
        let unit = Normalize { mean: [0.5; 3], std: [0.2; 3], scale: PixelScale::Unit };
        for pixel in 0..=255 {
            assert!((byte.value(0, pixel) - unit.value(0, pixel)).abs() < 1e-6);
        }
    }
}

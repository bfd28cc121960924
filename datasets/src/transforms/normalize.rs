//! From 8-bit pixels to the input values of the network.

use zoo_settings::{ChannelOrder, Levels};

use crate::image::Image;

/// Luminance of a pixel as Pillow's `convert("L")` has it: ITU-R BT.601 in 16 bits of fraction.
pub(super) fn luminance([r, g, b]: [u8; 3]) -> u8 {
    ((19595 * u32::from(r) + 38470 * u32::from(g) + 7471 * u32::from(b) + 0x8000) >> 16) as u8
}

/// `(pixel - mean) / deviation` per channel, as f32 in CHW order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalize {
    /// Mean of each channel, in the order of `channels`.
    pub mean: [f32; 3],
    /// Standard deviation of each channel, in the order of `channels`.
    pub std: [f32; 3],
    /// The scale of both.
    pub scale: Levels,
    /// Order of the channels in the result.
    pub channels: ChannelOrder,
    /// The result has one channel, the luminance, with the first mean and deviation.
    pub grey: bool,
}

impl Normalize {
    /// Mean and deviation of ImageNet on 0..1, as torchvision's models use them.
    pub const IMAGENET: Self = Self { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], ..Self::UNCHANGED };

    /// Pixels as they are, in 0..1.
    pub const UNCHANGED: Self =
        Self { mean: [0.0; 3], std: [1.0; 3], scale: Levels::Unit, channels: ChannelOrder::Rgb, grey: false };

    /// Number of channels of the result.
    pub fn planes(&self) -> usize {
        if self.grey { 1 } else { 3 }
    }

    /// The value of a pixel: one f32 rounding per operation, in torchvision's order.
    pub fn value(&self, channel: usize, pixel: u8) -> f32 {
        self.level(channel, f32::from(pixel))
    }

    /// The value of a level of 0..255 that need not be whole.
    fn level(&self, channel: usize, level: f32) -> f32 {
        let pixel = match self.scale {
            Levels::Unit => level / 255.0,
            Levels::Byte => level,
        };
        (pixel - self.mean[channel]) / self.std[channel]
    }

    /// Normalises levels of 0..255 in place: three planes whose channels are in order already.
    pub fn apply_to_planes(&self, planes: &mut [f32]) {
        let area = (planes.len() / 3).max(1);
        for (channel, plane) in planes.chunks_exact_mut(area).enumerate() {
            plane.iter_mut().for_each(|value| *value = self.level(channel, *value));
        }
    }

    /// Writes `image` to `out`, which holds `planes * height * width` numbers in CHW order.
    ///
    /// # Panics
    /// If `out` has another length.
    pub fn apply(&self, image: &Image, out: &mut [f32]) {
        let area = image.size().area();
        assert_eq!(out.len(), self.planes() * area, "one number per channel and pixel");
        let pixels = image.pixels().as_chunks::<3>().0;
        if self.grey {
            return out.iter_mut().zip(pixels).for_each(|(value, pixel)| *value = self.value(0, luminance(*pixel)));
        }
        let tables: [[f32; 256]; 3] =
            std::array::from_fn(|channel| std::array::from_fn(|pixel| self.value(channel, pixel as u8)));
        let (first, rest) = out.split_at_mut(area);
        let (second, third) = rest.split_at_mut(area);
        let planes = first.iter_mut().zip(second).zip(third);
        let [r, g, b] = match self.channels {
            ChannelOrder::Rgb => [0, 1, 2],
            ChannelOrder::Bgr => [2, 1, 0],
        };
        for (pixel, ((first, second), third)) in pixels.iter().zip(planes) {
            *first = tables[0][pixel[r] as usize];
            *second = tables[1][pixel[g] as usize];
            *third = tables[2][pixel[b] as usize];
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
        let normalize = Normalize { mean: [128.0; 3], std: [64.0; 3], scale: Levels::Byte, ..Normalize::UNCHANGED };
        let mut out = [0.0; 6];
        normalize.apply(&image, &mut out);
        assert_eq!(out, [-2.0, -1.0, 0.0, 1.0, 127.0 / 64.0, -1.5]);
        let bgr = Normalize { mean: [127.0, 128.0, 129.0], channels: ChannelOrder::Bgr, ..normalize };
        bgr.apply(&image, &mut out);
        assert_eq!(out, [2.0, -95.0 / 64.0, 0.0, 1.0, -129.0 / 64.0, -65.0 / 64.0]);
        let mut planes = [255.0, 32.0, 128.0, 192.0, 0.0, 64.0];
        bgr.apply_to_planes(&mut planes);
        assert_eq!(planes, out);
    }

    /// 255 of red, green and blue alone is 76, 150 and 29 in Pillow.
    #[test]
    fn grey_is_pillows() {
        let colours = vec![255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255, 13, 200, 77];
        let image = Image::new(Size::new(5, 1), colours).unwrap();
        let mut out = [0.0; 5];
        Normalize { grey: true, scale: Levels::Byte, ..Normalize::UNCHANGED }.apply(&image, &mut out);
        assert_eq!(out, [76.0, 150.0, 29.0, 255.0, 130.0]);
    }

    #[test]
    fn both_scales_agree() {
        let byte = Normalize { mean: [127.5; 3], std: [51.0; 3], scale: Levels::Byte, ..Normalize::UNCHANGED };
        let unit = Normalize { mean: [0.5; 3], std: [0.2; 3], ..Normalize::UNCHANGED };
        for pixel in 0..=255 {
            assert!((byte.value(0, pixel) - unit.value(0, pixel)).abs() < 1e-6);
        }
    }
}

//! The augmentation of torchvision's `references/segmentation`: resize, flip, crop.

use super::LabelMap;
use crate::image::{Image, Size};
use crate::transforms::{Filter, resize, shorter_side};
use crate::{DataError, Rng};

/// How images and their label maps are varied together. Images are resized as `torchvision.transforms.Resize` does
/// with Pillow's images, label maps by the nearest pixel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LabelAugment {
    /// Size of the result: a random part of the resized image, padded on the right and below with black, which is
    /// `VOID`.
    pub size: Size,
    /// Least and greatest length of the shorter side before the crop, drawn uniformly, both included.
    pub shorter: (usize, usize),
    /// Probability of mirroring.
    pub flip: f64,
}

/// An image with its label map.
#[derive(Debug, Clone, PartialEq)]
pub struct Labelled {
    /// The image.
    pub image: Image,
    /// The class of each of its pixels.
    pub labels: LabelMap,
}

impl LabelAugment {
    /// Longest side that an image is resized to.
    const LONGEST: usize = 16384;

    /// Refuses settings that make no sense.
    ///
    /// # Errors
    /// If a side is 0 or above 8192, the range is empty, or the probability is not within 0 to 1.
    pub fn check(&self) -> Result<(), DataError> {
        let sided = |side: usize| (1..=8192).contains(&side);
        let (least, most) = self.shorter;
        let sane = sided(self.size.width) && sided(self.size.height) && sided(least) && sided(most) && least <= most;
        if sane && (0.0..=1.0).contains(&self.flip) {
            return Ok(());
        }
        Err(DataError::Config(format!("variation of label maps: {self:?}")))
    }

    /// Varies an image and its labels, drawing from `rng`.
    #[must_use]
    pub fn apply(&self, image: &Image, labels: &LabelMap, rng: &mut Rng) -> Labelled {
        let (least, most) = self.shorter;
        let size = least + rng.below(most - least + 1);
        let to = shorter_side(size, image.size());
        let to = Size::new(to.width.clamp(1, Self::LONGEST), to.height.clamp(1, Self::LONGEST));
        let mut resized = Labelled { image: resize(image, to, Filter::Bilinear), labels: labels.nearest(to) };
        if rng.chance(self.flip) {
            resized.mirror();
        }
        let mut offset = |whole: usize, part: usize| rng.below(whole.saturating_sub(part) + 1);
        let corner = (offset(to.width, self.size.width), offset(to.height, self.size.height));
        resized.part(corner, self.size)
    }
}

impl Labelled {
    /// An image scaled into the upper left corner of `size`, keeping its proportions; the rest is black and `VOID`.
    #[must_use]
    pub fn fitted(image: &Image, labels: &LabelMap, size: Size) -> Self {
        let from = image.size();
        let scale = (size.width as f64 / from.width as f64).min(size.height as f64 / from.height as f64);
        let side = |length: usize, limit: usize| ((length as f64 * scale).round() as usize).clamp(1, limit);
        let to = Size::new(side(from.width, size.width), side(from.height, size.height));
        Self { image: resize(image, to, Filter::Bilinear), labels: labels.nearest(to) }.part((0, 0), size)
    }

    fn mirror(&mut self) {
        let width = self.image.width();
        for row in self.image.pixels_mut().chunks_exact_mut(3 * width) {
            row.as_chunks_mut::<3>().0.reverse();
        }
        for y in 0..self.labels.height() {
            self.labels.row_mut(y).reverse();
        }
    }

    fn part(self, (x, y): (usize, usize), size: Size) -> Self {
        if self.image.size() == size {
            return self;
        }
        let mut image = Image::filled(size, [0; 3]);
        let columns = 3 * self.image.width().saturating_sub(x).min(size.width);
        let rows = self.image.height().saturating_sub(y).min(size.height);
        for (row, out) in image.pixels_mut().chunks_exact_mut(3 * size.width).take(rows).enumerate() {
            out[..columns].copy_from_slice(&self.image.row(y + row)[3 * x..][..columns]);
        }
        Self { image, labels: self.labels.part((x, y), size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segmentation::VOID;

    /// Red is the class.
    fn sample(size: Size) -> (Image, LabelMap) {
        let mut image = Image::filled(size, [0; 3]);
        let values: Vec<u8> = (0..size.area()).map(|i| (i % 251) as u8).collect();
        image.pixels_mut().chunks_exact_mut(3).zip(&values).for_each(|(pixel, value)| pixel[0] = *value);
        (image, LabelMap::new(size, values).unwrap())
    }

    #[test]
    fn labels_stay_with_their_pixels() {
        let (image, labels) = sample(Size::new(12, 9));
        let mut seen = std::collections::BTreeSet::new();
        for index in 0..40 {
            let augment = LabelAugment { size: Size::new(7, 7), shorter: (9, 9), flip: 0.5 };
            let varied = augment.apply(&image, &labels, &mut Rng::new(1, 0, index));
            let red = varied.image.pixels().chunks_exact(3).map(|pixel| pixel[0]);
            assert!(red.eq(varied.labels.values().iter().copied()));
            let row = varied.labels.row(0);
            seen.insert((row[0].min(row[6]), row[0] < row[6]));
        }
        assert!(seen.len() > 20, "{} crops", seen.len());
    }

    #[test]
    fn small_images_are_padded_with_void() {
        let (image, labels) = sample(Size::new(4, 4));
        let augment = LabelAugment { size: Size::new(6, 5), shorter: (4, 4), flip: 0.0 };
        let varied = augment.apply(&image, &labels, &mut Rng::new(0, 0, 0));
        assert_eq!(varied.labels.row(0), [0, 1, 2, 3, VOID, VOID]);
        assert_eq!(varied.labels.row(4), [VOID; 6]);
        assert_eq!(varied.image.row(4), [0; 18]);
    }

    #[test]
    fn an_image_is_fitted_whole() {
        let (image, labels) = sample(Size::new(8, 4));
        let fitted = Labelled::fitted(&image, &labels, Size::new(4, 4));
        assert_eq!(fitted.labels.row(0), [1, 3, 5, 7].map(|x| x + 8));
        assert_eq!(fitted.labels.row(2), [VOID; 4]);
        assert_eq!(Labelled::fitted(&image, &labels, Size::new(8, 4)), Labelled { image, labels });
    }

    #[test]
    fn settings_without_sense_are_refused() {
        let good = LabelAugment { size: Size::new(4, 4), shorter: (4, 8), flip: 0.5 };
        assert!(good.check().is_ok());
        for bad in [
            LabelAugment { size: Size::new(0, 4), ..good },
            LabelAugment { shorter: (9, 8), ..good },
            LabelAugment { shorter: (0, 8), ..good },
            LabelAugment { flip: f64::NAN, ..good },
        ] {
            assert!(matches!(bad.check(), Err(DataError::Config(_))), "{bad:?}");
        }
    }
}

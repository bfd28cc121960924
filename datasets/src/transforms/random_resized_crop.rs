//! The random resized crop of Inception training.

use super::Filter;
use super::plan::Op;
use crate::Rng;
use crate::image::{Rect, Size};

/// A crop of random area and shape, resized to a fixed size (`torchvision.transforms.RandomResizedCrop`;
/// Szegedy et al., arXiv 1409.4842).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomResizedCrop {
    /// Size of the result.
    pub size: Size,
    /// Smallest and largest part of the image's area.
    pub scale: (f64, f64),
    /// Smallest and largest width / height of the crop.
    pub ratio: (f64, f64),
    /// Interpolation filter.
    pub filter: Filter,
}

impl RandomResizedCrop {
    /// torchvision's defaults: area 0.08 to 1, shape 3/4 to 4/3, bilinear.
    pub const fn new(size: Size) -> Self {
        Self { size, scale: (0.08, 1.0), ratio: (3.0 / 4.0, 4.0 / 3.0), filter: Filter::Bilinear }
    }

    pub(super) fn plan(self, from: Size, rng: &mut Rng) -> Vec<Op> {
        vec![Op::Crop(self.rect(from, rng)), Op::Resize { to: self.size, filter: self.filter }]
    }

    /// The crop: ten attempts at a random area and a random shape (uniform in its logarithm), then the largest centred
    /// crop of an allowed shape. Logarithms come from `libm`, so that platforms agree.
    fn rect(self, from: Size, rng: &mut Rng) -> Rect {
        for _ in 0..10 {
            let [width, height] = sides(from, self.scale, self.ratio, rng);
            if (1..=from.width).contains(&width) && (1..=from.height).contains(&height) {
                let y = rng.below(from.height - height + 1);
                let x = rng.below(from.width - width + 1);
                return Rect::new(x, y, width, height);
            }
        }
        self.fallback(from)
    }

    fn fallback(self, from: Size) -> Rect {
        let shape = from.width as f64 / from.height as f64;
        let side = |length: f64, limit: usize| (length.round_ties_even() as usize).clamp(1, limit);
        let (width, height) = if shape < self.ratio.0 {
            (from.width, side(from.width as f64 / self.ratio.0, from.height))
        } else if shape > self.ratio.1 {
            (side(from.height as f64 * self.ratio.1, from.width), from.height)
        } else {
            (from.width, from.height)
        };
        Rect::new((from.width - width) / 2, (from.height - height) / 2, width, height)
    }
}

/// Sides of a rectangle of random area, a part of `image` within `scale`, and random shape, the first side over the
/// second within `ratio` and uniform in its logarithm. Logarithms come from `libm`, so that platforms agree.
pub(super) fn sides(image: Size, scale: (f64, f64), ratio: (f64, f64), rng: &mut Rng) -> [usize; 2] {
    let area = image.area() as f64 * rng.uniform(scale.0, scale.1);
    let aspect = libm::exp(rng.uniform(libm::log(ratio.0), libm::log(ratio.1)));
    [area * aspect, area / aspect].map(|square| square.sqrt().round_ties_even() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distribution is torchvision's: over 40000 draws of its `get_params` on a 500x375 image the mean area was
    /// 0.4319 (deviation 0.216), the mean shape 1.0441, the mean left edge 107.95.
    #[test]
    fn crops_stay_inside_and_are_distributed_as_torchvisions() {
        const DRAWS: u64 = 20_000;
        let crop = RandomResizedCrop::new(Size::square(224));
        let from = Size::new(500, 375);
        let (mut area, mut shape, mut left) = (0.0, 0.0, 0.0);
        for sample in 0..DRAWS {
            let rect = crop.rect(from, &mut Rng::new(3, 1, sample));
            assert!(rect.right() <= from.width && rect.bottom() <= from.height && rect.size().area() > 0);
            area += rect.size().area() as f64 / from.area() as f64 / DRAWS as f64;
            shape += rect.width as f64 / rect.height as f64 / DRAWS as f64;
            left += rect.x as f64 / DRAWS as f64;
        }
        // Four standard errors of both means.
        assert!((area - 0.4319).abs() < 0.0075, "{area}");
        assert!((shape - 1.0441).abs() < 0.006, "{shape}");
        assert!((left - 107.95).abs() < 3.5, "{left}");
    }

    #[test]
    fn extreme_shapes_fall_back_to_the_centre() {
        let crop = RandomResizedCrop::new(Size::square(224));
        assert_eq!(crop.rect(Size::new(1000, 3), &mut Rng::new(0, 0, 0)), Rect::new(498, 0, 4, 3));
        assert_eq!(crop.rect(Size::new(3, 1000), &mut Rng::new(0, 0, 0)), Rect::new(0, 498, 3, 4));
        assert_eq!(crop.fallback(Size::new(100, 90)), Rect::new(0, 0, 100, 90));
    }
}

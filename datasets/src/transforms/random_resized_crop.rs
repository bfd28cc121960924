//! The random resized crop of Inception training.

use zoo_settings::RandomResizedCrop;

use super::plan::Op;
use super::{Transform, ordered, sized};
use crate::Rng;
use crate::image::{Rect, Size};

impl Transform for RandomResizedCrop {
    fn check(&self) -> Result<(), String> {
        sized(Size::square(self.size))?;
        ordered("scale", self.scale)?;
        ordered("ratio", self.ratio)
    }

    fn output(&self, _from: Option<Size>) -> Option<Size> {
        Some(Size::square(self.size))
    }

    fn plan(&self, from: Size, rng: &mut Rng) -> Vec<Op> {
        vec![Op::Crop(rect(self, from, rng)), Op::Resize { to: Size::square(self.size), filter: self.filter }]
    }
}

/// The crop: ten attempts at a random area and a random shape (uniform in its logarithm), then the largest centred
/// crop of an allowed shape. Logarithms come from `libm`, so that platforms agree.
fn rect(crop: &RandomResizedCrop, from: Size, rng: &mut Rng) -> Rect {
    for _ in 0..10 {
        let [width, height] = sides(from, crop.scale, crop.ratio, rng);
        if (1..=from.width).contains(&width) && (1..=from.height).contains(&height) {
            let y = rng.below(from.height - height + 1);
            let x = rng.below(from.width - width + 1);
            return Rect::new(x, y, width, height);
        }
    }
    fallback(crop.ratio, from)
}

fn fallback([narrow, wide]: [f64; 2], from: Size) -> Rect {
    let shape = from.width as f64 / from.height as f64;
    let side = |length: f64, limit: usize| (length.round_ties_even() as usize).clamp(1, limit);
    let (width, height) = if shape < narrow {
        (from.width, side(from.width as f64 / narrow, from.height))
    } else if shape > wide {
        (side(from.height as f64 * wide, from.width), from.height)
    } else {
        (from.width, from.height)
    };
    Rect::new((from.width - width) / 2, (from.height - height) / 2, width, height)
}

/// Sides of a rectangle of random area, a part of `image` within `scale`, and random shape, the first side over the
/// second within `ratio` and uniform in its logarithm. Logarithms come from `libm`, so that platforms agree.
pub(super) fn sides(image: Size, scale: [f64; 2], ratio: [f64; 2], rng: &mut Rng) -> [usize; 2] {
    let area = image.area() as f64 * rng.within(scale);
    let aspect = libm::exp(rng.within(ratio.map(libm::log)));
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
        let crop = crate::transforms::torchvision_crop(224);
        let from = Size::new(500, 375);
        let (mut area, mut shape, mut left) = (0.0, 0.0, 0.0);
        for sample in 0..DRAWS {
            let rect = rect(&crop, from, &mut Rng::new(3, 1, sample));
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
        let crop = crate::transforms::torchvision_crop(224);
        assert_eq!(rect(&crop, Size::new(1000, 3), &mut Rng::new(0, 0, 0)), Rect::new(498, 0, 4, 3));
        assert_eq!(rect(&crop, Size::new(3, 1000), &mut Rng::new(0, 0, 0)), Rect::new(0, 498, 3, 4));
        assert_eq!(fallback(crop.ratio, Size::new(100, 90)), Rect::new(0, 0, 100, 90));
    }
}

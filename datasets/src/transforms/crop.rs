//! Crops of a fixed size: from the centre, or from anywhere with padding.

use zoo_settings::{CenterCrop, PadMode, RandomCrop};

use super::plan::Op;
use super::{MAX_OUTPUT_SIDE, Transform, sized};
use crate::Rng;
use crate::image::{Rect, Size};

/// An image smaller than the crop is padded with black first.
impl Transform for CenterCrop {
    fn check(&self) -> Result<(), String> {
        sized(self.size.into())
    }

    fn output(&self, _from: Option<Size>) -> Option<Size> {
        Some(self.size.into())
    }

    fn plan(&self, from: Size, _rng: &mut Rng) -> Vec<Op> {
        let crop = Size::from(self.size);
        let mut ops = Vec::new();
        let mut size = from;
        if crop.width > from.width || crop.height > from.height {
            let missing = |crop: usize, side: usize| crop.saturating_sub(side);
            let (x, y) = (missing(crop.width, from.width), missing(crop.height, from.height));
            size = Size::new(from.width + x, from.height + y);
            ops.push(Op::Pad { left: x / 2, top: y / 2, to: size, border: PadMode::Zeros });
        }
        let offset = |side: usize, crop: usize| half_to_even(side - crop);
        let (x, y) = (offset(size.width, crop.width), offset(size.height, crop.height));
        ops.push(Op::Crop(Rect::new(x, y, crop.width, crop.height)));
        ops
    }
}

/// `round(n / 2)` as Python rounds: a half goes to the even neighbour.
fn half_to_even(n: usize) -> usize {
    let half = n / 2;
    half + (n % 2) * (half % 2)
}

/// As `torchvision.transforms.RandomCrop(size, padding, pad_if_needed=True)`.
impl Transform for RandomCrop {
    fn check(&self) -> Result<(), String> {
        sized(Size::square(self.size))?;
        let sane = self.pad <= MAX_OUTPUT_SIDE;
        if sane { Ok(()) } else { Err(format!("padding of {} pixels", self.pad)) }
    }

    fn output(&self, _from: Option<Size>) -> Option<Size> {
        Some(Size::square(self.size))
    }

    fn plan(&self, from: Size, rng: &mut Rng) -> Vec<Op> {
        let size = self.size;
        // What is still missing after padding is added on both sides, as torchvision does.
        let border = |side: usize| self.pad + size.saturating_sub(side + 2 * self.pad);
        let (left, top) = (border(from.width), border(from.height));
        let padded = Size::new(from.width + 2 * left, from.height + 2 * top);
        let y = rng.below(padded.height - size + 1);
        let x = rng.below(padded.width - size + 1);
        vec![Op::Pad { left, top, to: padded, border: self.mode }, Op::Crop(Rect::new(x, y, size, size))]
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Plan;
    use super::*;
    use crate::image::Image;

    #[test]
    fn offsets_round_half_to_even() {
        // (341 - 224) / 2 = 58.5 -> 58; (309 - 224) / 2 = 42.5 -> 42; 0.5 -> 0; 1.5 -> 2; 91.5 -> 92
        for (n, offset) in [(117, 58), (85, 42), (1, 0), (3, 2), (183, 92), (32, 16), (0, 0)] {
            assert_eq!(half_to_even(n), offset, "{n}");
        }
    }

    #[test]
    fn a_small_image_is_padded_as_torchvision_does() {
        let ops =
            CenterCrop { size: zoo_settings::ImageSize::Square(10) }.plan(Size::new(7, 20), &mut Rng::new(0, 0, 0));
        // 3 columns missing: 1 on the left, 2 on the right; rows: (20 - 10) / 2.
        let pad = Op::Pad { left: 1, top: 0, to: Size::new(10, 20), border: PadMode::Zeros };
        assert_eq!(ops, [pad, Op::Crop(Rect::new(0, 5, 10, 10))]);
    }

    /// Crops of a padded image of 3x2 pixels, numbered row by row: `F.pad(x, (2, 2, 1, 1), "reflect")` of PyTorch
    /// has the rows 5 4 3 4 5 4 3, 2 1 0 1 2 1 0, 5 4 3 4 5 4 3 and 2 1 0 1 2 1 0.
    #[test]
    fn borders_are_reflected() {
        let image = Image::new(Size::new(3, 2), (0..6).flat_map(|n| [n; 3]).collect()).unwrap();
        let pad = Op::Pad { left: 2, top: 1, to: Size::new(7, 4), border: PadMode::Reflect };
        let plan = Plan::new(image.size(), &[pad, Op::Crop(Rect::new(1, 1, 6, 3))], None);
        let pixels: Vec<u8> = plan.run(image).pixels().iter().step_by(3).copied().collect();
        assert_eq!(pixels, [1, 0, 1, 2, 1, 0, 4, 3, 4, 5, 4, 3, 1, 0, 1, 2, 1, 0]);
    }

    #[test]
    fn random_crops_reach_every_offset() {
        let crop = RandomCrop { size: 32, pad: 4, mode: PadMode::Zeros };
        let mut seen = std::collections::HashSet::new();
        for sample in 0..2000 {
            let ops = crop.plan(Size::square(32), &mut Rng::new(1, 0, sample));
            let Op::Crop(rect) = ops[1] else { panic!("a crop comes last") };
            seen.insert((rect.x, rect.y));
        }
        assert_eq!(seen.len(), 81);
    }
}

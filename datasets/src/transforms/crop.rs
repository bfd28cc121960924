//! Crops of a fixed size: from the centre, or from anywhere with padding.

use super::plan::Op;
use crate::Rng;
use crate::image::{Rect, Size};

/// The middle of the image (`torchvision.transforms.CenterCrop`). An image smaller than the crop is padded with black
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CenterCrop {
    /// Size of the result.
    pub size: Size,
}

impl CenterCrop {
    pub(super) fn plan(self, from: Size) -> Vec<Op> {
        let mut ops = Vec::new();
        let mut size = from;
        if self.size.width > from.width || self.size.height > from.height {
            let missing = |crop: usize, side: usize| crop.saturating_sub(side);
            let (x, y) = (missing(self.size.width, from.width), missing(self.size.height, from.height));
            size = Size::new(from.width + x, from.height + y);
            ops.push(Op::Pad { left: x / 2, top: y / 2, to: size, border: Border::BLACK });
        }
        let offset = |side: usize, crop: usize| half_to_even(side - crop);
        let (x, y) = (offset(size.width, self.size.width), offset(size.height, self.size.height));
        ops.push(Op::Crop(Rect::new(x, y, self.size.width, self.size.height)));
        ops
    }
}

/// `round(n / 2)` as Python rounds: a half goes to the even neighbour.
fn half_to_even(n: usize) -> usize {
    let half = n / 2;
    half + (n % 2) * (half % 2)
}

/// A crop from a random place (`torchvision.transforms.RandomCrop(size, padding, pad_if_needed=True)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomCrop {
    /// Size of the result.
    pub size: Size,
    /// Pixels put around the image first.
    pub padding: usize,
    /// What the padding shows.
    pub border: Border,
}

/// What the padding around an image shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Border {
    /// One colour.
    Colour([u8; 3]),
    /// The image, mirrored at its edge rows and columns, which are not repeated (`padding_mode="reflect"`).
    Reflected,
}

impl Border {
    /// Padding with zeros.
    pub const BLACK: Self = Self::Colour([0; 3]);
}

impl RandomCrop {
    pub(super) fn plan(self, from: Size, rng: &mut Rng) -> Vec<Op> {
        // What is still missing after padding is added on both sides, as torchvision does.
        let border = |side: usize, crop: usize| self.padding + crop.saturating_sub(side + 2 * self.padding);
        let (left, top) = (border(from.width, self.size.width), border(from.height, self.size.height));
        let padded = Size::new(from.width + 2 * left, from.height + 2 * top);
        let y = rng.below(padded.height - self.size.height + 1);
        let x = rng.below(padded.width - self.size.width + 1);
        vec![
            Op::Pad { left, top, to: padded, border: self.border },
            Op::Crop(Rect::new(x, y, self.size.width, self.size.height)),
        ]
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
        let ops = CenterCrop { size: Size::square(10) }.plan(Size::new(7, 20));
        // 3 columns missing: 1 on the left, 2 on the right; rows: (20 - 10) / 2.
        let pad = Op::Pad { left: 1, top: 0, to: Size::new(10, 20), border: Border::BLACK };
        assert_eq!(ops, [pad, Op::Crop(Rect::new(0, 5, 10, 10))]);
    }

    /// Crops of a padded image of 3x2 pixels, numbered row by row: `F.pad(x, (2, 2, 1, 1), "reflect")` of PyTorch
    /// has the rows 5 4 3 4 5 4 3, 2 1 0 1 2 1 0, 5 4 3 4 5 4 3 and 2 1 0 1 2 1 0.
    #[test]
    fn borders_are_reflected() {
        let image = Image::new(Size::new(3, 2), (0..6).flat_map(|n| [n; 3]).collect()).unwrap();
        let pad = Op::Pad { left: 2, top: 1, to: Size::new(7, 4), border: Border::Reflected };
        let plan = Plan::new(image.size(), &[pad, Op::Crop(Rect::new(1, 1, 6, 3))], None);
        let pixels: Vec<u8> = plan.run(image).pixels().iter().step_by(3).copied().collect();
        assert_eq!(pixels, [1, 0, 1, 2, 1, 0, 4, 3, 4, 5, 4, 3, 1, 0, 1, 2, 1, 0]);
    }

    #[test]
    fn random_crops_reach_every_offset() {
        let crop = RandomCrop { size: Size::square(32), padding: 4, border: Border::BLACK };
        let mut seen = std::collections::HashSet::new();
        for sample in 0..2000 {
            let ops = crop.plan(Size::square(32), &mut Rng::new(1, 0, sample));
            let Op::Crop(rect) = ops[1] else { panic!("a crop comes last") };
            seen.insert((rect.x, rect.y));
        }
        assert_eq!(seen.len(), 81);
    }
}

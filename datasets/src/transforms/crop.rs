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
            ops.push(Op::Pad { left: x / 2, top: y / 2, to: size, fill: [0; 3] });
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
    /// Pixels of `fill` put around the image first.
    pub padding: usize,
    /// Colour of the padding.
    pub fill: [u8; 3],
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
            Op::Pad { left, top, to: padded, fill: self.fill },
            Op::Crop(Rect::new(x, y, self.size.width, self.size.height)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let pad = Op::Pad { left: 1, top: 0, to: Size::new(10, 20), fill: [0; 3] };
        assert_eq!(ops, [pad, Op::Crop(Rect::new(0, 5, 10, 10))]);
    }

    #[test]
    fn random_crops_reach_every_offset() {
        let crop = RandomCrop { size: Size::square(32), padding: 4, fill: [0; 3] };
        let mut seen = std::collections::HashSet::new();
        for sample in 0..2000 {
            let ops = crop.plan(Size::square(32), &mut Rng::new(1, 0, sample));
            let Op::Crop(rect) = ops[1] else { panic!("a crop comes last") };
            seen.insert((rect.x, rect.y));
        }
        assert_eq!(seen.len(), 81);
    }
}

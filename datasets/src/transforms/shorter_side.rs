//! Resize by the shorter side.

use super::Filter;
use crate::image::Size;

/// Resize so that the shorter side is `size` and the shape is kept
/// (`torchvision.transforms.Resize(size)`: the longer side is truncated, not rounded).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShorterSide {
    /// Length of the shorter side of the result.
    pub size: usize,
    /// Interpolation filter.
    pub filter: Filter,
}

impl ShorterSide {
    /// Size of the result for an image of size `from`: the longer side is `int(size * long / short)`.
    pub fn target(self, from: Size) -> Size {
        let longer = |long: usize, short: usize| ((self.size * long) as f64 / short as f64) as usize;
        if from.width <= from.height {
            Size::new(self.size, longer(from.height, from.width))
        } else {
            Size::new(longer(from.width, from.height), self.size)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_side_is_truncated() {
        let resize = ShorterSide { size: 256, filter: Filter::Bilinear };
        // 256 * 500 / 375 = 341.33; 256 * 97 / 61 = 407.08; 256 * 500 / 333 = 384.38; 256 * 640 / 231 = 709.26
        assert_eq!(resize.target(Size::new(500, 375)), Size::new(341, 256));
        assert_eq!(resize.target(Size::new(97, 61)), Size::new(407, 256));
        assert_eq!(resize.target(Size::new(333, 500)), Size::new(256, 384));
        assert_eq!(resize.target(Size::new(231, 640)), Size::new(256, 709));
        // 128 * 1998 / 1000 = 255.744 does not become 256.
        assert_eq!(ShorterSide { size: 128, ..resize }.target(Size::new(1998, 1000)), Size::new(255, 128));
    }
}

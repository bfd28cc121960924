//! Resize by the shorter side.

use zoo_settings::Resize;

use super::plan::Op;
use super::{Transform, sized};
use crate::Rng;
use crate::image::Size;

impl Transform for Resize {
    fn check(&self) -> Result<(), String> {
        sized(Size::square(self.shorter))
    }

    fn output(&self, from: Option<Size>) -> Option<Size> {
        from.map(|from| shorter_side(self.shorter, from))
    }

    fn plan(&self, from: Size, _rng: &mut Rng) -> Vec<Op> {
        vec![Op::Resize { to: shorter_side(self.shorter, from), filter: self.filter }]
    }
}

/// Size of an image of size `from` whose shorter side becomes `size`: the longer side is `int(size * long / short)`,
/// truncated, not rounded (`torchvision.transforms.Resize(size)`).
pub fn shorter_side(size: usize, from: Size) -> Size {
    let longer = |long: usize, short: usize| ((size * long) as f64 / short as f64) as usize;
    if from.width <= from.height {
        Size::new(size, longer(from.height, from.width))
    } else {
        Size::new(longer(from.width, from.height), size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_side_is_truncated() {
        // 256 * 500 / 375 = 341.33; 256 * 97 / 61 = 407.08; 256 * 500 / 333 = 384.38; 256 * 640 / 231 = 709.26
        assert_eq!(shorter_side(256, Size::new(500, 375)), Size::new(341, 256));
        assert_eq!(shorter_side(256, Size::new(97, 61)), Size::new(407, 256));
        assert_eq!(shorter_side(256, Size::new(333, 500)), Size::new(256, 384));
        assert_eq!(shorter_side(256, Size::new(231, 640)), Size::new(256, 709));
        // 128 * 1998 / 1000 = 255.744 does not become 256.
        assert_eq!(shorter_side(128, Size::new(1998, 1000)), Size::new(255, 128));
    }
}

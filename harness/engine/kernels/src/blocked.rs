//! The blocked activation layout NC1HWC0: channels in blocks of [`C0`], the block innermost.
//!
//! Element (n, c, h, w) lies at `(((n * C1 + c / C0) * H + h) * W + w) * C0 + c % C0` with `C1 = ceil(C / C0)`.
//! Lanes of the last block beyond the last channel are zero; every kernel relies on it and keeps it so.

use std::ops::Range;

/// Channels in a block: one AVX-512 register of f32, and the C0 of the Ascend Cube for 16-bit operands.
pub const C0: usize = 16;

/// Number of channel blocks that hold `channels`.
#[must_use]
pub const fn channel_blocks(channels: usize) -> usize {
    channels.div_ceil(C0)
}

/// Extent of an activation in the blocked layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocked {
    /// Images.
    pub n: usize,
    /// Channels, not rounded up.
    pub c: usize,
    /// Rows.
    pub h: usize,
    /// Columns.
    pub w: usize,
}

impl Blocked {
    /// Extent of `n` images of `c` channels of `h` rows and `w` columns.
    #[must_use]
    pub const fn new(n: usize, c: usize, h: usize, w: usize) -> Self {
        Self { n, c, h, w }
    }

    /// Channel blocks of an image.
    #[must_use]
    pub const fn c1(&self) -> usize {
        channel_blocks(self.c)
    }

    /// Pixels of a plane.
    #[must_use]
    pub const fn pixels(&self) -> usize {
        self.h * self.w
    }

    /// f32 elements of one plane (one image, one channel block).
    #[must_use]
    pub const fn plane_len(&self) -> usize {
        self.h * self.w * C0
    }

    /// f32 elements of one image, padding lanes included.
    #[must_use]
    pub const fn image_len(&self) -> usize {
        self.c1() * self.plane_len()
    }

    /// f32 elements in all, padding lanes included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.n * self.image_len()
    }

    /// Whether there is no element.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Channels that block `c1` really holds: [`C0`] but for the last block.
    #[must_use]
    pub fn lanes(&self, c1: usize) -> usize {
        self.c.saturating_sub(c1 * C0).min(C0)
    }

    /// Sets the lanes beyond the last channel to zero.
    pub fn clear_filling(&self, values: &mut [f32]) {
        let lanes = self.c % C0;
        if lanes == 0 || self.is_empty() {
            return;
        }
        for image in values.chunks_exact_mut(self.image_len()) {
            let last = &mut image[(self.c1() - 1) * self.plane_len()..];
            last.chunks_exact_mut(C0).for_each(|pixel| pixel[lanes..].fill(0.0));
        }
    }

    /// Position of element (n, c, h, w).
    #[must_use]
    pub const fn index(&self, n: usize, c: usize, h: usize, w: usize) -> usize {
        (((n * self.c1() + c / C0) * self.h + h) * self.w + w) * C0 + c % C0
    }

    /// Positions of the plane of image `n` and channel block `c1`.
    #[must_use]
    pub const fn plane(&self, n: usize, c1: usize) -> Range<usize> {
        let start = (n * self.c1() + c1) * self.plane_len();
        start..start + self.plane_len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_follows_the_formula() {
        let x = Blocked::new(2, 35, 4, 5);
        assert_eq!(x.c1(), 3);
        assert_eq!(x.len(), 2 * 3 * 4 * 5 * 16);
        // n=1, c=34 (block 2, lane 2), h=3, w=1: ((1*3 + 2)*4 + 3)*5 + 1 = 116 pixels, lane 2.
        assert_eq!(x.index(1, 34, 3, 1), 116 * 16 + 2);
        assert_eq!(x.plane(1, 2), 5 * 320..6 * 320);
        assert_eq!([x.lanes(0), x.lanes(1), x.lanes(2), x.lanes(3)], [16, 16, 3, 0]);
    }
}

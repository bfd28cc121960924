//! Sliding windows of convolutions and pools.

use super::OpError;

/// A window that slides over the two spatial axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Height and width of the window.
    pub kernel: [usize; 2],
    /// Steps between windows.
    pub stride: [usize; 2],
    /// Zeros (for maxima: minus infinity) around the map: top, bottom, left, right.
    pub pad: [usize; 4],
    /// Steps between the taps of one window.
    pub dilation: [usize; 2],
    /// Whether a partial window at the end counts (`ceil_mode` of PyTorch's pools).
    pub ceil: bool,
}

impl Window {
    /// A window without padding or dilation.
    pub fn new(kernel: [usize; 2], stride: [usize; 2]) -> Self {
        Self { kernel, stride, pad: [0; 4], dilation: [1; 2], ceil: false }
    }

    /// Output height and width over a map of `h` x `w`.
    ///
    /// Formula of `torch.nn.Conv2d` and `torch.nn.MaxPool2d`: `(n + pads - dilation*(k-1) - 1) / stride + 1`, rounded
    /// down; with `ceil` rounded up, but no window starts in the padding at the end.
    ///
    /// # Errors
    /// A zero attribute, or a window larger than the padded map.
    pub fn output(&self, h: usize, w: usize) -> Result<[usize; 2], OpError> {
        for (name, pair) in [("kernel", self.kernel), ("stride", self.stride), ("dilation", self.dilation)] {
            if pair.contains(&0) {
                return Err(OpError::Attribute(format!("{name} must be at least 1, found {}x{}", pair[0], pair[1])));
            }
        }
        let overflow = || OpError::Attribute("kernel, dilation or padding is too large".into());
        let extent = |axis: usize| {
            (self.kernel[axis] - 1).checked_mul(self.dilation[axis]).and_then(|e| e.checked_add(1)).ok_or_else(overflow)
        };
        let padded = |n: usize, axis: usize| {
            n.checked_add(self.pad[2 * axis]).and_then(|p| p.checked_add(self.pad[2 * axis + 1])).ok_or_else(overflow)
        };
        let (extents, sizes) = ([extent(0)?, extent(1)?], [padded(h, 0)?, padded(w, 1)?]);
        if extents[0] > sizes[0] || extents[1] > sizes[1] {
            return Err(OpError::Window { kernel_h: extents[0], kernel_w: extents[1], h: sizes[0], w: sizes[1] });
        }
        let count = |axis: usize, n: usize| {
            let room = sizes[axis] - extents[axis];
            let stride = self.stride[axis];
            if !self.ceil {
                return room / stride + 1;
            }
            let out = room.div_ceil(stride) + 1;
            let starts_in_far_padding = (out - 1) * stride >= n + self.pad[2 * axis];
            out - usize::from(starts_in_far_padding)
        };
        Ok([count(0, h), count(1, w)])
    }

    /// Number of taps in a window.
    pub fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Requires that no window of a pool contains only padding: PyTorch's rule `pad <= kernel / 2`.
    ///
    /// # Errors
    /// Padding of more than half the kernel.
    pub fn expect_pool_padding(&self) -> Result<(), OpError> {
        let worst = [self.pad[0].max(self.pad[1]), self.pad[2].max(self.pad[3])];
        if worst[0] * 2 > self.kernel[0] || worst[1] * 2 > self.kernel[1] {
            return Err(OpError::Attribute(format!(
                "padding {}x{} is more than half of the {}x{} pool",
                worst[0], worst[1], self.kernel[0], self.kernel[1]
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(kernel: usize, stride: usize, pad: usize, ceil: bool) -> Window {
        Window { pad: [pad; 4], ceil, ..Window::new([kernel; 2], [stride; 2]) }
    }

    #[test]
    fn sizes_follow_pytorch() {
        assert_eq!(pool(7, 2, 3, false).output(224, 224), Ok([112, 112]));
        assert_eq!(pool(3, 2, 1, false).output(112, 112), Ok([56, 56]));
        assert_eq!(pool(11, 4, 2, false).output(224, 224), Ok([55, 55]));
        assert_eq!(pool(3, 2, 0, false).output(12, 13), Ok([5, 6]));
        assert_eq!(pool(3, 2, 0, true).output(12, 13), Ok([6, 6]));
        assert_eq!(pool(2, 2, 1, true).output(3, 4), Ok([2, 3]), "no window starts in the far padding");
        let dilated = Window { dilation: [2, 2], ..pool(3, 1, 2, false) };
        assert_eq!(dilated.output(15, 15), Ok([15, 15]));
    }

    #[test]
    fn impossible_windows_are_refused() {
        assert!(matches!(pool(7, 1, 0, false).output(6, 8), Err(OpError::Window { kernel_h: 7, h: 6, .. })));
        assert!(matches!(pool(3, 0, 0, false).output(6, 8), Err(OpError::Attribute(_))));
        assert!(pool(usize::MAX, 1, 0, false).output(6, 8).is_err());
    }
}

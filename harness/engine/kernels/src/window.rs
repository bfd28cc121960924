//! Windows that slide over the pixels of a map: what pools have in common.

use crate::Blocked;
use std::ops::Range;
use thiserror::Error;

/// A window that slides over rows and columns. Pairs are (rows, columns).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Extent.
    pub kernel: [usize; 2],
    /// Steps between windows.
    pub stride: [usize; 2],
    /// Padding around the map: top, bottom, left, right.
    pub pad: [usize; 4],
    /// Steps between the taps of a window.
    pub dilation: [usize; 2],
    /// Whether a last, partial window counts (`ceil_mode` of PyTorch's pools).
    pub ceil: bool,
}

impl Window {
    /// A window without padding or dilation.
    #[must_use]
    pub const fn new(kernel: [usize; 2], stride: [usize; 2]) -> Self {
        Self { kernel, stride, pad: [0; 4], dilation: [1; 2], ceil: false }
    }
}

/// Why no pool has the given parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PoolError {
    /// An extent, stride or dilation is zero.
    #[error("{0} is zero")]
    Zero(&'static str),
    /// A window is larger than the padded map.
    #[error("a window that spans {kernel} {axis} is larger than {padded}, the map with its padding")]
    WindowTooLarge {
        /// "rows" or "columns".
        axis: &'static str,
        /// Extent of the dilated window.
        kernel: usize,
        /// Extent of the map with its padding.
        padded: usize,
    },
    /// A window would hold nothing but padding.
    #[error("window {index} of the {axis} lies in the padding")]
    OnlyPadding {
        /// "rows" or "columns".
        axis: &'static str,
        /// Which window.
        index: usize,
    },
    /// Dilated windows have no mean.
    #[error("an average pool has no dilation")]
    Dilation,
}

/// One axis of the windows over one axis of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Axis {
    /// Extent of the map.
    pub extent: usize,
    /// Number of windows.
    pub windows: usize,
    kernel: usize,
    stride: usize,
    dilation: usize,
    /// Padding before and after the map.
    pad: [usize; 2],
}

impl Axis {
    /// Rows and columns of `window` over the maps of `input`.
    pub(crate) fn both(window: Window, input: Blocked) -> Result<[Self; 2], PoolError> {
        let extents = [
            (input.h.min(input.w), "the map"),
            (window.kernel[0].min(window.kernel[1]), "the kernel"),
            (window.stride[0].min(window.stride[1]), "the stride"),
            (window.dilation[0].min(window.dilation[1]), "the dilation"),
        ];
        if let Some((_, name)) = extents.into_iter().find(|(extent, _)| *extent == 0) {
            return Err(PoolError::Zero(name));
        }
        Ok([Self::new("rows", window, input.h, 0)?, Self::new("columns", window, input.w, 1)?])
    }

    /// Number of windows as in `torch.nn.MaxPool2d`: `(extent + pads - dilation * (kernel - 1) - 1) / stride + 1`,
    /// rounded down; with `ceil` rounded up, but no window starts in the far padding.
    fn new(name: &'static str, window: Window, extent: usize, axis: usize) -> Result<Self, PoolError> {
        let (kernel, stride, dilation) = (window.kernel[axis], window.stride[axis], window.dilation[axis]);
        let pad = [window.pad[2 * axis], window.pad[2 * axis + 1]];
        let span = dilation.saturating_mul(kernel - 1).saturating_add(1);
        let padded = extent.saturating_add(pad[0]).saturating_add(pad[1]);
        if span > padded {
            return Err(PoolError::WindowTooLarge { axis: name, kernel: span, padded });
        }
        let room = padded - span;
        let mut windows = if window.ceil { room.div_ceil(stride) } else { room / stride } + 1;
        if window.ceil && (windows - 1) * stride >= extent + pad[0] {
            windows -= 1;
        }
        let axis = Self { extent, windows, kernel, stride, dilation, pad };
        match (0..windows).find(|index| axis.taps(*index).is_empty()) {
            Some(index) => Err(PoolError::OnlyPadding { axis: name, index }),
            None => Ok(axis),
        }
    }

    /// The taps of a window that lie on the map.
    pub(crate) fn taps(&self, window: usize) -> Range<usize> {
        let start = window * self.stride;
        let first = self.pad[0].saturating_sub(start).div_ceil(self.dilation);
        let end = (self.extent + self.pad[0]).saturating_sub(start).div_ceil(self.dilation).min(self.kernel);
        first.min(end)..end
    }

    /// Where on the map a tap of a window lies, if it does.
    pub(crate) fn position(&self, window: usize, tap: usize) -> usize {
        window * self.stride + tap * self.dilation - self.pad[0]
    }

    /// For every position on the map the windows that see it, in order, each with the tap that does.
    pub(crate) fn seen_by(&self) -> Vec<Vec<(usize, usize)>> {
        let mut seen = vec![Vec::new(); self.extent];
        for window in 0..self.windows {
            for tap in self.taps(window) {
                seen[self.position(window, tap)].push((window, tap));
            }
        }
        seen
    }

    /// The positions on the map that a window sees, and how many positions it counts with those in the padding:
    /// up to the end of the padding, as PyTorch does where a window of `ceil` hangs over it.
    pub(crate) fn span(&self, window: usize) -> (Range<usize>, usize) {
        let taps = self.taps(window);
        let start = window * self.stride;
        let end = (start + self.kernel).min(self.extent + self.pad[0] + self.pad[1]);
        (self.position(window, taps.start)..self.position(window, taps.end - 1) + 1, end - start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(extent: usize, kernel: usize, stride: usize, pad: usize, ceil: bool) -> Axis {
        let window = Window { pad: [pad; 4], ceil, ..Window::new([kernel; 2], [stride; 2]) };
        Axis::both(window, Blocked::new(1, 1, extent, extent)).unwrap()[0]
    }

    #[test]
    fn counts_follow_pytorch() {
        assert_eq!(axis(112, 3, 2, 1, false).windows, 56);
        assert_eq!(axis(55, 3, 2, 0, false).windows, 27);
        assert_eq!(axis(12, 3, 2, 0, true).windows, 6);
        assert_eq!(axis(3, 2, 2, 1, true).windows, 2, "no window starts in the far padding");
    }

    #[test]
    fn windows_are_clipped_to_the_map() {
        // 6 positions: windows start at -1, 1, 3, 5; the last one reaches past the padding's end.
        let axis = axis(6, 3, 2, 1, true);
        assert_eq!((0..4).map(|w| axis.taps(w)).collect::<Vec<_>>(), [1..3, 0..3, 0..3, 0..1]);
        assert_eq!((0..4).map(|w| axis.span(w)).collect::<Vec<_>>(), [(0..2, 3), (1..4, 3), (3..6, 3), (5..6, 2)]);
        assert_eq!(axis.seen_by()[3], [(1, 2), (2, 0)]);
    }

    #[test]
    fn dilated_taps_skip_positions() {
        let window = Window { pad: [2; 4], dilation: [2; 2], ..Window::new([3; 2], [1; 2]) };
        let axis = Axis::both(window, Blocked::new(1, 1, 5, 5)).unwrap()[0];
        assert_eq!(axis.windows, 5);
        assert_eq!(axis.taps(0), 1..3);
        assert_eq!(axis.taps(1), 1..3);
        assert_eq!(axis.position(1, 1), 1);
        assert_eq!(axis.taps(4), 0..2);
    }

    #[test]
    fn impossible_windows_are_refused() {
        let input = Blocked::new(1, 1, 6, 8);
        let refused = |window| Axis::both(window, input).unwrap_err();
        assert_eq!(refused(Window::new([0, 1], [1, 1])), PoolError::Zero("the kernel"));
        assert_eq!(refused(Window::new([3, 3], [1, 0])), PoolError::Zero("the stride"));
        let too_large = PoolError::WindowTooLarge { axis: "rows", kernel: 7, padded: 6 };
        assert_eq!(refused(Window::new([7, 7], [1, 1])), too_large);
        let padding = Window { pad: [2, 0, 0, 0], ..Window::new([2, 2], [1, 1]) };
        assert_eq!(refused(padding), PoolError::OnlyPadding { axis: "rows", index: 0 });
        let endless = PoolError::WindowTooLarge { axis: "rows", kernel: usize::MAX, padded: 6 };
        assert_eq!(refused(Window::new([usize::MAX, 2], [1, 1])), endless);
    }
}

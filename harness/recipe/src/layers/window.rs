//! Common parts of layers with a sliding window.

use zoo_graph::ops;

use crate::resolve::Place;
use crate::schema::{Padding, Pair};

/// A window as the graph has it.
pub(super) fn window(kernel: Pair, stride: Pair, pad: Padding) -> ops::Window {
    ops::Window { pad: pad.0, ..ops::Window::new(kernel.0, stride.0) }
}

/// A description of a window: `3x3, stride 2, pad 1`, without the stride if it is `usual`.
pub(super) fn text(kernel: Pair, stride: Pair, pad: Padding, usual: Pair) -> String {
    let mut text = kernel.to_string();
    if stride != usual {
        text += &format!(", stride {}", one(stride));
    }
    if pad != Padding::default() {
        text += &format!(", pad {pad}");
    }
    text
}

/// One number if height and width are equal.
pub(super) fn one(Pair([height, width]): Pair) -> String {
    if height == width { height.to_string() } else { format!("{:?}", [height, width]) }
}

/// A window with only padding has no maximum and no mean.
pub(super) fn check(kernel: Pair, pad: Padding, at: &mut Place<'_, '_>) {
    let [top, bottom, left, right] = pad.0;
    if top.max(bottom) >= kernel.0[0] || left.max(right) >= kernel.0[1] {
        let message =
            format!("a pool of {kernel} cannot be padded by {:?}: some windows would contain only padding", pad.0);
        at.error("pad", message);
    }
}

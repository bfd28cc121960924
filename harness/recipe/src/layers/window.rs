//! Common parts of layers with a sliding window.

use zoo_graph::{GraphError, Op, ValueId, ops};

use super::resolve::Place;
use crate::builder::Builder;
use crate::python::{At, Code, Var};
use crate::values::{Padding, Pair};

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

/// A size as Python: one number if height and width are equal.
pub(super) fn pair(at: &mut At<'_, '_>, key: &str, Pair([height, width]): Pair) -> Code {
    if height == width {
        return Code::number(at.size(key, height));
    }
    if at.input().len() == 3 {
        return Code::count(width);
    }
    Code::tuple([height, width].map(Code::count).to_vec())
}

/// Whether PyTorch's layers can pad like this.
pub(super) fn is_symmetric(Padding([top, bottom, left, right]): Padding) -> bool {
    top == bottom && left == right
}

/// The present value, padded beforehand if PyTorch's layers cannot; `fill` is a further argument.
pub(super) fn padded(at: &mut At<'_, '_>, pad: Padding, fill: &str) -> Var {
    if is_symmetric(pad) {
        return at.x();
    }
    let [top, bottom, left, right] = pad.0;
    let x = at.x();
    let dims = at.input().to_vec();
    let sides = Code::text(format!("({left}, {right}, {top}, {bottom}){fill}"));
    let padded = at.function(Code::applied("functional.pad", x, vec![sides]));
    at.shaped(padded, &dims);
    padded
}

/// A pool of `[C, H, W]`, or of `[C, L]` as of a map of height 1.
pub(super) fn pooled(at: &mut Builder<'_, '_>, pool: impl Into<Op>, x: ValueId) -> Result<ValueId, GraphError> {
    let [n, channels, length] = at.shape(x)[..] else { return at.add(pool, &[x]) };
    let map = at.add_part("map", ops::Reshape { shape: [n, channels, 1, length].into() }, &[x])?;
    let map = at.add_part("pool", pool, &[map])?;
    let shape = [n, channels, at.shape(map).iter().skip(2).product()];
    at.add(ops::Reshape { shape: shape.into() }, &[map])
}

/// The name of a pool in PyTorch for the present value.
pub(super) fn named(at: &At<'_, '_>, maps: &'static str, rows: &'static str) -> &'static str {
    if at.input().len() == 3 { rows } else { maps }
}

/// Stride and padding as arguments, unless they are as usual.
pub(super) fn options(at: &mut At<'_, '_>, stride: Pair, pad: Padding, usual: Pair) -> Vec<Code> {
    let mut options = Vec::new();
    if stride != usual || at.is_written("stride") {
        options.push(Code::named("stride", pair(at, "stride", stride)));
    }
    if is_symmetric(pad) && (pad != Padding::default() || at.is_written("pad")) {
        options.push(Code::named("padding", pair(at, "pad", Pair([pad.0[0], pad.0[2]]))));
    }
    options
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

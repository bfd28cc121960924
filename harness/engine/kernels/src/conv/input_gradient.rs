//! The gradient of a convolution with respect to its input (Conv2DBackpropInput).
//!
//! With stride s, input pixels fall into s x s phases. The pixels of a phase are reached by the same kernel elements,
//! and from consecutive output pixels: each phase is a stride-1 correlation of dy with some of the kernel, so no
//! multiplication with an inserted zero takes place.

use super::correlate::{Correlation, Grid};
use super::frame::Maps;
use super::tiles::{self, OnTiles};
use super::weights::{Direction, PackedLayout, transpose_weights, transposed_len};
use super::winograd::{self, Squares};
use super::{ConvShape, Way, way};
use crate::half::{HalfType, Rounding};
use crate::isa::Isa;
use crate::parts::words;

/// Elements of the workspace of [`input_gradient`].
#[must_use]
pub fn input_workspace_len(isa: Isa, shape: &ConvShape, operands: Option<HalfType>) -> usize {
    match way(isa, shape, operands) {
        Way::Tiles(_, parts) => tiles::packed_words(shape, Direction::Transposed, parts),
        Way::Winograd => winograd::transformed_len(shape, Direction::Transposed),
        Way::Direct => transposed_len(shape),
    }
}

/// `dx[n, c, i, j] = sum over o, a, b of dy[n, o, (i + top - a * d0) / s0, (j + left - b * d1) / s1] * w[o, c, a, b]`
/// over the terms whose divisions leave no rest; dy and dx in the layout NC1HWC0.
///
/// `operands` is the format of all elements of dy and the weights, if it is not f32: tiles multiply them faster then.
/// `workspace` holds the transposed weights meanwhile: [`input_workspace_len`] elements. `rounding` is how a simulated
/// device holds dx.
///
/// # Panics
/// If a slice has not the length that the shape calls for.
#[allow(clippy::too_many_arguments, reason = "the operands of a convolution, and what is done with them")]
pub fn input_gradient(
    isa: Isa,
    shape: &ConvShape,
    operands: Option<HalfType>,
    dy: &[f32],
    packed: &[f32],
    workspace: &mut [f32],
    dx: &mut [f32],
    rounding: Option<&Rounding>,
) {
    let grids = phases(shape);
    if grids.iter().all(|grid| grid.taps.is_empty()) {
        // All outputs read padding alone: with a stride, they may step over every pixel of a small map.
        dx.fill(0.0);
        return;
    }
    let (transposed, on) = match way(isa, shape, operands) {
        Way::Tiles(amx, parts) => {
            let weights = words(workspace);
            tiles::pack(isa, shape, Direction::Transposed, parts, packed, weights);
            (&[][..], Some(OnTiles { amx, parts, weights }))
        }
        Way::Winograd => {
            winograd::transform(isa, shape, Direction::Transposed, packed, workspace);
            let squares = Squares {
                isa,
                maps: dy,
                source: shape.output(),
                pad: [2 - shape.pad[0], 2 - shape.pad[2]],
                weights: workspace,
                dest: shape.input(),
                bias: None,
                relu: false,
                rounding,
            };
            squares.compute(dx, false);
            return;
        }
        Way::Direct => {
            transpose_weights(isa, shape, packed, workspace);
            (&*workspace, None)
        }
    };
    let correlation = Correlation {
        isa,
        depthwise: shape.is_depthwise(),
        maps: Maps::Blocked(dy),
        source: shape.output(),
        source_step: [1, 1],
        grids,
        layout: PackedLayout::transposed(shape),
        weights: if shape.is_depthwise() { packed } else { transposed },
        dest: shape.input(),
        dest_step: shape.stride,
        bias: None,
        relu: false,
        rounding,
    };
    match on {
        Some(on) => correlation.compute_on_tiles(&on, dy, dx, false),
        None => correlation.compute(dx, false),
    };
}

/// The phases of the input that have a pixel.
pub(crate) fn phases(shape: &ConvShape) -> Vec<Grid> {
    let [top, _, left, _] = shape.pad;
    let rows = axis_phases(shape.h, shape.stride[0], top, shape.kh, shape.dilation[0]);
    let columns = axis_phases(shape.w, shape.stride[1], left, shape.kw, shape.dilation[1]);
    let mut grids = Vec::with_capacity(rows.len() * columns.len());
    for (row, (height, row_taps)) in rows.iter().enumerate() {
        for (column, (width, column_taps)) in columns.iter().enumerate() {
            let taps = row_taps
                .iter()
                .flat_map(|&(a, di)| column_taps.iter().map(move |&(b, dj)| ([di, dj], a * shape.kw + b)))
                .collect();
            grids.push(Grid { outputs: [*height, *width], origin: [row, column], taps });
        }
    }
    grids
}

/// For each phase along one axis: its length, and (kernel element, offset in dy) of the elements that reach it.
fn axis_phases(
    len: usize,
    stride: usize,
    pad: usize,
    kernel: usize,
    dilation: usize,
) -> Vec<(usize, Vec<(usize, isize)>)> {
    (0..stride.min(len))
        .map(|phase| {
            let taps = (0..kernel).filter_map(|k| {
                let distance = (phase + pad).wrapping_sub(k * dilation).cast_signed();
                (distance % stride.cast_signed() == 0).then(|| (k, distance / stride.cast_signed()))
            });
            ((len - phase).div_ceil(stride), taps.collect())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_3_kernel_with_stride_2_and_padding_1_has_one_tap_on_even_and_two_on_odd_pixels() {
        let phases = axis_phases(13, 2, 1, 3, 1);
        // Even pixels 2j see kernel element 1 from output j; odd pixels 2j+1 see element 0 from output j+1 and 2 from
        // j.
        assert_eq!(phases, vec![(7, vec![(1, 0)]), (6, vec![(0, 1), (2, 0)])]);
    }

    #[test]
    fn a_1_kernel_with_stride_2_leaves_odd_pixels_without_taps() {
        assert_eq!(axis_phases(4, 2, 0, 1, 1), vec![(2, vec![(0, 0)]), (2, vec![])]);
    }
}

//! The forward convolution.

use super::correlate::{Correlation, Grid};
use super::frame::Maps;
use super::statistics::{Statistics, combine};
use super::tiles::{self, OnTiles};
use super::weights::{Direction, PackedLayout};
use super::winograd::{self, Squares};
use super::{ConvShape, Way, way};
use crate::blocked::C0;
use crate::half::{HalfType, Rounding};
use crate::isa::Isa;
use crate::parts::words;

/// What is done with the results of a convolution before they leave the registers, or the cache.
#[derive(Debug, Default)]
pub struct Epilogue<'a> {
    /// Added per output channel: `c_out` values.
    pub bias: Option<&'a [f32]>,
    /// Mean and variance of every output channel, taken after the bias and before ReLU.
    pub statistics: Option<Statistics<'a>>,
    /// Negative results become zero.
    pub relu: bool,
    /// How a simulated device holds what is left then.
    pub rounding: Option<&'a Rounding>,
}

/// Elements of the workspace of [`forward`].
#[must_use]
pub fn forward_workspace_len(isa: Isa, shape: &ConvShape, operands: Option<HalfType>) -> usize {
    match way(isa, shape, operands) {
        Way::Tiles(_, parts) => tiles::packed_words(shape, Direction::Forward, parts),
        Way::Winograd => winograd::transformed_len(shape, Direction::Forward),
        Way::Direct => 0,
    }
}

/// `y = epilogue(convolution of x with the packed weights)`; y in the layout NC1HWC0.
///
/// `operands` is the format of all elements of x and the weights, if it is not f32: tiles multiply them faster then.
/// `workspace` has [`forward_workspace_len`] elements.
///
/// # Panics
/// If a slice has not the length that the shape calls for, or planar maps have too many channels or groups.
#[allow(clippy::too_many_arguments, reason = "the operands of a convolution, and what is done with them")]
pub fn forward(
    isa: Isa,
    shape: &ConvShape,
    operands: Option<HalfType>,
    x: Maps<'_>,
    packed: &[f32],
    workspace: &mut [f32],
    y: &mut [f32],
    epilogue: Epilogue<'_>,
) {
    let bias = epilogue.bias.map(|bias| pad_bias(shape, bias));
    let output = shape.output();
    let taps = shape.tap_offsets().into_iter().zip(0..).collect();
    let grid = Grid { outputs: [output.h, output.w], origin: [0, 0], taps };
    let moments = epilogue.statistics.is_some();
    let correlation = || Correlation {
        isa,
        depthwise: shape.is_depthwise(),
        maps: x,
        source: shape.input(),
        source_step: shape.stride,
        grids: vec![grid],
        layout: PackedLayout::forward(shape),
        weights: packed,
        dest: output,
        dest_step: [1, 1],
        bias: bias.as_deref(),
        relu: epilogue.relu,
        rounding: epilogue.rounding,
    };
    let moments = match (way(isa, shape, operands), x.blocked()) {
        (Way::Tiles(amx, parts), Some(x)) => {
            let weights = words(workspace);
            tiles::pack(isa, shape, Direction::Forward, parts, packed, weights);
            correlation().compute_on_tiles(&OnTiles { amx, parts, weights }, x, y, moments)
        }
        (Way::Winograd, Some(maps)) => {
            winograd::transform(isa, shape, Direction::Forward, packed, workspace);
            let squares = Squares {
                isa,
                maps,
                source: shape.input(),
                pad: [shape.pad[0], shape.pad[2]],
                weights: workspace,
                dest: output,
                bias: bias.as_deref(),
                relu: epilogue.relu,
                rounding: epilogue.rounding,
            };
            squares.compute(y, moments)
        }
        (Way::Direct, _) | (Way::Tiles(..) | Way::Winograd, None) => correlation().compute(y, moments),
    };
    if let Some(statistics) = epilogue.statistics {
        combine(&moments, statistics);
    }
}

/// The bias in blocks of 16 lanes, zero beyond the last channel.
fn pad_bias(shape: &ConvShape, bias: &[f32]) -> Vec<[f32; C0]> {
    assert_eq!(bias.len(), shape.c_out, "bias");
    let mut padded = vec![[0.0; C0]; shape.output().c1()];
    padded.as_flattened_mut()[..bias.len()].copy_from_slice(bias);
    padded
}

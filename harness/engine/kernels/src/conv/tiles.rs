//! Convolutions on AMX tiles ([`crate::micro::amx`]).
//!
//! Operands are divided into bf16 numbers ([`crate::parts`]) as they are copied to where a tile reads them. Products of
//! half precision are exact, those of f32 about as exact as f32, and sums are in f32. An infinity or NaN among the
//! operands may make a NaN of sums next to those that it belongs to.
//!
//! Output pixels, with the margin that their windows need, are numbered row by row ([`positions`]). A kernel element
//! then reads a run of consecutive positions at a distance of its own, and a tile takes 16 positions whatever their rows
//! are; results of positions in the margin are dropped.

mod correlate;
mod filter_gradient;
mod positions;
mod weights;

pub(super) use correlate::OnTiles;
pub(super) use filter_gradient::{filter_gradient, filter_sums};
pub(super) use weights::{pack, packed_words};

use super::{ConvShape, Maps};
use crate::blocked::C0;
use crate::half::HalfType;
use crate::isa::Isa;
use crate::micro::amx::{Amx, SIDE};
use crate::parts::Parts;

const _: () = assert!(SIDE == C0, "a tile has the columns of a channel block");

/// Whether tiles compute a convolution of operands of this format or, without one, of f32, and how. Grouped
/// convolutions and those of images with a few channels would mostly multiply zeros; on the smallest maps, most
/// positions of a tile have no output, and vectors, which run across images there, are faster for f32.
pub(super) fn way(isa: Isa, shape: &ConvShape, operands: Option<HalfType>) -> Option<(Amx, Parts)> {
    let (input, output, parts) = (shape.input(), shape.output(), Parts::of(operands));
    let dense = shape.groups == 1 && shape.c_in > Maps::MAX_PLANAR;
    let numbered = [input, output].iter().all(positions::fits);
    // An input is multiplied with all filters and taps, a filter with all pixels.
    let pays =
        parts.pays(shape.c_in * shape.taps(), shape.c_out) && parts.pays(output.n * output.pixels(), shape.c_out);
    let margin = (shape.kw - 1) * shape.dilation[1] / shape.stride[1];
    let positions = ((output.h - 1) * (output.w + margin) + output.w).next_multiple_of(SIDE);
    let filled = shape.taps() == 1 || parts != Parts::Three || 2 * output.pixels() > positions;
    Amx::of(isa).filter(|_| dense && numbered && pays && filled).map(|amx| (amx, parts))
}

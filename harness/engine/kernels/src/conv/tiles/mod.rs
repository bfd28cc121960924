//! Convolutions of half precision on AMX tiles ([`crate::micro::amx`]).
//!
//! Operands are converted to bf16, or to two bf16 numbers each, as they are copied to where a tile reads them. Products
//! are exact, and sums are in f32, so results differ from those of the vector kernels by the order of sums only. An
//! infinity or NaN among the operands may make a NaN of sums next to those that it belongs to.
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
pub(super) use weights::{Direction, pack, packed_words};

use super::{ConvShape, Maps};
use crate::blocked::C0;
use crate::half::HalfType;
use crate::isa::Isa;
use crate::micro::amx::{Amx, SIDE};
use crate::parts::Parts;

const _: () = assert!(SIDE == C0, "a tile has the columns of a channel block");

/// Whether tiles compute a convolution of operands of this format, and how. Grouped convolutions and those of images
/// with a few channels would mostly multiply zeros.
pub(super) fn ways(isa: Isa, shape: &ConvShape, operands: Option<HalfType>) -> Option<(Amx, Parts)> {
    let dense = shape.groups == 1 && shape.c_in > Maps::MAX_PLANAR;
    let numbered = [shape.input(), shape.output()].iter().all(positions::fits);
    Amx::of(isa).filter(|_| dense && numbered).zip(operands.map(Parts::of_type))
}

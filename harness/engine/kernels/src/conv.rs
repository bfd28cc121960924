//! Convolution: forward, input gradient and filter gradient, on maps in the layout NC1HWC0.
//!
//! Weights are packed once ([`pack_weights`]) and may stay so: the filter gradient comes out in the same layout, so an
//! optimizer can update packed weights element by element, and only a checkpoint needs [`unpack_weights`].

mod across_images;
mod correlate;
mod depthwise;
mod filter_gradient;
mod finish;
mod forward;
mod frame;
mod input_gradient;
mod shape;
mod statistics;
mod tiles;
mod weights;
mod winograd;

pub use filter_gradient::{filter_gradient, filter_workspace_len};
pub use forward::{Epilogue, forward, forward_workspace_len};
pub use frame::Maps;
pub use input_gradient::{input_gradient, input_workspace_len};
pub use shape::{ConvParams, ConvShape, ShapeError};
pub use statistics::Statistics;
pub use weights::{pack_weights, packed_len, unpack_weights};

use crate::half::HalfType;
use crate::isa::Isa;
use crate::micro::amx::Amx;
use crate::parts::Parts;

/// How a convolution and its gradients are computed.
enum Way {
    /// On AMX tiles, with numbers divided into parts.
    Tiles(Amx, Parts),
    /// By Winograd's algorithm.
    Winograd,
    /// As sums of products on vectors.
    Direct,
}

/// The way for operands of this format or, without one, of f32. Maps that are planar take the direct one in any case.
fn way(isa: Isa, shape: &ConvShape, operands: Option<HalfType>) -> Way {
    match tiles::way(isa, shape, operands) {
        Some((amx, parts)) => Way::Tiles(amx, parts),
        None if winograd::pays(isa, shape, operands) => Way::Winograd,
        None => Way::Direct,
    }
}

/// Whether a convolution of operands in this format or, without one, in f32, and its gradients are computed by
/// Winograd's algorithm F(2 x 2, 3 x 3): with fewer multiplications, and sums of other numbers than its products.
#[must_use]
pub fn uses_winograd(isa: Isa, shape: &ConvShape, operands: Option<HalfType>) -> bool {
    matches!(way(isa, shape, operands), Way::Winograd)
}

#[cfg(test)]
mod tests;

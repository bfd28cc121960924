//! Conversion between stored and row-major elements.

use super::{call::extent, conv::filter_shape};
use zoo_graph::{Layout, TensorType};
use zoo_kernels::{Isa, conv, transdata};

/// Row-major elements of values stored in the layout of `ty`.
pub(crate) fn to_plain(isa: Isa, ty: &TensorType, stored: &[f32], plain: &mut [f32]) {
    match (ty.layout, extent(ty), filter_shape(ty)) {
        (Layout::Nc1hwc0, Some(map), _) => transdata::to_nchw(isa, map, stored, plain),
        (Layout::FractalZ { .. }, _, Some(shape)) => conv::unpack_weights(isa, &shape, stored, plain),
        _ => plain.copy_from_slice(stored),
    }
}

/// Stored elements in the layout of `ty`, from row-major elements.
pub(crate) fn from_plain(isa: Isa, ty: &TensorType, plain: &[f32], stored: &mut [f32]) {
    match (ty.layout, extent(ty), filter_shape(ty)) {
        (Layout::Nc1hwc0, Some(map), _) => transdata::to_blocked(isa, map, plain, stored),
        (Layout::FractalZ { .. }, _, Some(shape)) => conv::pack_weights(isa, &shape, plain, stored),
        _ => stored.copy_from_slice(plain),
    }
}

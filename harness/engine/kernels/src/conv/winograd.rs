//! Convolutions of 3 x 3 elements by Winograd's algorithm F(2 x 2, 3 x 3).
//!
//! Four outputs that form a square read 4 x 4 source pixels `d`. With three constant matrices, their sums over the
//! nine kernel elements `g` are
//!
//! ```text
//! y = A^T [(G g G^T) * (B^T d B)] A
//! ```
//!
//! where `*` multiplies element by element: 16 multiplications instead of 36. Sums over channels are taken before the
//! last transformation, so each of the 16 places is a product of matrices, as of a 1 x 1 convolution. The gradient of
//! the filters is, with a sum over all squares,
//!
//! ```text
//! dg = G^T [(A dy A^T) * (B^T d B)] G
//! ```
//!
//! (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015, section 4.1; Winograd, "Arithmetic
//! Complexity of Computations", 1980). Filters are transformed in f64 and rounded once. The transformations of maps add
//! two roundings, of numbers about twice as large as the pixels.

mod correlate;
mod filter_gradient;
mod maps;
mod weights;

pub(super) use correlate::Squares;
pub(super) use filter_gradient::{filter_gradient, filter_sums};
pub(super) use weights::{transform, transformed_len};

use super::{ConvShape, Maps};
use crate::half::HalfType;
use crate::isa::Isa;

/// Outputs along an axis that are computed together.
const OUTPUTS: usize = 2;

/// Source pixels along an axis that these read, and products that they are made of.
const SIDE: usize = 4;

/// Products of a square.
const PRODUCTS: usize = SIDE * SIDE;

/// Squares of an image, along both axes.
fn squares(pixels: [usize; 2]) -> [usize; 2] {
    pixels.map(|len| len.div_ceil(OUTPUTS))
}

/// Whether the algorithm computes a convolution and its gradients: for operands in f32 with many channels, and maps
/// that squares of outputs cover with little waste.
pub(super) fn pays(isa: Isa, shape: &ConvShape, operands: Option<HalfType>) -> bool {
    let [top, bottom, left, right] = shape.pad;
    let fits = [shape.kh, shape.kw] == [3, 3]
        && shape.stride == [1, 1]
        && shape.dilation == [1, 1]
        && shape.groups == 1
        && top.max(bottom).max(left).max(right) <= 2;
    let output = shape.output();
    let [rows, columns] = squares([output.h, output.w]);
    fits && operands.is_none()
        && !isa.is_direct()
        && shape.c_in.min(shape.c_out) > Maps::MAX_PLANAR
        && 10 * output.pixels() >= 7 * OUTPUTS * OUTPUTS * rows * columns
        && output.n * rows * columns >= FEWEST
}

/// Squares of a batch for which the transformation of the filters pays.
const FEWEST: usize = 64;

//! Properties of an operator for devices: the units that it uses, and possible fusions.

use super::{Conv2D, GroupedMatMul, GroupedMatMulWeights, MatMul, Update};
use crate::{
    tensor::{DType, TensorType},
    units::Flop,
};

/// The work of a device in one application of an operator.
///
/// Numbers of vector instructions are those of a straightforward implementation. Other units do the loads and stores.
#[derive(Clone, Debug, PartialEq)]
pub enum Work<'a> {
    /// Nothing: memory is only read in another way, the result is constant, or another operator does it.
    Nothing,
    /// Moves data and computes nothing.
    Moves {
        /// Length in bytes of the contiguous runs that it copies.
        run: u64,
    },
    /// Moves data that could also be read in another way: with other strides, or from another start. If the operators
    /// of a software read any strides, it does nothing.
    Views {
        /// Length in bytes of the contiguous runs that it copies.
        run: u64,
    },
    /// Vector instructions, element by element.
    Stream {
        /// Number of stored elements.
        elements: u64,
        /// Instructions per element.
        instructions: u64,
        /// Bytes per element.
        width: u64,
    },
    /// Vector instructions, row by row of a map. An instruction processes a row of a block of channels, so in narrow
    /// maps the start of an instruction is amortised over few elements.
    Rows {
        /// The map, `[n, c, h, w]`.
        map: TensorType,
        /// Instructions per row.
        instructions: u64,
    },
    /// A matrix product, and vector instructions in f32 on each element of its result.
    Product {
        /// The product.
        product: Product<'a>,
        /// Vector instructions per element of the result.
        instructions: u64,
    },
}

/// A matrix product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Product<'a> {
    /// A convolution of operand 0 with the filters in operand 1.
    Convolution(&'a Conv2D),
    /// An input gradient of a convolution: operand 0 is the output gradient, operand 1 the filters.
    ConvolutionInput(&'a Conv2D),
    /// A filter gradient of a convolution: operand 0 is the input, operand 1 the output gradient.
    ConvolutionFilter(&'a Conv2D),
    /// The product of operands 0 and 1.
    Matrices(&'a MatMul),
    /// The product of each group of rows in operand 0 with its matrix in operand 1.
    Groups(&'a GroupedMatMul),
    /// For each group of rows, the product of operand 0, transposed, and operand 1.
    GroupGradients(&'a GroupedMatMulWeights),
}

/// The kind of the operator: the operators with which a compiler can fuse it, and what it updates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A product, whose results pass through the vector unit, so that element-wise operators can be appended.
    Product,
    /// A normalisation, to which an activation can be appended.
    Normalisation,
    /// An activation of operand 0.
    Activation,
    /// An element-wise operator on operand 0.
    Elementwise,
    /// An element-wise operator on all operands.
    Sum,
    /// Sums over operand 0, which only read it.
    Statistics,
    /// An update of persistent variables.
    Update(Update),
    /// None of these: it runs separately.
    Other,
}

/// Bytes of f32, the type in which normalisations and operators after products always compute.
const F32: u64 = DType::F32.bytes().0;

impl Work<'_> {
    /// `instructions` per element of a tensor, in f32.
    pub(super) fn in_f32(ty: &TensorType, instructions: u64) -> Self {
        Self::Stream { elements: ty.stored_numel() as u64, instructions, width: F32 }
    }

    /// `instructions` per element of the first result, in its own type.
    pub(super) fn per_result(outputs: &[&TensorType], instructions: u64) -> Self {
        let [y, ..] = outputs else { return Self::Nothing };
        Self::Stream { elements: y.stored_numel() as u64, instructions, width: y.dtype.bytes().0 }
    }

    /// One instruction per element of the first result, in the wider of its type and that of the first operand.
    pub(super) fn one(inputs: &[&TensorType], outputs: &[&TensorType]) -> Self {
        let ([x, ..], [y, ..]) = (inputs, outputs) else { return Self::Nothing };
        Self::Stream { elements: y.stored_numel() as u64, instructions: 1, width: wider(x, y) }
    }

    /// One instruction per operation of the cost rule: an estimate for operators without a detailed count.
    pub(super) fn counted(flop: Flop, inputs: &[&TensorType], outputs: &[&TensorType]) -> Self {
        let ([x, ..], [y, ..]) = (inputs, outputs) else { return Self::Nothing };
        let elements = flop.0.max(y.stored_numel() as u64);
        Self::Stream { elements, instructions: 1, width: wider(x, y) }
    }

    /// `instructions` per row of a map.
    pub(super) fn rows(map: &TensorType, instructions: usize) -> Self {
        Self::Rows { map: map.clone(), instructions: instructions as u64 }
    }
}

/// Bytes of an element of the wider type.
fn wider(x: &TensorType, y: &TensorType) -> u64 {
    x.dtype.bytes().0.max(y.dtype.bytes().0)
}

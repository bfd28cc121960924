//! Convolutions.

use super::call::Call;
use crate::{KernelError, error::MAP};
use zoo_graph::{
    Layout, TensorType,
    ops::{Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput},
};
use zoo_kernels::{
    Isa,
    conv::{self, ConvParams, ConvShape, Epilogue, Maps, Statistics},
    half::HalfType,
};

/// The convolution with these shapes: input `[n, c, h, w]`, filters `[o, c / groups, kh, kw]`.
fn shape(op: &Conv2D, input: &TensorType, filter: &TensorType) -> Result<ConvShape, KernelError> {
    let (Some([n, c_in, h, w]), Some([c_out, _, kh, kw])) = (input.shape.nchw(), filter.shape.nchw()) else {
        return Err(KernelError::Operand { place: 0, expected: MAP });
    };
    let window = &op.window;
    let params = ConvParams {
        n,
        c_in,
        h,
        w,
        c_out,
        kh,
        kw,
        stride: window.stride,
        pad: window.pad,
        dilation: window.dilation,
        groups: op.groups,
    };
    Ok(ConvShape::new(params)?)
}

/// The properties of a convolution that are needed to pack its filters.
pub(super) fn filter_shape(ty: &TensorType) -> Option<ConvShape> {
    let (Layout::FractalZ { groups }, Some([c_out, i, kh, kw])) = (ty.layout, ty.shape.nchw()) else { return None };
    let params = ConvParams {
        n: 1,
        c_in: i * groups,
        h: kh,
        w: kw,
        c_out,
        kh,
        kw,
        stride: [1, 1],
        pad: [0; 4],
        dilation: [1, 1],
        groups,
    };
    ConvShape::new(params).ok()
}

/// An image in row-major order, or blocked maps.
fn maps<'a>(ty: &TensorType, values: &'a [f32]) -> Maps<'a> {
    match ty.layout {
        Layout::Plain => Maps::Planar(values),
        Layout::Nc1hwc0 | Layout::FractalZ { .. } => Maps::Blocked(values),
    }
}

pub(super) fn forward(op: &Conv2D, mut call: Call<'_>) -> Result<(), KernelError> {
    let shape = shape(op, call.operand_types[0], call.operand_types[1])?;
    let (x, w) = (maps(call.operand_types[0], call.operand(0)?), call.operand(1)?);
    let ((isa, operands), bias, rounding) = (call.factors(), call.apart(2), call.rounding(0));
    let found = call.results.len();
    let (y, statistics) = match &mut call.results[..] {
        [y] => (y, None),
        [y, mean, variance] => (y, Some(Statistics { mean, variance })),
        _ => return Err(KernelError::Arity { found }),
    };
    let epilogue = Epilogue { bias, statistics, relu: op.relu, rounding };
    conv::forward(isa, &shape, operands, x, w, call.workspace, y, epilogue);
    Ok(())
}

/// Elements of the workspace of a convolution of this input and filter or of a gradient, as `len` has it for its
/// [factors](super::call::factors); zero for an unsupported shape.
pub(super) fn workspace(
    len: fn(Isa, &ConvShape, Option<HalfType>) -> usize,
    (isa, operands): (Isa, Option<HalfType>),
    op: &Conv2D,
    [input, filter]: [&TensorType; 2],
) -> usize {
    shape(op, input, filter).map_or(0, |shape| len(isa, &shape, operands))
}

pub(super) fn input_gradient(op: &Conv2DBackpropInput, mut call: Call<'_>) -> Result<(), KernelError> {
    let shape = shape(&op.conv, call.result_types[0], call.operand_types[1])?;
    let ((isa, operands), dy, w, rounding) = (call.factors(), call.operand(0)?, call.operand(1)?, call.rounding(0));
    conv::input_gradient(isa, &shape, operands, dy, w, call.workspace, call.results[0], rounding);
    Ok(())
}

pub(super) fn filter_gradient(op: &Conv2DBackpropFilter, mut call: Call<'_>) -> Result<(), KernelError> {
    let shape = shape(&op.conv, call.operand_types[0], call.result_types[0])?;
    let ((isa, operands), dy) = (call.factors(), call.operand(1)?);
    let x = maps(call.operand_types[0], call.operand(0)?);
    conv::filter_gradient(isa, &shape, operands, x, dy, call.workspace, call.results[0]);
    Ok(())
}

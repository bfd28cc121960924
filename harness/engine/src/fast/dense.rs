//! Operators of dense prediction and siamese networks.

use super::call::Call;
use crate::{KernelError, error::MAP};
use zoo_graph::{
    Layout, Shape,
    ops::{
        DepthwiseCorrelationGrad, ExtractPatches, ExtractPatchesGrad, Interpolation, LogitLayout, MaskSoftMargin,
        Resize, ResizeGrad, Window,
    },
};
use zoo_kernels::{
    C0, depthwise_correlation, l2_loss,
    mask_soft_margin::{self as mask, Logits},
    patches::{self, Patches},
    resize::{self, Tap},
};

/// The input pixels of each output pixel along an axis, for the kernels.
fn taps(interpolation: Interpolation, input: usize, output: usize) -> Vec<Tap> {
    let taps = interpolation.taps(input, output).into_iter();
    taps.map(|t| Tap { first: t.first, second: t.second, weight: t.weight }).collect()
}

pub(super) fn resize(op: &Resize, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, shape, x) = (call.isa, call.map(0)?, call.operand(0)?);
    let [rows, columns] = [taps(op.interpolation, shape.h, op.out[0]), taps(op.interpolation, shape.w, op.out[1])];
    let [y] = call.results()?;
    resize::resize(isa, shape, &rows, &columns, x, y);
    Ok(())
}

pub(super) fn resize_gradient(op: &ResizeGrad, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, shape, dy) = (call.isa, call.result_map(0)?, call.operand(0)?);
    let interpolation = op.resize.interpolation;
    let rows = taps(interpolation, shape.h, op.resize.out[0]);
    let columns = taps(interpolation, shape.w, op.resize.out[1]);
    let [dx] = call.results()?;
    resize::resize_gradient(isa, shape, &rows, &columns, dy, dx);
    Ok(())
}

pub(super) fn correlation(mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, shape, kernel_shape) = (call.isa, call.map(0)?, call.map(1)?);
    let (x, kernel) = (call.operand(0)?, call.operand(1)?);
    let [y] = call.results()?;
    depthwise_correlation::correlation(isa, shape, x, kernel_shape, kernel, y);
    Ok(())
}

pub(super) fn correlation_gradient(_: &DepthwiseCorrelationGrad, mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, shape, kernel_shape) = (call.isa, call.result_map(0)?, call.map(1)?);
    let (dy, kernel) = (call.operand(0)?, call.operand(1)?);
    let [dx] = call.results()?;
    depthwise_correlation::correlation_gradient(isa, shape, dx, kernel_shape, kernel, dy);
    Ok(())
}

/// Extents of windows over maps of this shape in this layout.
fn windows(window: &Window, map: &Shape, layout: Layout) -> Result<Patches, KernelError> {
    let expected = "a map that holds the window";
    let [n, c, h, w] = map.nchw().ok_or(KernelError::Operand { place: 0, expected })?;
    let out = window.output(h, w).map_err(|_| KernelError::Operand { place: 0, expected })?;
    let (planes, lanes) = match layout {
        Layout::Nc1hwc0 => (c.div_ceil(C0), C0),
        Layout::Plain | Layout::FractalZ { .. } => (c, 1),
    };
    let pad = [window.pad[0], window.pad[2]];
    Ok(Patches { n, planes, map: [h, w], kernel: window.kernel, stride: window.stride, pad, out, lanes })
}

pub(super) fn patches(op: &ExtractPatches, mut call: Call<'_>) -> Result<(), KernelError> {
    let shape = windows(&op.window, &call.operand_types[0].shape, call.operand_types[0].layout)?;
    let x = call.operand(0)?;
    let [y] = call.results()?;
    patches::extract(&shape, x, y);
    Ok(())
}

pub(super) fn patches_gradient(op: &ExtractPatchesGrad, mut call: Call<'_>) -> Result<(), KernelError> {
    let shape = windows(&op.patches.window, &op.input, call.operand_types[0].layout)?;
    let dy = call.operand(0)?;
    let [dx] = call.results()?;
    patches::extract_gradient(&shape, dy, dx);
    Ok(())
}

pub(super) fn mask_soft_margin(op: &MaskSoftMargin, mut call: Call<'_>) -> Result<(), KernelError> {
    let Some([n, one, h, w]) = call.operand_types[2].shape.nchw() else {
        return Err(KernelError::Operand { place: 2, expected: MAP });
    };
    let blocked = call.operand_types[0].layout == Layout::Nc1hwc0;
    let layout = op.logit_layout(&call.operand_types[0].shape, [n, one, h, w]);
    let (logits, side) = match (layout, blocked) {
        (Ok(LogitLayout::Rows), _) => (Logits::Rows, op.size),
        (Ok(LogitLayout::Channels { side }), false) => (Logits::Channels { side }, side),
        (Ok(LogitLayout::Channels { side }), true) => (Logits::Blocked { side }, side),
        (Err(_), _) => return Err(KernelError::Operand { place: 0, expected: "logits of masks" }),
    };
    let taps = taps(Interpolation::Bilinear { align_corners: op.align_corners }, side, op.size);
    let shape = mask::Shape { places: h * w, size: op.size, logits, taps: &taps };
    let (x, windows, select) = (call.operand(0)?, call.operand(1)?, call.operand(2)?);
    let [loss, gradient, iou, half, most] = call.results()?;
    let outcome = mask::mask_soft_margin(&shape, x, windows, select, gradient);
    loss[0] = outcome.loss as f32;
    iou[0] = outcome.iou as f32;
    half[0] = outcome.above_half as f32;
    most[0] = outcome.above_most as f32;
    Ok(())
}

/// Norm of all gradients, in any layout: padding is zero.
pub(super) fn global_norm(bound: f64, mut call: Call<'_>) -> Result<(), KernelError> {
    let isa = call.isa;
    let gradients = (0..call.operands.len()).map(|i| call.operand(i)).collect::<Result<Vec<_>, _>>()?;
    let norm = gradients.into_iter().map(|g| 2.0 * l2_loss::l2_loss(isa, g)).sum::<f64>().sqrt();
    let [total, factor] = call.results()?;
    total[0] = norm as f32;
    factor[0] = zoo_graph::ops::clip_factor(norm, bound) as f32;
    Ok(())
}

pub(super) fn bias_add(mut call: Call<'_>) -> Result<(), KernelError> {
    let (isa, shape, x, bias) = (call.isa, call.map(0)?, call.apart(0), call.operand(1)?);
    let rounding = call.rounding(0);
    let [y] = call.results()?;
    zoo_kernels::bias::bias_add(isa, shape, x, bias, y, rounding);
    Ok(())
}

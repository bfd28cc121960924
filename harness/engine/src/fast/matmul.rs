//! Matrix products: the three of a dense layer have kernels, the rest falls back.

use super::{call::Call, fallback};
use crate::KernelError;
use zoo_graph::{TensorType, ops::MatMul};
use zoo_kernels::linear::{self, Linear};

/// The dense layer that a product belongs to, if it has a kernel.
fn layer(op: &MatMul, operands: &[&TensorType]) -> Option<Linear> {
    let (&[a0, a1], &[b0, b1]) = (&operands.first()?.shape[..], &operands.get(1)?.shape[..]) else { return None };
    match (op.transpose_a, op.transpose_b) {
        (false, true) => Some(Linear { batch: a0, inputs: a1, outputs: b0 }),
        (false | true, false) if operands.len() == 2 => Some(Linear { batch: a0, inputs: b1, outputs: a1 }),
        _ => None,
    }
}

/// Elements of the workspace of a product.
pub(super) fn workspace(op: &MatMul, operands: &[&TensorType]) -> usize {
    layer(op, operands).map_or(0, |layer| layer.workspace_len())
}

pub(super) fn product(op: &MatMul, mut call: Call<'_>) -> Result<(), KernelError> {
    let Some(layer) = layer(op, &call.operand_types) else { return fallback::run(&op.clone().into(), call) };
    let bias = call.apart(2);
    let (isa, a, b) = (call.isa, call.operand(0)?, call.operand(1)?);
    let len = layer.workspace_len();
    call.workspace.grow(len);
    let workspace = &mut call.workspace[..len];
    let result = &mut *call.results[0];
    match (op.transpose_a, op.transpose_b) {
        (false, true) => linear::forward(isa, layer, a, b, bias, workspace, result),
        (false, false) => linear::input_gradient(isa, layer, a, b, workspace, result),
        (true, _) => linear::weight_gradient(isa, layer, a, b, workspace, result),
    }
    Ok(())
}

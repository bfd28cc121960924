//! Matrix products: the three of a dense layer.

use super::call::Call;
use crate::KernelError;
use zoo_graph::{TensorType, ops::MatMul};
use zoo_kernels::linear::{self, Linear};

/// The dense layer that a product belongs to, if it has a kernel.
pub(super) fn layer(op: &MatMul, operands: &[&TensorType]) -> Option<Linear> {
    let (&[a0, a1], &[b0, b1]) = (&operands.first()?.shape[..], &operands.get(1)?.shape[..]) else { return None };
    match (op.transpose_a, op.transpose_b) {
        (false, true) => Some(Linear { batch: a0, inputs: a1, outputs: b0 }),
        (false | true, false) if operands.len() == 2 => Some(Linear { batch: a0, inputs: b1, outputs: a1 }),
        (false | true, false) | (true, true) => None,
    }
}

/// A product of [`layer`].
pub(super) fn product(op: &MatMul, layer: Linear, mut call: Call<'_>) -> Result<(), KernelError> {
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

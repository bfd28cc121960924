//! Matrix products: the three of a dense layer have kernels, the rest falls back.

use super::{call::Call, fallback};
use crate::KernelError;
use zoo_graph::ops::MatMul;
use zoo_kernels::linear::{self, Linear};

pub(super) fn product(op: &MatMul, mut call: Call<'_>) -> Result<(), KernelError> {
    let (&[a0, a1], &[b0, b1]) = (&call.operand_types[0].shape[..], &call.operand_types[1].shape[..]) else {
        return Err(call.arity());
    };
    let bias = call.apart(2);
    let layer = match (op.transpose_a, op.transpose_b) {
        (false, true) => Linear { batch: a0, inputs: a1, outputs: b0 },
        (false, false) if bias.is_none() => Linear { batch: a0, inputs: b1, outputs: a1 },
        (true, false) if bias.is_none() => Linear { batch: a0, inputs: b1, outputs: a1 },
        _ => return fallback::run(&op.clone().into(), call),
    };
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

//! Products of groups of rows, each with a matrix of its own.

use super::call::Call;
use super::routing::{rows, width};
use crate::KernelError;
use zoo_graph::TensorType;
use zoo_graph::ops::{GroupedMatMul, GroupedMatMulWeights};
use zoo_kernels::Isa;
use zoo_kernels::half::HalfType;
use zoo_kernels::matmul::{Extents, Places, products};

/// One product.
const ONE: Places<'_> = Places(&[[0, 0]]);

/// Instructions, and the format of the operands if it is not f32.
type Factors = (Isa, Option<HalfType>);

/// The product of a group of so many rows of `k` elements.
fn of_group(op: &GroupedMatMul, rows: usize, [k, n]: [usize; 2]) -> Extents {
    Extents { m: rows, n, k, transpose_a: false, transpose_b: op.transpose }
}

/// The product of both operands of a group of so many rows; the matrix of an expert is `height x width`.
fn of_weights(rows: usize, [height, width]: [usize; 2]) -> Extents {
    Extents { m: height, n: width, k: rows, transpose_a: true, transpose_b: false }
}

/// The largest workspace of a group of any size.
fn largest(tokens: usize, (isa, operands): Factors, extents: impl Fn(usize) -> Extents) -> usize {
    (1..=tokens).map(|rows| extents(rows).workspace_len(isa, operands, ONE)).max().unwrap_or(0)
}

fn columns(ty: &TensorType) -> usize {
    ty.shape.last().copied().unwrap_or(0)
}

/// Columns of the result of a product.
fn outputs(op: &GroupedMatMul, matrices: &TensorType) -> usize {
    matrices.shape[if op.transpose { 1 } else { 2 }]
}

/// Rows and columns of the gradient of a matrix.
fn sides(op: &GroupedMatMulWeights, [k, n]: [usize; 2]) -> [usize; 2] {
    if op.transpose { [n, k] } else { [k, n] }
}

pub(super) fn workspace(op: &GroupedMatMul, operands: &[&TensorType], factors: Factors) -> usize {
    let &[x, matrices, routing] = operands else { return 0 };
    let sides = [columns(x), outputs(op, matrices)];
    largest(routing.shape[0], factors, |rows| of_group(op, rows, sides))
}

pub(super) fn weights_workspace(op: &GroupedMatMulWeights, operands: &[&TensorType], factors: Factors) -> usize {
    let &[x, dy, routing] = operands else { return 0 };
    let sides = sides(op, [columns(x), columns(dy)]);
    largest(routing.shape[0], factors, |rows| of_weights(rows, sides))
}

/// Each row times the matrix of its expert.
pub(super) fn product(op: &GroupedMatMul, call: Call<'_>) -> Result<(), KernelError> {
    let (x, matrices, (rows, _)) = (call.operand(0)?, call.operand(1)?, rows(&call, 2, op.top)?);
    let [k, n] = [width(&call, 0), outputs(op, call.operand_types[1])];
    let (isa, operands) = call.factors();
    let Call { workspace, mut results, .. } = call;
    let y = &mut *results[0];
    for (expert, group) in rows.groups().iter().enumerate().filter(|(_, group)| !group.is_empty()) {
        let extents = of_group(op, group.len(), [k, n]);
        let workspace = &mut workspace[..extents.workspace_len(isa, operands, ONE)];
        let (x, matrix) = (&x[group.start * k..group.end * k], &matrices[expert * k * n..][..k * n]);
        products(isa, extents, operands, ONE, x, matrix, None, workspace, &mut y[group.start * n..group.end * n]);
    }
    y[rows.tokens().len() * n..].fill(0.0);
    Ok(())
}

/// For each expert, the sum of the outer products of its rows.
pub(super) fn weights(op: &GroupedMatMulWeights, call: Call<'_>) -> Result<(), KernelError> {
    let (x, dy, (rows, _)) = (call.operand(0)?, call.operand(1)?, rows(&call, 2, op.top)?);
    let [height, width] = sides(op, [width(&call, 0), width(&call, 1)]);
    let (left, right) = if op.transpose { (dy, x) } else { (x, dy) };
    let (isa, operands) = call.factors();
    let Call { workspace, mut results, .. } = call;
    for (group, dw) in rows.groups().iter().zip(results[0].chunks_exact_mut((height * width).max(1))) {
        if group.is_empty() {
            dw.fill(0.0);
            continue;
        }
        let extents = of_weights(group.len(), [height, width]);
        let workspace = &mut workspace[..extents.workspace_len(isa, operands, ONE)];
        let left = &left[group.start * height..group.end * height];
        let right = &right[group.start * width..group.end * width];
        products(isa, extents, operands, ONE, left, right, None, workspace, dw);
    }
    Ok(())
}

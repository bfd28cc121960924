//! Rows of tables by index.

use super::call::Call;
use crate::KernelError;
use std::borrow::Cow;
use zoo_graph::ops::{Gather, Indices, ScatterAdd};
use zoo_kernels::rows;

fn numbers<'a>(indices: &'a Indices, call: &Call<'a>) -> Result<Cow<'a, [u32]>, KernelError> {
    match indices {
        Indices::Operand => call.indices(1).map(Cow::Borrowed),
        Indices::Column(place) => {
            let columns = call.operand_types[1].shape.last().copied().unwrap_or(1).max(1);
            Ok(Cow::Owned(call.indices(1)?.iter().skip(*place).step_by(columns).copied().collect()))
        }
        Indices::Fixed(numbers) => Ok(Cow::Borrowed(numbers)),
    }
}

pub(super) fn gather<'a>(op: &'a Gather, mut call: Call<'a>) -> Result<(), KernelError> {
    let (table, indices) = (call.operand(0)?, numbers(&op.indices, &call)?);
    let width = call.operand_types[0].shape.iter().skip(1).product();
    let [y] = call.results()?;
    Ok(rows::gather(width, table, &indices, y)?)
}

pub(super) fn scatter_add<'a>(op: &'a ScatterAdd, mut call: Call<'a>) -> Result<(), KernelError> {
    let (dy, indices) = (call.operand(0)?, numbers(&op.indices, &call)?);
    let width = call.result_types[0].shape.iter().skip(1).product();
    let [table] = call.results()?;
    rows::scatter_add(width, dy, &indices, table)?;
    if let Some(row) = op.padding.and_then(|row| table.chunks_exact_mut(width.max(1)).nth(row as usize)) {
        row.fill(0.0);
    }
    Ok(())
}

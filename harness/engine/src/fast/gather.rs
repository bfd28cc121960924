//! Rows of tables by their numbers.

use super::call::Call;
use crate::KernelError;
use zoo_kernels::rows;

pub(super) fn gather(mut call: Call<'_>) -> Result<(), KernelError> {
    let (table, indices) = (call.operand(0)?, call.indices(1)?);
    let width = call.operand_types[0].shape.iter().skip(1).product();
    let [y] = call.results()?;
    Ok(rows::gather(width, table, indices, y)?)
}

pub(super) fn scatter_add(mut call: Call<'_>) -> Result<(), KernelError> {
    let (dy, indices) = (call.operand(0)?, call.indices(1)?);
    let width = call.result_types[0].shape.iter().skip(1).product();
    let [table] = call.results()?;
    Ok(rows::scatter_add(width, dy, indices, table)?)
}

//! Rows of tables by index.

use crate::KernelError;
use crate::elements::{Elements, by_chunks};
use candle_core::{D, Device, FloatDType, Tensor};
use zoo_graph::ops::{Gather, Indices, ScatterAdd};
use zoo_kernels::rows::expect_rows;

/// The first operand, and the indices as a tensor.
fn with_indices(indices: &Indices, operands: &[Tensor]) -> Result<[Tensor; 2], KernelError> {
    match (indices, operands) {
        (Indices::Operand, [first, indices]) => Ok([first.clone(), indices.clone()]),
        (Indices::Column(place), [first, indices]) => {
            Ok([first.clone(), indices.narrow(D::Minus1, *place, 1)?.squeeze(D::Minus1)?.contiguous()?])
        }
        (Indices::Fixed(numbers), [first]) => Ok([first.clone(), Tensor::new(&numbers[..], &Device::Cpu)?]),
        _ => Err(KernelError::Arity { found: operands.len() }),
    }
}

/// The row of the table for each index.
pub(super) fn gather<T: FloatDType>(op: &Gather, operands: &[Tensor]) -> Result<Tensor, KernelError> {
    let [table, indices] = with_indices(&op.indices, operands)?;
    let [rows, row @ ..] = table.dims() else { return Err(KernelError::Operand { place: 0, expected: "a table" }) };
    let width = row.iter().product::<usize>();
    let (opened, numbers) = (Elements::of(&table)?, Elements::of(&indices)?);
    let (values, numbers) = (opened.slice::<T>()?, numbers.slice::<u32>()?);
    expect_rows(numbers, *rows)?;
    let y = by_chunks::<T>(&[indices.dims(), row].concat(), width, |i, y| {
        y.copy_from_slice(&values[numbers[i] as usize * width..][..width]);
    });
    Ok(y?)
}

/// For each row of the table, the sum of the values with its index.
pub(super) fn scatter_add<T: FloatDType>(op: &ScatterAdd, operands: &[Tensor]) -> Result<Tensor, KernelError> {
    let [values, indices] = with_indices(&op.indices, operands)?;
    let row = &values.dims()[indices.rank()..];
    let width = row.iter().product::<usize>();
    let (opened, numbers) = (Elements::of(&values)?, Elements::of(&indices)?);
    let (values, numbers) = (opened.slice::<T>()?, numbers.slice::<u32>()?);
    expect_rows(numbers, op.rows)?;
    let mut places = vec![Vec::new(); op.rows];
    numbers
        .iter()
        .enumerate()
        .filter(|(_, number)| Some(**number) != op.padding)
        .for_each(|(place, number)| places[*number as usize].push(place));
    let table = by_chunks::<T>(&[&[op.rows], row].concat(), width, |i, y| {
        for (n, y) in y.iter_mut().enumerate() {
            *y = T::from_f64(places[i].iter().map(|place| values[place * width + n].to_f64()).sum());
        }
    });
    Ok(table?)
}

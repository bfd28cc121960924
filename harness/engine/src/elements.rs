//! Access to the elements of tensors, and loops over them in parallel.

use candle_core::{Device, Error, FloatDType, Result, Storage, StorageRef, Tensor, WithDType};
use rayon::prelude::*;
use std::ops::Range;

/// Smallest number of elements per task.
const GRAIN: usize = 1 << 14;

/// A tensor opened for reading.
pub struct Elements<'t> {
    storage: StorageRef<'t>,
    range: Range<usize>,
}

impl<'t> Elements<'t> {
    /// Opens a row-major tensor on the host.
    ///
    /// # Errors
    /// The elements are in another order.
    pub fn of(tensor: &'t Tensor) -> Result<Self> {
        let (storage, layout) = tensor.storage_and_layout();
        let Some((start, end)) = layout.contiguous_offsets() else {
            return Err(Error::Msg(format!("a tensor {:?} that is not row-major", tensor.shape())));
        };
        Ok(Self { storage, range: start..end })
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// The element type differs, or the tensor is not on the host.
    pub fn slice<T: WithDType>(&self) -> Result<&[T]> {
        match &*self.storage {
            Storage::Cpu(storage) => Ok(&T::cpu_storage_as_slice(storage)?[self.range.clone()]),
            Storage::Cuda(_) | Storage::Metal(_) => Err(Error::Msg("a tensor that is not on the host".into())),
        }
    }
}

/// A new tensor that is written in chunks: `write(index of the chunk, zeros to write to)`.
pub(crate) fn by_chunks<T: FloatDType>(
    dims: &[usize],
    chunk: usize,
    write: impl Fn(usize, &mut [T]) + Sync,
) -> Result<Tensor> {
    let mut elements = vec![T::from_f64(0.0); dims.iter().product()];
    let chunk = chunk.max(1);
    let chunks = elements.par_chunks_mut(chunk).with_min_len(GRAIN.div_ceil(chunk)).enumerate();
    chunks.for_each(|(index, elements)| write(index, elements));
    Tensor::from_vec(elements, dims, &Device::Cpu)
}

/// `M` new tensors of the operands' shape, each element a function of the operands' elements at the same place.
pub(crate) fn map<T: FloatDType, const N: usize, const M: usize>(
    operands: [&Tensor; N],
    f: impl Fn([f64; N]) -> [f64; M] + Sync,
) -> Result<[Tensor; M]> {
    map_with_index::<T, N, M>(operands, |_, x| f(x))
}

/// As [`map`], with the row-major index of the element as an additional argument.
pub(crate) fn map_with_index<T: FloatDType, const N: usize, const M: usize>(
    operands: [&Tensor; N],
    f: impl Fn(usize, [f64; N]) -> [f64; M] + Sync,
) -> Result<[Tensor; M]> {
    let opened = operands.iter().map(|x| Elements::of(x)).collect::<Result<Vec<_>>>()?;
    let slices = opened.iter().map(Elements::slice::<T>).collect::<Result<Vec<_>>>()?;
    let (Some(first), Ok(slices)) = (operands.first(), <[&[T]; N]>::try_from(slices)) else {
        return Err(Error::Msg("an element-wise operator without operands".into()));
    };
    let dims = first.dims();
    if let Some(other) = operands.iter().find(|x| x.dims() != dims) {
        return Err(Error::Msg(format!("operands of shapes {dims:?} and {:?}", other.dims())));
    }
    let len = first.elem_count();
    let mut results: [Vec<T>; M] = std::array::from_fn(|_| vec![T::from_f64(0.0); len]);
    let mut chunks = results.each_mut().map(|r| r.chunks_mut(GRAIN));
    let tasks: Vec<[&mut [T]; M]> =
        (0..len.div_ceil(GRAIN)).map(|_| chunks.each_mut().map(|c| c.next().unwrap_or_default())).collect();
    tasks.into_par_iter().enumerate().for_each(|(task, mut results)| {
        let start = task * GRAIN;
        let end = len.min(start + GRAIN);
        let operands = slices.map(|s| &s[start..end]);
        for i in 0..end - start {
            let y = f(start + i, operands.map(|x| x[i].to_f64()));
            for (result, y) in results.iter_mut().zip(y) {
                result[i] = T::from_f64(y);
            }
        }
    });
    let tensors = results.into_iter().map(|r| Tensor::from_vec(r, dims, &Device::Cpu));
    let tensors = tensors.collect::<Result<Vec<_>>>()?;
    <[Tensor; M]>::try_from(tensors).map_err(|_| Error::Msg("a result is missing".into()))
}

/// Sum over `0..len` of `f(index)`, in an order that only depends on `len`.
pub(crate) fn sum(len: usize, f: impl Fn(usize) -> f64 + Sync) -> f64 {
    zoo_kernels::parallel::sum(len, GRAIN, |range| range.map(&f).sum())
}

/// A scalar tensor of type `T`.
pub(crate) fn scalar<T: FloatDType>(value: f64) -> Result<Tensor> {
    Tensor::new(T::from_f64(value), &Device::Cpu)
}

/// The value of a scalar tensor.
pub(crate) fn scalar_value<T: FloatDType>(tensor: &Tensor) -> Result<f64> {
    Ok(tensor.to_scalar::<T>()?.to_f64())
}

/// A tensor of type `T` with one axis.
pub(crate) fn vector<T: FloatDType>(values: impl IntoIterator<Item = f64>) -> Result<Tensor> {
    let values: Vec<T> = values.into_iter().map(T::from_f64).collect();
    let len = values.len();
    Tensor::from_vec(values, len, &Device::Cpu)
}

/// The elements of a small tensor, widened.
pub(crate) fn widened<T: FloatDType>(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(Elements::of(tensor)?.slice::<T>()?.iter().map(|x| x.to_f64()).collect())
}

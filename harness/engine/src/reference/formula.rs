//! Formulas, computed element by element in f64 and rounded once.

use super::{Call, Results};
use crate::{
    elements::Elements,
    formula::{Evaluation, Prepared, Values},
};
use candle_core::{Device, FloatDType, Tensor};
use zoo_graph::{
    TensorType,
    ops::{Assign, Map},
};

/// The results of a formula over broadcast tensors.
pub(super) fn map<T: FloatDType>(op: &Map, call: &Call<'_>) -> Results {
    let prepared = Prepared::map(op);
    let strides = |types: &[&TensorType]| types.iter().map(|ty| prepared.strides(&ty.shape)).collect();
    run::<T>(&prepared, [strides(call.operand_types), strides(call.result_types)], call)
}

/// The results of an update.
pub(super) fn assign<T: FloatDType>(op: &Assign, call: &Call<'_>) -> Results {
    let elements = call.result_types.first().map_or(0, |ty| ty.shape.numel());
    let prepared = Prepared::assign(op, elements, call.scalars);
    run::<T>(&prepared, [vec![vec![1]; call.operands.len()], vec![vec![1]; call.result_types.len()]], call)
}

fn run<T: FloatDType>(
    prepared: &Prepared,
    [strides, result_strides]: [Vec<Vec<usize>>; 2],
    call: &Call<'_>,
) -> Results {
    let opened = call.operands.iter().map(Elements::of).collect::<candle_core::Result<Vec<_>>>()?;
    let operands = call.operands.iter().zip(&opened).map(|(tensor, opened)| Values::<T>::of(tensor, opened));
    let operands = operands.collect::<candle_core::Result<Vec<_>>>()?;
    let sizes: Vec<usize> = call.result_types.iter().map(|ty| ty.shape.numel()).collect();
    let evaluation = Evaluation {
        prepared,
        operands: &operands,
        strides: &strides,
        result_strides: &result_strides,
        result_sizes: &sizes,
    };
    let rounded = |part: &mut Vec<Vec<T>>, result: usize, _, values: &[f64]| {
        part[result].extend(values.iter().map(|value| T::from_f64(*value)));
    };
    let parts = evaluation.run(|| vec![Vec::new(); sizes.len()], rounded)?;
    let tensor = |(n, ty): (usize, &&TensorType)| {
        let mut all = Vec::with_capacity(sizes[n]);
        parts.iter().for_each(|part| all.extend_from_slice(&part[n]));
        Ok(Tensor::from_vec(all, ty.shape.to_vec(), &Device::Cpu)?)
    };
    call.result_types.iter().enumerate().map(tensor).collect()
}

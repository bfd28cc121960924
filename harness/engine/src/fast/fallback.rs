//! Operators without a fast kernel for their layout: converts to row-major, runs the reference kernel, and converts
//! back.

use super::{
    call::{Call, Operand},
    from_plain, to_plain,
};
use crate::{KernelError, reference};
use candle_core::{Device, Tensor};
use zoo_graph::{Op, TensorType};

/// Elements of the row-major copies.
pub(super) fn copies(operands: &[&TensorType], results: &[&TensorType]) -> usize {
    operands.iter().chain(results).map(|ty| ty.shape.numel()).sum()
}

/// Computes `op` with its reference kernel.
pub(super) fn run(op: &Op, mut call: Call<'_>) -> Result<(), KernelError> {
    let plain = |ty: &TensorType| TensorType::plain(ty.shape.clone(), ty.dtype);
    let operand_types: Vec<TensorType> = call.operand_types.iter().map(|ty| plain(ty)).collect();
    let result_types: Vec<TensorType> = call.result_types.iter().map(|ty| plain(ty)).collect();
    let tensor = |(operand, ty): (&Operand<'_>, &&TensorType)| {
        let stored = match operand {
            Operand::Index(values) => return Tensor::from_slice(values, ty.shape.to_vec(), &Device::Cpu),
            Operand::Float(values) => values,
            Operand::Overwritten { result } => &*call.results[*result],
        };
        let mut values = vec![0.0; ty.shape.numel()];
        to_plain(call.isa, ty, &stored[..ty.stored_numel()], &mut values);
        Tensor::from_vec(values, ty.shape.to_vec(), &Device::Cpu)
    };
    let operands = call.operands.iter().zip(&call.operand_types).map(tensor).collect::<Result<Vec<_>, _>>()?;
    let results = reference::compute(
        op,
        &reference::Call {
            operands: &operands,
            operand_types: &operand_types.iter().collect::<Vec<_>>(),
            result_types: &result_types.iter().collect::<Vec<_>>(),
            scalars: call.scalars,
            ranks: call.ranks,
        },
    )?;
    let isa = call.isa;
    for ((tensor, ty), stored) in results.iter().zip(&call.result_types).zip(&mut call.results) {
        let values: Vec<f32> = tensor.flatten_all()?.to_vec1()?;
        from_plain(isa, ty, &values, stored);
    }
    Ok(())
}

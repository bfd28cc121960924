//! Communication between ranks. Only in f32, the type of trainings.

use super::{Call, Results};
use crate::KernelError;
use candle_core::{Device, Tensor};
use zoo_graph::{DType, ops::GatherStatistics};

/// Means over the ranks.
pub(super) fn all_reduce(call: &Call<'_>) -> Results {
    let means = call.ranks.mean(values(call)?).wait()?;
    let tensors = call
        .operands
        .iter()
        .zip(means)
        .map(|(operand, mean)| Ok(Tensor::from_vec(mean, operand.dims(), &Device::Cpu)?));
    tensors.collect()
}

/// Statistics over all ranks, from those of each rank.
pub(super) fn gather_statistics(call: &Call<'_>) -> Results {
    let own = values(call)?.concat();
    let channels = own.len() / 2;
    let all = call.ranks.gather(own)?;
    let pooled = |c: usize| {
        let part = |rank: &[f32]| (f64::from(rank[c]), f64::from(rank[channels + c]));
        GatherStatistics::pooled(all.chunks_exact(2 * channels).map(part))
    };
    let (mean, var): (Vec<f32>, Vec<f32>) = (0..channels).map(pooled).map(|(m, v)| (m as f32, v as f32)).unzip();
    [mean, var].into_iter().map(|values| Ok(Tensor::from_vec(values, channels, &Device::Cpu)?)).collect()
}

/// The elements of each operand.
fn values(call: &Call<'_>) -> Result<Vec<Vec<f32>>, KernelError> {
    if let Some(ty) = call.operand_types.iter().find(|ty| ty.dtype == DType::F64) {
        return Err(KernelError::DType(ty.dtype));
    }
    call.operands.iter().map(|operand| Ok(operand.flatten_all()?.to_vec1::<f32>()?)).collect()
}

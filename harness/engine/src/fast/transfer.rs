//! What ranks exchange. Means of gradients are only begun by their node: they come while other nodes compute, and whoever
//! reads them first waits for them.

use super::call::{Call, Operand};
use crate::KernelError;
use zoo_graph::{ValueId, ops::GatherStatistics};
use zoo_ranks::Pending;

/// Results of a node that are on their way.
pub(super) struct UnderWay {
    /// The results, in the order in which they lie in what comes.
    pub outputs: Vec<ValueId>,
    /// Sums over the ranks.
    pub sums: Pending,
}

/// Begins to sum the operands over the ranks. The results are to be filled with the means when they have come.
pub(super) fn begin(call: Call<'_>) -> Result<(), KernelError> {
    let mut values = call.ranks.room(call.result_types.iter().map(|ty| ty.stored_numel()).sum());
    for operand in &call.operands {
        match operand {
            Operand::Float(operand) => values.extend_from_slice(operand),
            Operand::Overwritten { result } => values.extend_from_slice(&*call.results[*result]),
            Operand::Index(_) => return Err(call.arity()),
        }
    }
    *call.begun = Some(call.ranks.sum(values));
    Ok(())
}

/// Statistics over all ranks from those of each.
pub(super) fn gather_statistics(mut call: Call<'_>) -> Result<(), KernelError> {
    let own = [call.operand(0)?, call.operand(1)?].concat();
    let (all, channels) = (call.ranks.gather(own)?, call.operand(0)?.len());
    let [mean, var] = call.results()?;
    for c in 0..channels {
        let part = |rank: &[f32]| (f64::from(rank[c]), f64::from(rank[channels + c]));
        let (m, v) = GatherStatistics::pooled(all.chunks_exact(2 * channels).map(part));
        (mean[c], var[c]) = (m as f32, v as f32);
    }
    Ok(())
}

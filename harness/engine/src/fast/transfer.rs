//! Communication between ranks. The node of an averaged gradient only starts the transfer; it runs while other nodes
//! compute, and the first reader waits for it.

use super::call::{Call, Operand};
use crate::KernelError;
use std::ops::{Deref, Range};
use zoo_graph::{ValueId, ops::GatherStatistics};
use zoo_kernels::AlignedBuf;
use zoo_ranks::Pending;

/// Pending results of a node.
pub(super) struct UnderWay {
    /// For each result, the value and its place in the arena; `None` for an unread result.
    pub places: Vec<(ValueId, Option<Range<usize>>)>,
    /// Means over the ranks.
    pub means: Pending<Travelling>,
}

/// A copy of a value.
#[derive(Debug)]
pub(super) struct Travelling(pub AlignedBuf);

impl AsMut<[f32]> for Travelling {
    fn as_mut(&mut self) -> &mut [f32] {
        &mut self.0
    }
}

impl Deref for Travelling {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.0
    }
}

/// Copies operands to the results unless they already are there. The executor sends the results.
pub(super) fn all_reduce(mut call: Call<'_>) -> Result<(), KernelError> {
    for (i, operand) in call.operands.iter().enumerate() {
        match operand {
            Operand::Float(operand) => call.results[i].copy_from_slice(operand),
            Operand::Overwritten { result } if *result == i => {}
            Operand::Overwritten { .. } | Operand::Index(_) => {
                return Err(KernelError::Operand { place: i, expected: "a tensor that its own result overwrites" });
            }
        }
    }
    Ok(())
}

/// Statistics over all ranks, from those of each rank.
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

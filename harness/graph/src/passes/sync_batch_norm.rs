//! Normalises with the statistics of the whole batch over all ranks.
//!
//! What: inserts a `BNGatherStatistics` after each `BNTrainingReduce`, which provides the statistics of the whole
//! batch to the readers, and an `HcomAllReduce` of the two sums between `BNTrainingUpdateGrad` and
//! `BNTrainingReduceGrad`; running variances are unbiased with the number of values of all ranks. Why: each rank then
//! computes the same as one machine with the whole batch. Sums of gradients are averaged and not added: the loss of a
//! rank is a mean over its own part, so its gradients are larger by a factor of the number of ranks. When not:
//! without `train.sync_bn`, as in the reference's `DistributedDataParallel`.

use super::{NewNode, Pass, Patch, patch::Draft};
use crate::{
    error::GraphError,
    graph::{Graph, Node, ValueId},
    ops::{AllReduce, BnRunningUpdate, GatherStatistics, Op},
};
use std::collections::HashMap;

/// See the module's documentation. Runs before all fusions, which then do not fuse the two parts of the gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncBatchNorm {
    /// Number of ranks.
    pub ranks: usize,
}

impl Pass for SyncBatchNorm {
    fn name(&self) -> &'static str {
        "sync_batch_norm"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let ranks = self.ranks;
        let mut draft = Draft::new(graph);
        let mut statistics: HashMap<ValueId, ValueId> = HashMap::new();
        let mut sums: HashMap<ValueId, ValueId> = HashMap::new();
        for (n, node) in graph.nodes.iter().enumerate() {
            let (op, moved): (Op, _) = if matches!(node.op, Op::BnTrainingReduce(_)) {
                (GatherStatistics { ranks }.into(), &mut statistics)
            } else if matches!(node.op, Op::BnTrainingUpdateGrad(_)) {
                (AllReduce { ranks }.into(), &mut sums)
            } else {
                continue;
            };
            let types: Vec<_> = node.outputs.iter().map(|v| draft.ty(*v).clone()).collect();
            let outputs: Vec<ValueId> = types.into_iter().map(|ty| draft.value(ty)).collect();
            moved.extend(node.outputs.iter().copied().zip(outputs.iter().copied()));
            let name = format!("{}/ranks", node.name);
            let node = Node { name, op, inputs: node.outputs.clone(), outputs, ..node.clone() };
            draft.patch.insert.push(NewNode { node, near: n });
        }
        for (n, node) in graph.nodes.iter().enumerate() {
            // The gradients of scale and shift stay local to this rank: they are averaged with all others.
            let sums = Some(&sums).filter(|_| matches!(node.op, Op::BnTrainingReduceGrad(_)));
            let moved = |v: &ValueId| *statistics.get(v).or_else(|| sums?.get(v)).unwrap_or(v);
            let inputs: Vec<ValueId> = node.inputs.iter().map(moved).collect();
            if inputs != node.inputs {
                let mut op = node.op.clone();
                if let Op::BnRunningUpdate(BnRunningUpdate { count, .. }) = &mut op {
                    *count *= ranks;
                }
                draft.replace(n, Node { op, inputs, ..node.clone() });
            }
        }
        Ok(draft.finish(format!("{} normalisations over {ranks} ranks", statistics.len() / 2)))
    }
}

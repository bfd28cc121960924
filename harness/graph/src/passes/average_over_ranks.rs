//! Averages gradients and losses over the ranks.
//!
//! What: inserts an `HcomAllReduce` per bucket of gradients after the last gradient of the bucket, and one for the
//! losses; the update reads the means. Why: each rank has the gradients of its part of the batch. The transfer starts
//! at the node and need not finish before the update, so it overlaps with the rest of the backward pass. When not:
//! statistics of normalisations are separate on each rank, unless [`super::SyncBatchNorm`] is used.

use super::{NewNode, Pass, Patch, patch::Draft};
use crate::{
    error::GraphError,
    graph::{Graph, Node, NodeId, Phase, Place, Source, ValueId, VariableId},
    ops::AllReduce,
};
use std::collections::HashMap;

/// See the module's documentation. Runs before the layouts are chosen.
#[derive(Clone, Debug)]
pub struct AverageOverRanks {
    /// Number of ranks.
    pub ranks: usize,
    /// The gradients that are sent together.
    pub buckets: Buckets,
    /// Whether a bucket is sent as soon as it is complete, during the rest of the backward pass.
    pub overlap: bool,
}

/// The gradients that are sent together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Buckets {
    /// All of them.
    One,
    /// As many as fill a bucket, in the order in which they are computed.
    Filled,
    /// Those of adjacent parameters: a bucket starts at each of these indices, in the order of declaration.
    At(Vec<u32>),
}

/// Size at which a bucket is closed, and that of the first bucket, which is sent early. Source:
/// `torch.nn.parallel.DistributedDataParallel` (`bucket_cap_mb=25`, `_DEFAULT_FIRST_BUCKET_BYTES`).
const BUCKET: u64 = 25 << 20;
const FIRST_BUCKET: u64 = 1 << 20;

impl Pass for AverageOverRanks {
    fn name(&self) -> &'static str {
        "average_over_ranks"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let mut draft = Draft::new(graph);
        let mut means = HashMap::new();
        let buckets = self.buckets(graph);
        let last = buckets.iter().flatten().map(|gradient| place(graph, *gradient)).max().unwrap_or(0);
        for (n, bucket) in buckets.iter().enumerate() {
            let ready = bucket.iter().map(|gradient| place(graph, *gradient)).max().unwrap_or(0);
            let near = if self.overlap { ready } else { last };
            let results = self.mean(&mut draft, near, Phase::Backward, format!("gradients/mean{n}"), bucket);
            means.extend(bucket.iter().copied().zip(results));
        }
        let scalars = graph.losses.iter().chain(&graph.metrics).map(|(_, value)| *value);
        let mut scalars: Vec<ValueId> =
            scalars.filter(|v| graph.producer(*v).is_some_and(|node| node.phase < Phase::Update)).collect();
        scalars.sort_unstable();
        scalars.dedup();
        if !scalars.is_empty() {
            let near = scalars.iter().map(|v| place(graph, *v)).max().unwrap_or(0);
            let results = self.mean(&mut draft, near, Phase::Loss, "loss/mean".into(), &scalars);
            means.extend(scalars.into_iter().zip(results));
        }
        draft.patch.redirect.extend(means.iter().map(|(from, to)| (*from, *to)));
        draft.reread(|node, v| means.get(&v).copied().filter(|_| node.phase == Phase::Update).unwrap_or(v));
        Ok(draft.finish(format!("{} buckets over {} ranks", buckets.len(), self.ranks)))
    }
}

impl AverageOverRanks {
    fn mean(&self, draft: &mut Draft<'_>, near: usize, phase: Phase, name: String, inputs: &[ValueId]) -> Vec<ValueId> {
        let types: Vec<_> = inputs.iter().map(|v| draft.ty(*v).clone()).collect();
        let outputs: Vec<ValueId> = types.into_iter().map(|ty| draft.value(ty)).collect();
        let op = AllReduce { ranks: self.ranks }.into();
        let (inputs, place) = (inputs.to_vec(), Place::Device);
        let node = Node { name, op, inputs, outputs: outputs.clone(), phase, origin: None, place };
        draft.patch.insert.push(NewNode { node, near });
        outputs
    }

    /// Buckets of gradients, in the order in which they are computed.
    fn buckets(&self, graph: &Graph) -> Vec<Vec<ValueId>> {
        let mut sorted: Vec<(VariableId, ValueId)> = graph.gradients.clone();
        sorted.sort_by_key(|(id, value)| (place(graph, *value), std::cmp::Reverse(*id)));
        let mut seen = std::collections::HashSet::new();
        sorted.retain(|(_, value)| seen.insert(*value));
        let mut buckets: Vec<Vec<ValueId>> = match &self.buckets {
            Buckets::One => vec![sorted.iter().map(|(_, value)| *value).collect()],
            Buckets::Filled => filled(graph, &sorted),
            Buckets::At(begins) => {
                let index: HashMap<VariableId, usize> =
                    graph.parameters().enumerate().map(|(index, (id, _))| (id, index)).collect();
                let mut buckets = vec![Vec::new(); begins.len() + 1];
                for (id, value) in sorted {
                    let index = index.get(&id).copied().unwrap_or(0);
                    buckets[begins.iter().filter(|begin| index >= **begin as usize).count()].push(value);
                }
                buckets
            }
        };
        buckets.retain(|bucket| !bucket.is_empty());
        buckets.sort_by_key(|bucket| bucket.iter().map(|value| place(graph, *value)).max());
        buckets
    }
}

/// Divides gradients into buckets that are closed when they are full.
fn filled(graph: &Graph, sorted: &[(VariableId, ValueId)]) -> Vec<Vec<ValueId>> {
    let mut buckets: Vec<Vec<ValueId>> = vec![Vec::new()];
    let mut bytes = 0;
    for (_, value) in sorted {
        let full = if buckets.len() == 1 { FIRST_BUCKET } else { BUCKET };
        if bytes >= full {
            buckets.push(Vec::new());
            bytes = 0;
        }
        bytes += graph.ty(*value).bytes().0;
        if let Some(bucket) = buckets.last_mut() {
            bucket.push(*value);
        }
    }
    buckets
}

/// The index of the node that computes a value.
fn place(graph: &Graph, value: ValueId) -> usize {
    match graph.value(value).source {
        Source::Node(NodeId(n), _) => n,
        Source::Input(_) | Source::Variable(_) => 0,
    }
}

//! Computes parts of the forward pass again in the backward pass, instead of keeping them in memory.
//!
//! What: [`Recompute`] divides the forward pass into segments of about equal output sizes. For every segment except the
//! last, only the values read by later segments are kept; the rest is recomputed before the backward pass first needs
//! it (arXiv 1604.06174; `torch.utils.checkpoint.checkpoint_sequential`). [`RecomputeScores`] does the same with the
//! scores of attentions alone, as a fused attention does in its gradient (arXiv 2205.14135, algorithm 4). Why: memory
//! for a larger batch, at the cost of a second forward pass at most. When not: where everything fits.

use super::{
    Pass, Patch,
    patch::{Draft, NewNode},
    readers,
};
use crate::{
    attention::attentions,
    error::GraphError,
    graph::{Graph, Node, NodeId, Phase, Source, ValueId},
};
use std::collections::{BTreeSet, HashMap};

/// See the module's documentation.
pub struct Recompute {
    /// Segments of the forward pass; with one, nothing is computed again.
    pub segments: usize,
}

impl Pass for Recompute {
    fn name(&self) -> &'static str {
        "recompute"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let segments = segments(graph, self.segments);
        Ok(again(graph, &segments, "segments"))
    }
}

/// See the module's documentation.
pub struct RecomputeScores;

impl Pass for RecomputeScores {
    fn name(&self) -> &'static str {
        "recompute_scores"
    }

    fn patches(&self, graph: &Graph) -> Result<Vec<Patch>, GraphError> {
        let forward = |nodes: &Vec<usize>| nodes.iter().all(|n| graph.nodes[*n].phase == Phase::Forward);
        let chains: Vec<Vec<usize>> = attentions(graph).into_iter().map(|a| a.scores).filter(forward).collect();
        Ok(again(graph, &chains, "attentions"))
    }
}

/// The nodes that are computed again, segment by segment.
fn segments(graph: &Graph, count: usize) -> Vec<Vec<usize>> {
    // What reads no input, such as a weight in half precision, is no activation.
    let mut follows = vec![false; graph.nodes.len()];
    for (n, node) in graph.nodes.iter().enumerate() {
        follows[n] = node.inputs.iter().any(|v| match graph.value(*v).source {
            Source::Input(_) => true,
            Source::Node(by, _) => follows[by.0],
            Source::Variable(_) => false,
        });
    }
    let forward: Vec<usize> =
        (0..graph.nodes.len()).filter(|n| follows[*n] && graph.nodes[*n].phase == Phase::Forward).collect();
    let place: HashMap<usize, usize> = forward.iter().enumerate().map(|(p, n)| (*n, p)).collect();
    // Where each node's results are last read in the forward pass; what the loss or a result reads lives to its end.
    let readers = readers(graph);
    let last: Vec<usize> = forward
        .iter()
        .enumerate()
        .map(|(p, n)| {
            let read = graph.nodes[*n].outputs.iter().flat_map(|v| &readers[v.0]);
            let at = |reader: &usize| match graph.nodes.get(*reader).map(|node| node.phase) {
                Some(Phase::Forward) => place.get(reader).copied().unwrap_or(p),
                Some(Phase::Backward | Phase::Update) => p,
                Some(Phase::Loss) | None => forward.len(),
            };
            read.map(at).fold(p, usize::max)
        })
        .collect();
    let bytes = |n: usize| graph.nodes[n].outputs.iter().map(|v| graph.ty(*v).bytes().0).sum::<u64>();
    let boundaries = boundaries(&forward.iter().map(|n| bytes(*n)).collect::<Vec<_>>(), &last, count);
    let segment = |p: usize| boundaries.partition_point(|boundary| *boundary <= p);
    let mut found = vec![Vec::new(); boundaries.len()];
    for (p, n) in forward.iter().enumerate() {
        // A node goes with its segment if nothing behind reads it.
        if segment(p) == segment(last[p])
            && let Some(nodes) = found.get_mut(segment(p))
        {
            nodes.push(*n);
        }
    }
    found
}

/// Where segments end: of the places about a segment's bytes from each other, those that the fewest bytes cross.
/// `made` and `last` say of each node of the forward pass what it makes and where that is last read.
fn boundaries(made: &[u64], last: &[usize], count: usize) -> Vec<usize> {
    let mut crossing = vec![0i128; made.len() + 1];
    for (p, bytes) in made.iter().enumerate() {
        if last[p] > p {
            crossing[p + 1] += i128::from(*bytes);
            if let Some(behind) = crossing.get_mut(last[p] + 1) {
                *behind -= i128::from(*bytes);
            }
        }
    }
    let mut before = vec![0u128; made.len() + 1];
    for p in 0..made.len() {
        crossing[p + 1] += crossing[p];
        before[p + 1] = before[p] + u128::from(made[p]);
    }
    let (total, count) = (before[made.len()], count.max(1) as u128);
    let mut found: Vec<usize> = Vec::new();
    for s in 1..count.min(made.len() as u128) {
        // From half a segment before the place of equal bytes to half a segment behind it.
        let at = |halves: u128| before.partition_point(|bytes| *bytes * 2 * count < total * halves);
        let from = at(2 * s - 1).max(found.last().map_or(1, |boundary| boundary + 1));
        let until = at(2 * s + 1).min(made.len());
        found.extend((from..until).min_by_key(|p| crossing[*p]));
    }
    found
}

/// Computes the nodes of each group again before the backward pass first reads one of them, as far as it reads them.
fn again(graph: &Graph, groups: &[Vec<usize>], what: &str) -> Vec<Patch> {
    let readers = readers(graph);
    let mut draft = Draft::new(graph);
    let mut instead: HashMap<ValueId, ValueId> = HashMap::new();
    let mut touched: BTreeSet<usize> = BTreeSet::new();
    let mut count = 0;
    for group in groups {
        let behind = |n: &usize| {
            graph.nodes[*n].outputs.iter().flat_map(|v| &readers[v.0]).copied().filter(|reader| {
                graph.nodes.get(*reader).is_some_and(|node| matches!(node.phase, Phase::Backward | Phase::Update))
            })
        };
        let Some(near) = group.iter().flat_map(behind).min() else { continue };
        touched.extend(group.iter().flat_map(behind));
        // What the backward pass reads, and what that is made of.
        let mut wanted: BTreeSet<usize> = group.iter().copied().filter(|n| behind(n).next().is_some()).collect();
        for n in group.iter().rev() {
            if wanted.contains(n) {
                let makers = graph.nodes[*n].inputs.iter().filter_map(|v| match graph.value(*v).source {
                    Source::Node(by, _) => Some(by.0),
                    Source::Input(_) | Source::Variable(_) => None,
                });
                wanted.extend(makers.filter(|by| group.binary_search(by).is_ok()));
            }
        }
        for n in wanted {
            let node = &graph.nodes[n];
            let outputs: Vec<ValueId> = node.outputs.iter().map(|v| draft.value(graph.ty(*v).clone())).collect();
            let name = format!("{}/again", node.name);
            let fresh = Node { name, phase: Phase::Backward, outputs, ..reading(node, &instead) };
            instead.extend(node.outputs.iter().copied().zip(fresh.outputs.iter().copied()));
            draft.patch.insert.push(NewNode { node: fresh, near });
        }
        count += 1;
    }
    for n in touched {
        let node = reading(&graph.nodes[n], &instead);
        draft.patch.remove.push(NodeId(n));
        draft.patch.insert.push(NewNode { node, near: n });
    }
    draft.finish(format!("{count} {what}"))
}

/// A node that reads other values in the place of some.
fn reading(node: &Node, instead: &HashMap<ValueId, ValueId>) -> Node {
    let inputs = node.inputs.iter().map(|v| instead.get(v).copied().unwrap_or(*v)).collect();
    Node { inputs, ..node.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_end_where_little_crosses() {
        // Six nodes of 10 bytes; the third is read until the end, so that it crosses behind it.
        let made = [10, 10, 10, 10, 10, 10];
        assert!(boundaries(&made, &[1, 2, 3, 4, 5, 5], 1).is_empty());
        // Chains are cut anywhere, the first place of each window.
        assert_eq!(boundaries(&made, &[1, 2, 3, 4, 5, 5], 2), [2]);
        // The second node is read by the last: places behind it are crossed by 20 bytes, that before it by 10.
        assert_eq!(boundaries(&[10, 10, 10, 10], &[1, 3, 3, 3], 2), [1]);
        assert!(boundaries(&[], &[], 3).is_empty());
    }
}

//! Recomputes parts of the forward pass in the backward pass, instead of keeping their values in memory.
//!
//! What: [`Recompute`] divides the forward pass into segments of about equal output sizes. For every segment except
//! the last, only the values read by later segments are kept; the rest is recomputed before the backward pass first
//! needs (arXiv 1604.06174; `torch.utils.checkpoint.checkpoint_sequential`). [`RecomputeScores`] does the same with
//! only the scores of attentions, as a fused attention does in its gradient (arXiv 2205.14135, algorithm 4). Why:
//! memory for a larger batch, at the cost of at most a second forward pass. When not: everything fits.

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
    /// Segments of the forward pass; with one, nothing is recomputed.
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

/// The recomputed nodes, by segment.
fn segments(graph: &Graph, count: usize) -> Vec<Vec<usize>> {
    // Nodes that do not depend on an input, such as a weight in half precision, are not activations.
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
    // The last place in the forward pass where each node's results are read. Results of the graph, and values that
    // the loss reads, live until its end.
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
        // A node is recomputed with its segment if no later segment reads it.
        if segment(p) == segment(last[p])
            && let Some(nodes) = found.get_mut(segment(p))
        {
            nodes.push(*n);
        }
    }
    found
}

/// The ends of segments: of the places around each multiple of a segment's size, the one that the fewest bytes cross.
/// For each node of the forward pass, `made` is the size of its results, and `last` the place where they are last
/// read.
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
        // From half a segment before the place of equal bytes to half a segment after it.
        let at = |halves: u128| before.partition_point(|bytes| *bytes * 2 * count < total * halves);
        let from = at(2 * s - 1).max(found.last().map_or(1, |boundary| boundary + 1));
        let until = at(2 * s + 1).min(made.len());
        found.extend((from..until).min_by_key(|p| crossing[*p]));
    }
    found
}

/// Recomputes the nodes of each group before the backward pass first reads one of them, as far as it needs them.
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
        // The nodes that the backward pass reads, and those on which they depend.
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

/// The node with replaced operands.
fn reading(node: &Node, instead: &HashMap<ValueId, ValueId>) -> Node {
    let inputs = node.inputs.iter().map(|v| instead.get(v).copied().unwrap_or(*v)).collect();
    Node { inputs, ..node.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_end_where_little_crosses() {
        // Six nodes with 10 bytes each.
        let made = [10, 10, 10, 10, 10, 10];
        assert!(boundaries(&made, &[1, 2, 3, 4, 5, 5], 1).is_empty());
        // Chains are divided anywhere: at the first place of each window.
        assert_eq!(boundaries(&made, &[1, 2, 3, 4, 5, 5], 2), [2]);
        // The last node reads the second: 20 bytes cross the places after the second node, and 10 the place before
        // it.
        assert_eq!(boundaries(&[10, 10, 10, 10], &[1, 3, 3, 3], 2), [1]);
        assert!(boundaries(&[], &[], 3).is_empty());
    }
}

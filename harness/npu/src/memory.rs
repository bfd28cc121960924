//! Memory of a step: the peak of live values, and gradient sums over micro-batches.

use crate::kernel::fused_attentions;
use std::collections::HashSet;
use zoo_graph::{Bytes, DType, Graph, NodeId, Source, ValueId, liveness::Liveness};
use zoo_recipe::schema::Npu;

/// Peak memory of a graph: live values with variables and inputs. Values inside a fused attention do not count. With
/// several micro-batches, gradient sums are live in addition to the gradients.
pub fn peak_memory(graph: &Graph, npu: &Npu) -> Bytes {
    let inside = if npu.fused_attention { inside(graph) } else { HashSet::new() };
    let sums = if npu.accumulate > 1 { gradient_bytes(graph) } else { 0 };
    Bytes(live(graph, &inside) + sums)
}

/// Bytes of all gradients.
pub fn gradient_bytes(graph: &Graph) -> u64 {
    graph.gradients.iter().map(|(_, v)| graph.ty(*v).bytes().0).sum()
}

/// Values that stay inside a fused attention.
fn inside(graph: &Graph) -> HashSet<ValueId> {
    let groups = fused_attentions(graph);
    let mut leaves: HashSet<ValueId> = graph.results().chain(graph.gradients.iter().map(|g| g.1)).collect();
    let mut group_of = vec![None; graph.nodes.len()];
    for (g, group) in groups.iter().enumerate() {
        group.iter().for_each(|n| group_of[*n] = Some(g));
    }
    for (n, node) in graph.nodes.iter().enumerate() {
        leaves.extend(node.inputs.iter().filter(|v| match graph.value(**v).source {
            Source::Node(by, _) => group_of[by.0] != group_of[n],
            Source::Input(_) | Source::Variable(_) => true,
        }));
    }
    let made = groups.iter().flatten().flat_map(|n| &graph.nodes[*n].outputs);
    made.filter(|v| !leaves.contains(v)).copied().collect()
}

/// Largest number of live bytes while a node runs, without those `inside` kernels.
fn live(graph: &Graph, inside: &HashSet<ValueId>) -> u64 {
    let liveness = Liveness::of(graph, &[]);
    let bytes = |v: &ValueId| if inside.contains(v) { 0 } else { graph.ty(*v).bytes().0 };
    let kept = graph.inputs.iter().map(|input| input.value).chain(graph.variables.iter().map(|v| v.value));
    let mut live: u64 = kept.filter(|v| graph.ty(*v).dtype != DType::U32).map(|v| bytes(&v)).sum();
    let mut peak = live;
    for (n, node) in graph.nodes.iter().enumerate() {
        live += node.outputs.iter().map(bytes).sum::<u64>();
        peak = peak.max(live);
        let made = |v: &&ValueId| matches!(graph.value(**v).source, Source::Node(..));
        live -= liveness.dies_after(NodeId(n)).iter().filter(made).map(bytes).sum::<u64>();
    }
    peak
}

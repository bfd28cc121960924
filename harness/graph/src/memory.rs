//! The memory plan of a step: where each value lies in one arena.
//!
//! Every value gets a range of the arena for the time from its node to its last reader; ranges of values that live at
//! the same time are disjoint. Variables and inputs keep their ranges. A view shares the range of its operand. A result
//! overwrites an operand if its operator allows this and nothing in the range of the operand is needed later. Ranges are
//! placed in descending order of size, each into the smallest gap between those already placed that live at the same
//! time (greedy by size with offsets, arXiv 2001.03288, section 5.2).

use crate::{
    graph::{Graph, Source, Value, ValueId},
    tensor::{DType, TensorType},
    units::Bytes,
};
use std::{cmp::Reverse, ops::Range};

/// The beginning of every range is a multiple of this many bytes: a line of the cache, and a vector of AVX-512.
const ALIGNMENT: usize = 64;

/// The places of the values of a graph.
#[derive(Clone, Debug)]
pub struct MemoryPlan {
    /// By value, in bytes; `None` for values that no node reads or writes, and for class indices, which are not planned.
    places: Vec<Option<Range<usize>>>,
    /// Size of the arena.
    bytes: Bytes,
    /// By node, for each result the operand that it overwrites.
    in_place: Vec<Vec<Option<usize>>>,
    /// By node, total size of the values that are live while it runs, including its results.
    live: Vec<Bytes>,
}

impl MemoryPlan {
    /// Plans `graph`.
    pub fn of(graph: &Graph) -> Self {
        Planner::new(graph).plan()
    }

    /// The bytes of the arena in which a value is stored.
    pub fn place(&self, value: ValueId) -> Option<Range<usize>> {
        self.places[value.0].clone()
    }

    /// Size of the arena: variables, inputs, and intermediate values.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Largest sum of live values: a lower bound for every plan without overwriting.
    pub fn live_bytes(&self) -> Bytes {
        self.live_bytes_with(|_| Bytes(0))
    }

    /// Largest sum of live values and workspace while a node runs; `beside` is the workspace by node index.
    pub fn live_bytes_with(&self, beside: impl Fn(usize) -> Bytes) -> Bytes {
        let peaks = self.live.iter().enumerate().map(|(n, live)| *live + beside(n));
        peaks.max().unwrap_or_default()
    }

    /// The operand whose memory a node's result takes over, or shares as a view; if any.
    pub fn overwrites(&self, node: usize, result: usize) -> Option<usize> {
        self.in_place[node].get(result).copied().flatten()
    }
}

/// A range for a value, its views, and those that overwrite it, one after the other.
#[derive(Clone, Copy, Debug)]
struct Tenant {
    /// The first value.
    value: ValueId,
    bytes: usize,
    /// The last node that reads one of its values so far.
    used: usize,
    /// The first node at which it is needed; 0 for what a step begins with.
    first: usize,
    /// The last one; `usize::MAX` for what outlives the step.
    last: usize,
}

impl Tenant {
    /// Bytes from its beginning to where the next range may begin.
    fn room(&self) -> usize {
        self.bytes.next_multiple_of(ALIGNMENT).max(ALIGNMENT)
    }

    fn meets(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

struct Planner<'g> {
    graph: &'g Graph,
    last_use: Vec<Option<usize>>,
    tenants: Vec<Tenant>,
    /// By value.
    tenant_of: Vec<Option<usize>>,
}

impl<'g> Planner<'g> {
    fn new(graph: &'g Graph) -> Self {
        let mut last_use = vec![None; graph.values.len()];
        for (n, node) in graph.nodes.iter().enumerate() {
            for v in node.inputs.iter().chain(&node.outputs) {
                last_use[v.0] = Some(n);
            }
        }
        for v in graph.results() {
            last_use[v.0] = Some(usize::MAX);
        }
        Self { graph, last_use, tenants: Vec::new(), tenant_of: vec![None; graph.values.len()] }
    }

    fn plan(mut self) -> MemoryPlan {
        let graph = self.graph;
        let variables = graph.variables.iter().map(|v| v.value);
        let planned = |v: &ValueId| graph.ty(*v).dtype != DType::U32;
        for v in graph.inputs.iter().map(|i| i.value).chain(variables).filter(planned) {
            self.settle(v, 0, usize::MAX);
        }
        let mut live: u64 =
            self.tenant_of.iter().zip(&graph.values).map(|(t, v)| t.map_or(0, |_| v.ty.bytes().0)).sum();
        let (mut live_at, mut in_place) =
            (Vec::with_capacity(graph.nodes.len()), Vec::with_capacity(graph.nodes.len()));
        for (n, node) in graph.nodes.iter().enumerate() {
            let mut overwritten: Vec<Option<usize>> = Vec::with_capacity(node.outputs.len());
            for r in 0..node.outputs.len() {
                overwritten.push(self.overwritten(n, r, &overwritten));
            }
            for (result, operand) in node.outputs.iter().zip(&overwritten) {
                let used = self.last_use[result.0].unwrap_or(n);
                match operand.and_then(|operand| self.tenant_of[node.inputs[operand].0]) {
                    Some(tenant) => {
                        self.tenant_of[result.0] = Some(tenant);
                        let tenant = &mut self.tenants[tenant];
                        (tenant.used, tenant.last) = (tenant.used.max(used), tenant.last.max(used));
                    }
                    None => self.settle(*result, n, used),
                }
                live += graph.ty(*result).bytes().0;
            }
            live_at.push(Bytes(live));
            let mut dead: Vec<ValueId> = node.inputs.iter().chain(&node.outputs).copied().collect();
            dead.sort_unstable();
            dead.dedup();
            let dies =
                |v: &ValueId| matches!(graph.value(*v).source, Source::Node(..)) && self.last_use[v.0] == Some(n);
            live -= dead.into_iter().filter(dies).map(|v| graph.ty(v).bytes().0).sum::<u64>();
            in_place.push(overwritten);
        }
        let (starts, bytes) = pack(&self.tenants);
        let place =
            |(tenant, v): (&Option<usize>, &Value)| tenant.map(|tenant| starts[tenant]..starts[tenant] + size(&v.ty));
        let places = self.tenant_of.iter().zip(&graph.values).map(place).collect();
        MemoryPlan { places, bytes: Bytes(bytes as u64), in_place, live: live_at }
    }

    /// Gives a value a range of its own.
    fn settle(&mut self, v: ValueId, first: usize, last: usize) {
        self.tenant_of[v.0] = Some(self.tenants.len());
        let used = self.last_use[v.0].unwrap_or(first);
        self.tenants.push(Tenant { value: v, bytes: size(self.graph.ty(v)), used, first, last });
    }

    /// The operand whose range the `r`-th result of node `n` gets. It is that of a view; or its range is not needed
    /// later, has the same size, and does not hold another operand of the node. A variable may only be overwritten by
    /// its own next value.
    fn overwritten(&self, n: usize, r: usize, taken: &[Option<usize>]) -> Option<usize> {
        let node = &self.graph.nodes[n];
        let allowed = node.op.rules().in_place().iter().filter(|(_, result)| *result == r);
        let allowed = allowed.filter(|(operand, _)| !taken.contains(&Some(*operand)));
        let tenant_of = |v: &ValueId| self.tenant_of[v.0];
        allowed.map(|(operand, _)| *operand).find(|&operand| {
            let Some(at) = tenant_of(&node.inputs[operand]) else { return false };
            let tenant = &self.tenants[at];
            let mine = match self.graph.value(tenant.value).source {
                Source::Node(..) => true,
                Source::Variable(id) => self.graph.variable(id).next == Some(node.outputs[r]),
                Source::Input(_) => false,
            };
            let alone = || node.inputs.iter().filter(|v| tenant_of(v) == Some(at)).count() == 1;
            let fits = || size(self.graph.ty(node.outputs[r])) == tenant.bytes;
            node.op.rules().is_view() || mine && tenant.used == n && alone() && fits()
        })
    }
}

/// Bytes of a value as stored.
fn size(ty: &TensorType) -> usize {
    ty.stored_numel() * ty.dtype.bytes().0 as usize
}

/// The beginning of each range, and the size of the arena.
fn pack(tenants: &[Tenant]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..tenants.len()).collect();
    // What stays for the whole step lies at the beginning and leaves no gaps.
    let stays = |t: &Tenant| t.first == 0 && t.last == usize::MAX;
    order.sort_by_key(|t| (!stays(&tenants[*t]), Reverse(tenants[*t].bytes), tenants[*t].first, *t));
    let (mut starts, mut end) = (vec![0; tenants.len()], 0);
    let mut placed: Vec<usize> = Vec::with_capacity(tenants.len()); // in order of their beginnings
    for t in order {
        let need = tenants[t].room();
        let (mut free, mut best) = (0, None::<Range<usize>>);
        for &other in placed.iter().filter(|other| tenants[**other].meets(&tenants[t])) {
            let gap = free..starts[other];
            if gap.len() >= need && best.as_ref().is_none_or(|best| gap.len() < best.len()) {
                best = Some(gap);
            }
            free = free.max(starts[other] + tenants[other].room());
        }
        starts[t] = best.map_or(free, |gap| gap.start);
        end = end.max(starts[t] + need);
        placed.insert(placed.partition_point(|other| starts[*other] <= starts[t]), t);
    }
    (starts, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenants(all: &[(usize, usize, usize)]) -> Vec<Tenant> {
        all.iter().map(|&(bytes, first, last)| Tenant { value: ValueId(0), bytes, used: last, first, last }).collect()
    }

    #[test]
    fn what_does_not_meet_shares_a_range() {
        assert_eq!(pack(&tenants(&[(640, 0, 3), (640, 4, 9)])), (vec![0, 0], 640));
        assert_eq!(pack(&tenants(&[(640, 0, 4), (640, 4, 9)])), (vec![0, 640], 1280));
    }

    #[test]
    fn two_small_ones_follow_a_large_one_in_its_range() {
        assert_eq!(pack(&tenants(&[(256, 5, 9), (640, 0, 3), (320, 4, 9)])), (vec![320, 0, 0], 640));
    }

    #[test]
    fn what_stays_lies_at_the_beginning() {
        assert_eq!(pack(&tenants(&[(640, 1, 3), (4, 0, usize::MAX)])), (vec![64, 0], 704));
    }
}

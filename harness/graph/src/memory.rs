//! The buffer plan of a step: which values share memory.
//!
//! Every value gets a buffer; a buffer serves one live value at a time. Variables and inputs keep their buffers. A
//! result overwrites an operand if its operator allows this and the operand is not needed later. All other values use a
//! best fit over the free buffers, in execution order (the greedy plan of static-shape inference engines, e.g. arXiv
//! 2001.03288, section 4).

use crate::{
    graph::{Graph, Source, ValueId},
    tensor::DType,
    units::Bytes,
};

/// Index of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub usize);

/// The buffers for the values of a graph.
#[derive(Clone, Debug)]
pub struct MemoryPlan {
    /// By value; `None` for values that no node reads or writes, and for class indices, which are not planned.
    buffer_of: Vec<Option<BufferId>>,
    /// Size by buffer, in elements as stored.
    sizes: Vec<usize>,
    /// Bytes of all buffers.
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

    /// The buffer of a value.
    pub fn buffer(&self, value: ValueId) -> Option<BufferId> {
        self.buffer_of[value.0]
    }

    /// Elements of each buffer.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Memory of all buffers: variables, inputs, and intermediate values.
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

    /// The operand that a node's result overwrites, if any.
    pub fn overwrites(&self, node: usize, result: usize) -> Option<usize> {
        self.in_place[node].get(result).copied().flatten()
    }
}

struct Planner<'g> {
    graph: &'g Graph,
    last_use: Vec<Option<usize>>,
    buffer_of: Vec<Option<BufferId>>,
    sizes: Vec<usize>,
    /// Bytes per element, by buffer: buffers are not shared between types.
    widths: Vec<u64>,
    free: Vec<BufferId>,
    in_place: Vec<Vec<Option<usize>>>,
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
        Self {
            graph,
            last_use,
            buffer_of: vec![None; graph.values.len()],
            sizes: Vec::new(),
            widths: Vec::new(),
            free: Vec::new(),
            in_place: Vec::new(),
        }
    }

    fn plan(mut self) -> MemoryPlan {
        let graph = self.graph;
        let variables = graph.variables.iter().map(|v| v.value);
        let planned = |v: &ValueId| graph.ty(*v).dtype != DType::U32;
        for v in graph.inputs.iter().map(|i| i.value).chain(variables).filter(planned) {
            self.buffer_of[v.0] = Some(self.allocate(v));
        }
        let mut live: u64 = self.sizes.iter().zip(&self.widths).map(|(n, w)| *n as u64 * w).sum();
        let mut live_at = Vec::with_capacity(graph.nodes.len());
        for (n, node) in graph.nodes.iter().enumerate() {
            let mut overwritten: Vec<Option<usize>> = Vec::with_capacity(node.outputs.len());
            for r in 0..node.outputs.len() {
                overwritten.push(self.overwritten(n, r, &overwritten));
            }
            for (result, operand) in node.outputs.iter().zip(&overwritten) {
                let buffer = match operand {
                    Some(operand) => self.buffer_of[node.inputs[*operand].0],
                    None => Some(self.allocate(*result)),
                };
                self.buffer_of[result.0] = buffer;
                live += graph.ty(*result).bytes().0;
            }
            live_at.push(Bytes(live));
            let mut dead: Vec<ValueId> = node.inputs.iter().chain(&node.outputs).copied().collect();
            dead.sort_unstable();
            dead.dedup();
            for v in dead {
                let kept = !matches!(graph.value(v).source, Source::Node(..));
                if kept || self.last_use[v.0] != Some(n) {
                    continue;
                }
                live -= graph.ty(v).bytes().0;
                let passed_on = overwritten.iter().flatten().any(|operand| node.inputs[*operand] == v);
                if let (Some(buffer), false) = (self.buffer_of[v.0], passed_on) {
                    self.free.push(buffer);
                }
            }
            self.in_place.push(overwritten);
        }
        let bytes = self.sizes.iter().zip(&self.widths).map(|(n, w)| *n as u64 * w).sum();
        MemoryPlan {
            buffer_of: self.buffer_of,
            sizes: self.sizes,
            bytes: Bytes(bytes),
            in_place: self.in_place,
            live: live_at,
        }
    }

    /// The operand that the `r`-th result of node `n` may overwrite: it is not needed later, has the same size, and is
    /// not another tensor of the node. A variable may only be overwritten by its own next value.
    fn overwritten(&self, n: usize, r: usize, taken: &[Option<usize>]) -> Option<usize> {
        let node = &self.graph.nodes[n];
        let allowed = node.op.rules().in_place().iter().filter(|(_, result)| *result == r);
        let allowed = allowed.filter(|(operand, _)| !taken.contains(&Some(*operand)));
        allowed.map(|(operand, _)| *operand).find(|&operand| {
            let v = node.inputs[operand];
            let mine = match self.graph.value(v).source {
                Source::Node(..) => true,
                Source::Variable(id) => self.graph.variable(id).next == Some(node.outputs[r]),
                Source::Input(_) => false,
            };
            mine && self.last_use[v.0] == Some(n)
                && node.inputs.iter().filter(|i| **i == v).count() == 1
                && self.graph.ty(v).bytes() == self.graph.ty(node.outputs[r]).bytes()
        })
    }

    /// A buffer for a value: the smallest free one that is large enough; otherwise the largest free one, enlarged;
    /// otherwise a new one.
    fn allocate(&mut self, v: ValueId) -> BufferId {
        let ty = self.graph.ty(v);
        let (need, width) = (ty.stored_numel(), ty.dtype.bytes().0);
        let fits = |b: &BufferId| self.widths[b.0] == width;
        let candidates = || self.free.iter().copied().enumerate().filter(|(_, b)| fits(b));
        let smallest =
            candidates().filter(|(_, b)| self.sizes[b.0] >= need).min_by_key(|(_, b)| (self.sizes[b.0], b.0));
        let largest = || candidates().max_by_key(|(_, b)| (self.sizes[b.0], b.0));
        let permanent = !matches!(self.graph.value(v).source, Source::Node(..));
        match smallest.or_else(largest).filter(|_| !permanent) {
            Some((place, buffer)) => {
                self.free.swap_remove(place);
                self.sizes[buffer.0] = self.sizes[buffer.0].max(need);
                buffer
            }
            None => {
                self.sizes.push(need);
                self.widths.push(width);
                BufferId(self.sizes.len() - 1)
            }
        }
    }
}

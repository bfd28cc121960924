//! The bytes that a kernel moves, and how many of them come from the shared cache.
//!
//! Every value that a kernel reads or writes is moved once, with these exceptions: values inside a kernel are not
//! moved; a slice reads only its part; a ReLU's gradient reads one bit per element if the device stores masks. A
//! small result stays in the shared cache for the following kernels, so reading it does not access device memory.
//! Writes always do.

use crate::{
    composed::{Composed, composed, formula},
    device::Device,
    kernel::Kernel,
    matrix::is_depthwise,
};
use std::collections::{HashSet, VecDeque};
use zoo_graph::{
    DType, Graph, Node, Op, Phase, Shape, ValueId,
    formula::Term,
    ops::{Product, Read, Work},
};
use zoo_recipe::schema::TransDataKernel;

/// Traffic of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Read from device memory.
    pub read: u64,
    /// Read from the shared cache.
    pub cached: u64,
    /// Written.
    pub written: u64,
    /// Factor on the time of these transfers, due to short runs of addresses.
    pub run_factor: f64,
    /// Number of launched kernels: several if the software composes the operator.
    pub launches: u64,
    /// Number of tensors that they read and write, without single numbers.
    pub tensors: u64,
}

impl Traffic {
    /// Bytes transferred from and to device memory.
    pub fn hbm(&self) -> u64 {
        self.read + self.written
    }

    /// All bytes.
    pub fn total(&self) -> u64 {
        self.read + self.written + self.cached
    }
}

/// State of the shared cache while the kernels run one after the other.
pub struct Cache<'d> {
    device: &'d Device,
    /// Whether results have masks with one bit per element.
    masks: bool,
    trans_data: TransDataKernel,
    capacity: u64,
    used: u64,
    held: VecDeque<(ValueId, u64)>,
    /// Nodes that read each value; results of the step have an additional reader after the last node.
    readers: Vec<Vec<usize>>,
    /// The value in whose memory each value is stored: another one if only its shape or strides differ.
    place: Vec<ValueId>,
}

impl<'d> Cache<'d> {
    /// An empty cache for these kernels.
    pub fn new(
        graph: &Graph,
        kernels: &[Kernel],
        device: &'d Device,
        masks: bool,
        trans_data: TransDataKernel,
    ) -> Self {
        let capacity = (device.l2.mib.value * f64::from(1 << 20) * device.l2.resident.value) as u64;
        let mut readers = vec![Vec::new(); graph.values.len()];
        for (n, node) in graph.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|v| readers[v.0].push(n));
        }
        graph.results().for_each(|v| readers[v.0].push(graph.nodes.len()));
        let runs: HashSet<usize> = kernels.iter().flat_map(|kernel| &kernel.nodes).copied().collect();
        let mut place: Vec<ValueId> = (0..graph.values.len()).map(ValueId).collect();
        for (_, node) in graph.nodes.iter().enumerate().filter(|(n, _)| !runs.contains(n)) {
            if let [operand, ..] = node.inputs[..] {
                node.outputs.iter().for_each(|v| place[v.0] = place[operand.0]);
            }
        }
        Self { device, masks, trans_data, capacity, used: 0, held: VecDeque::new(), readers, place }
    }

    /// The traffic of the next kernel.
    pub fn run(&mut self, graph: &Graph, kernel: &Kernel) -> Traffic {
        let inside: HashSet<ValueId> = kernel.nodes.iter().flat_map(|n| &graph.nodes[*n].outputs).copied().collect();
        let mut traffic = Traffic { run_factor: self.run_factor(graph, kernel), launches: 1, ..Traffic::default() };
        if let [n] = kernel.nodes[..]
            && let Some(terms) = composed(graph, &graph.nodes[n], &self.device.operators.composed)
        {
            return self.terms(graph, &graph.nodes[n], &terms);
        }
        let mut seen = HashSet::new();
        for &n in &kernel.nodes {
            let node = &graph.nodes[n];
            for (i, v) in node.inputs.iter().enumerate() {
                if inside.contains(v) || !seen.insert(*v) {
                    continue;
                }
                let bytes = read_bytes(graph, n, i, self.masks);
                traffic.tensors += u64::from(graph.ty(*v).shape != Shape::scalar());
                if self.touch(*v) { traffic.cached += bytes } else { traffic.read += bytes }
            }
            traffic.read += conversion_bytes(graph, n, self.device);
            if self.masks && has_relu(&node.op) && node.phase == Phase::Forward {
                traffic.written += mask_bytes(graph, node.outputs[0]);
            }
        }
        if let [n] = kernel.nodes[..]
            && reads_twice(graph, &graph.nodes[n], self.device)
        {
            let again = traffic.read + traffic.cached;
            if again <= self.capacity { traffic.cached += again } else { traffic.read += again }
        }
        for v in self.results(graph, kernel) {
            let bytes = graph.ty(v).bytes().0;
            traffic.written += bytes;
            traffic.tensors += u64::from(graph.ty(v).shape != Shape::scalar());
            self.hold(v, bytes);
        }
        traffic
    }

    /// The traffic of an operator that runs term by term.
    fn terms(&mut self, graph: &Graph, node: &Node, terms: &Composed) -> Traffic {
        node.inputs.iter().for_each(|v| {
            self.touch(*v);
        });
        node.outputs.iter().for_each(|v| self.hold(*v, graph.ty(*v).bytes().0));
        // Each term reads what the previous one wrote.
        let (read, cached) = if terms.operand <= self.capacity { (0, terms.read) } else { (terms.read, 0) };
        let tensors = (terms.read + terms.written) / terms.operand.max(1);
        Traffic { read, cached, written: terms.written, run_factor: 1.0, launches: terms.kernels, tensors }
    }

    /// Values that leave the kernel: those that other kernels read, results of the step, and values without readers.
    fn results(&self, graph: &Graph, kernel: &Kernel) -> Vec<ValueId> {
        let made = kernel.nodes.iter().flat_map(|n| graph.nodes[*n].outputs.iter().copied());
        let leaves = |v: &ValueId| {
            let readers = &self.readers[v.0];
            readers.is_empty() || readers.iter().any(|reader| !kernel.nodes.contains(reader))
        };
        made.filter(leaves).collect()
    }

    /// Whether a value is in the cache. It becomes the most recently used one.
    fn touch(&mut self, v: ValueId) -> bool {
        let v = self.place[v.0];
        match self.held.iter().position(|(held, _)| *held == v) {
            Some(place) => {
                let entry = self.held.remove(place);
                self.held.extend(entry);
                true
            }
            None => false,
        }
    }

    /// Stores a value in the cache if it fits, and evicts the least recently used ones.
    fn hold(&mut self, v: ValueId, bytes: u64) {
        if bytes > self.capacity {
            return;
        }
        self.used += bytes;
        self.held.push_back((v, bytes));
        while self.used > self.capacity {
            match self.held.pop_front() {
                Some((_, freed)) => self.used -= freed,
                None => self.used = 0,
            }
        }
    }

    /// Factor on the time of a kernel's transfers, due to the runs of addresses that it copies.
    fn run_factor(&self, graph: &Graph, kernel: &Kernel) -> f64 {
        let [n] = kernel.nodes[..] else { return 1.0 };
        let Some(run) = run_bytes(graph, n, self.trans_data) else { return 1.0 };
        1.0 + self.device.hbm.run_overhead_bytes.value / run.max(1) as f64
    }
}

/// Length of the contiguous runs that an operator copies if it only moves data, in bytes; `None` for other operators.
fn run_bytes(graph: &Graph, n: usize, trans_data: TransDataKernel) -> Option<u64> {
    let node = &graph.nodes[n];
    let outputs = graph.types(&node.outputs);
    let work = node.op.rules().work(&graph.types(&node.inputs), &outputs);
    let (Work::Moves { run } | Work::Views { run }) = work else { return None };
    match (&node.op, trans_data) {
        (Op::TransData(_), TransDataKernel::Elements) => Some(outputs.first()?.dtype.bytes().0),
        (_, TransDataKernel::Blocks | TransDataKernel::Elements) => Some(run),
    }
}

/// Bytes that node `n` reads from its operand `i`.
fn read_bytes(graph: &Graph, n: usize, i: usize, masks: bool) -> u64 {
    let node = &graph.nodes[n];
    let whole = graph.ty(node.inputs[i]).bytes().0;
    match node.op.rules().operand(i).read {
        Read::Part => graph.ty(node.outputs[0]).bytes().0.min(whole),
        Read::Sign if masks => mask_bytes(graph, node.inputs[i]),
        Read::Sign | Read::Whole => whole,
    }
}

/// Whether an operator reads its operands twice: it needs a sum or maximum of each row before it can write, and a row
/// does not fit the memory of a core. This applies to optimizers with norms of whole tensors, and to softmax of very
/// long rows.
fn reads_twice(graph: &Graph, node: &Node, device: &Device) -> bool {
    let Some(formula) = formula(&node.op) else { return false };
    let whole = node.inputs.iter().map(|v| graph.ty(*v)).max_by_key(|ty| ty.stored_numel());
    let Some(whole) = whole else { return false };
    let folds =
        formula.terms().iter().any(|term| matches!(term, Term::Row(..) | Term::Softmax(_) | Term::LogSoftmax(_)));
    let rows = if node.op.update().is_some() { whole.shape.len() } else { formula.rows() };
    let row: usize = whole.shape.iter().rev().take(rows).product();
    let bytes = row as u64 * whole.dtype.bytes().0;
    folds && bytes as f64 > device.buffers.unified_kib.value * 1024.0
}

/// One bit per element.
fn mask_bytes(graph: &Graph, v: ValueId) -> u64 {
    graph.ty(v).stored_numel() as u64 / 8
}

/// Whether the operator ends with a ReLU.
fn has_relu(op: &Op) -> bool {
    let fused =
        matches!(op, Op::Conv2D(conv) if conv.relu) || matches!(op, Op::BnTrainingUpdate(bn) if bn.relu.is_some());
    fused || matches!(op, Op::Relu(_))
}

/// Traffic of converting the operands and results of a product to and from the layout of the matrix unit.
fn conversion_bytes(graph: &Graph, n: usize, device: &Device) -> u64 {
    dense_conversion_bytes(graph, n, device) + map_conversion_bytes(graph, n, device)
}

/// Traffic for feature maps in f32 that are stored channels first: each is read and written once more. Depthwise
/// convolutions accept them as they are.
fn map_conversion_bytes(graph: &Graph, n: usize, device: &Device) -> u64 {
    let node = &graph.nodes[n];
    let work = node.op.rules().work(&graph.types(&node.inputs), &graph.types(&node.outputs));
    let Work::Product { product, .. } = work else { return 0 };
    let maps = match product {
        Product::Convolution(_) | Product::ConvolutionInput(_) => [node.inputs.first(), node.outputs.first()],
        Product::ConvolutionFilter(_) => [node.inputs.first(), node.inputs.get(1)],
        Product::Matrices(_) | Product::Groups(_) | Product::GroupGradients(_) => return 0,
    };
    let maps = || maps.into_iter().flatten().map(|v| graph.ty(*v));
    if !device.matrix.transposes_f32 || is_depthwise(graph, node) || maps().any(|map| map.dtype != DType::F32) {
        return 0;
    }
    2 * maps().map(|map| map.bytes().0).sum::<u64>()
}

/// Traffic for the weights of a dense layer, or for their gradient.
fn dense_conversion_bytes(graph: &Graph, n: usize, device: &Device) -> u64 {
    let node = &graph.nodes[n];
    let Op::MatMul(product) = &node.op else { return 0 };
    // Weights are a single matrix; products of an attention have several.
    let of_matrix = |v: ValueId| if graph.ty(v).shape.len() == 2 { 2 * graph.ty(v).bytes().0 } else { 0 };
    match node.phase {
        Phase::Forward if device.matrix.converts_dense => of_matrix(node.inputs[1]),
        // The product that sums over the batch is the gradient of the weights.
        Phase::Backward if device.matrix.converts_dense && product.transpose_a => of_matrix(node.outputs[0]),
        Phase::Forward | Phase::Backward | Phase::Loss | Phase::Update => 0,
    }
}

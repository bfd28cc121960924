//! The price of a kernel: four stages that overlap.
//!
//! Move-in and move-out share device memory. The other stages are the transfers to the cores, the matrix units and
//! the Vector units. With reordered instructions, the stages of adjacent tiles overlap, so a kernel takes as long as
//! its longest stage, plus the others once while the pipeline fills. With instructions in order, only a part of the
//! others is hidden. The launch comes first, with the addresses of all tensors.

use crate::{
    device::Device,
    kernel::Kernel,
    matrix::{self, Product, Tiling},
    traffic::Traffic,
    units::Seconds,
    vector::{self, VectorWork},
};
use serde::Serialize;
use std::collections::HashMap;
use zoo_graph::{Graph, Place, ops::Work};

/// What limits a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The matrix units.
    Cube,
    /// The Vector units.
    Vector,
    /// Device memory.
    Hbm,
    /// The shared cache.
    L2,
    /// Its launch.
    Launch,
    /// The host.
    Host,
}

impl Bound {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cube => "Cube",
            Self::Vector => "Vector",
            Self::Hbm => "HBM",
            Self::L2 => "L2",
            Self::Launch => "launch",
            Self::Host => "host",
        }
    }
}

/// Cost of a kernel, by stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// From start to end, including the launch.
    pub time: Seconds,
    /// Time until it begins.
    pub launch: Seconds,
    /// Time of the matrix units.
    pub cube: Seconds,
    /// Time of the Vector units.
    pub vector: Seconds,
    /// Time of reads and writes of device memory.
    pub hbm: Seconds,
    /// Time of transfers from the shared cache to the cores.
    pub l2: Seconds,
    /// Bytes read from and written to device memory.
    pub bytes: u64,
    /// Useful floating-point operations.
    pub flop: u64,
    /// What limits it.
    pub bound: Bound,
    /// The division of its product, if it has one.
    pub tiling: Option<Tiling>,
    /// Number of launched kernels.
    pub launches: u64,
    /// Number of tensors that they read and write.
    pub tensors: u64,
}

/// Computes prices of kernels on a device.
pub struct Pricing<'d> {
    device: &'d Device,
    /// Share of the shorter stages that overlaps with the longest.
    overlap: f64,
    tuned: bool,
    /// Bandwidth of device memory, in bytes per second.
    hbm: f64,
    /// Results of searches, by product and by the kernel's other stages.
    known: HashMap<(Product, [u64; 3]), Tiling>,
}

impl<'d> Pricing<'d> {
    /// `reordered`: with reordered instructions. `tuned`: with tuned operators.
    pub fn new(device: &'d Device, reordered: bool, tuned: bool) -> Self {
        let overlap = if reordered { 1.0 } else { device.control.in_order_overlap.value };
        let efficiency = if tuned { &device.hbm.tuned_efficiency } else { &device.hbm.efficiency };
        let hbm = device.hbm.gb_per_s.value * 1e9 * efficiency.value;
        Self { device, overlap, tuned, hbm, known: HashMap::new() }
    }

    /// The price of a kernel with this traffic.
    pub fn price(&mut self, graph: &Graph, kernel: &Kernel, traffic: &Traffic) -> Price {
        match kernel.place {
            Place::Host => self.on_host(traffic),
            Place::Device => self.on_device(graph, kernel, traffic),
        }
    }

    fn on_device(&mut self, graph: &Graph, kernel: &Kernel, traffic: &Traffic) -> Price {
        let device = self.device;
        let nodes = || kernel.nodes.iter().map(|n| &graph.nodes[*n]);
        let work = nodes().map(|node| vector::work(graph, node, device)).fold(VectorWork::default(), VectorWork::plus);
        let cores = device.cores.value;
        let unit = &device.vector;
        let cycles =
            work.bytes / (unit.bytes_per_cycle.value * unit.efficiency.value) + work.starts * unit.start_cycles.value;
        let vector = Seconds(cycles / (cores * unit.clock_ghz.value * 1e9));
        let hbm = Seconds(traffic.hbm() as f64 * traffic.run_factor / self.hbm);
        let l2_rate = cores * device.l2.bytes_per_cycle.value * device.matrix.clock_ghz.value * 1e9;
        let streamed = Seconds(traffic.total() as f64 / l2_rate);
        let (overlap, tuned) = (self.overlap, self.tuned);
        let with = |t: &Tiling| pipelined([t.cube, vector, hbm, t.l2.max(streamed)], t.loads as f64, overlap);
        let key = |product| (product, [vector, hbm, streamed].map(|stage| stage.0.to_bits()));
        // A fused attention has several products, which run one after the other.
        let tiling = nodes().filter_map(|node| matrix::product(graph, node, device)).map(|product| {
            let found = || matrix::search(&product, device, tuned, &with);
            *self.known.entry(key(product)).or_insert_with(found)
        });
        let tiling = tiling.reduce(Tiling::then);
        let l2 = tiling.map_or(streamed, |t| t.l2.max(streamed));
        let cube = tiling.map_or(Seconds::ZERO, |t| t.cube);
        let loads = traffic.total() as f64 / cores / (device.buffers.unified_kib.value * 1024.0 / 4.0);
        let busy = tiling.map_or_else(|| pipelined([cube, vector, hbm, l2], loads, overlap), |t| with(&t));
        let rate = match kernel.nodes[..] {
            [n] => device.operators.rates.get(graph.nodes[n].op.name()).map_or(1.0, |rate| rate.value),
            _ => 1.0,
        };
        let of_tensor = device.control.tensor_us.as_ref().map_or(0.0, |figure| figure.value);
        let launch_us = device.control.launch_us.value * traffic.launches as f64 + of_tensor * traffic.tensors as f64;
        let launch = Seconds(1e-6 * launch_us);
        let stages = [(Bound::Cube, cube), (Bound::Vector, vector), (Bound::Hbm, hbm), (Bound::L2, l2)];
        let (bound, _) = stages
            .into_iter()
            .chain([(Bound::Launch, launch)])
            .fold((Bound::Launch, Seconds::ZERO), |best, next| if next.1 > best.1 { next } else { best });
        let flop = nodes().map(|node| flop(graph, node)).sum();
        Price {
            time: busy / rate + launch,
            launch,
            cube,
            vector,
            hbm,
            l2,
            bytes: traffic.hbm(),
            flop,
            bound,
            tiling,
            launches: traffic.launches,
            tensors: traffic.tensors,
        }
    }

    /// The price of an operator on the host, without the copies to and from it.
    fn on_host(&self, traffic: &Traffic) -> Price {
        let time = Seconds(traffic.total() as f64 / (self.device.host.operator_gb_per_s.value * 1e9));
        let none = Seconds::ZERO;
        let bound = Bound::Host;
        Price {
            time,
            launch: none,
            cube: none,
            vector: none,
            hbm: none,
            l2: none,
            bytes: 0,
            flop: 0,
            bound,
            tiling: None,
            launches: 1,
            tensors: 0,
        }
    }
}

/// Time of stages that process `tiles` one after the other: the longest stage, plus the parts of the others that do
/// not overlap, but at least one tile of them to fill the pipeline.
pub fn pipelined(stages: [Seconds; 4], tiles: f64, overlap: f64) -> Seconds {
    let longest = stages.into_iter().fold(Seconds::ZERO, Seconds::max);
    let others = stages.into_iter().sum::<Seconds>() - longest;
    let exposed = (1.0 - overlap).max(1.0 / tiles.max(1.0));
    longest + others * exposed
}

/// Useful operations of products. Operations of the Vector units are not counted.
pub(crate) fn flop(graph: &Graph, node: &zoo_graph::Node) -> u64 {
    let (inputs, outputs) = (graph.types(&node.inputs), graph.types(&node.outputs));
    match node.op.rules().work(&inputs, &outputs) {
        Work::Product { .. } => node.op.cost(&inputs, &outputs).flop.0,
        Work::Nothing | Work::Moves { .. } | Work::Views { .. } | Work::Stream { .. } | Work::Rows { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_by_hand() {
        let stages = [4.0, 1.0, 2.0, 1.0].map(Seconds);
        // One tile: nothing overlaps. Many tiles: only the longest stage. In order with 0.7: 30 % of the others are
        // visible.
        assert_eq!(pipelined(stages, 1.0, 1.0), Seconds(8.0));
        assert_eq!(pipelined(stages, 4.0, 1.0), Seconds(5.0));
        assert!((pipelined(stages, 1e9, 1.0).0 - 4.0).abs() < 1e-8);
        assert!((pipelined(stages, 1e9, 0.7).0 - 5.2).abs() < 1e-8);
    }
}

//! Products on the matrix units: how operators are divided into tiles, and the search for the best tiles.
//!
//! Lengths are in tiles of the matrix unit (on Ascend, fractals of 16x16x16). A core processes its share of the
//! product in blocks of `m0 x n0` tiles along the whole depth. A block fits half of L0C, because the other half is
//! being written out. Each step of the depth loads `m0` left and `n0` right tiles. Operands come through L1 from the
//! shared cache, and are loaded repeatedly unless a core's share of them fits half of L1.

use crate::{device::Device, figure::Figure, units::Seconds};
use zoo_graph::{
    Graph, Node, TensorType,
    ops::{Product as Operation, Work},
};

/// A matrix product, or several of the same shape, in tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// Number of products with separate operands: the heads of an attention, for example.
    pub count: u64,
    /// Rows.
    pub m: u64,
    /// Columns.
    pub n: u64,
    /// Depth.
    pub k: u64,
    /// Bytes of the left operand of one product in memory (of a feature map before its windows are unfolded).
    pub left_bytes: u64,
    /// Bytes of the right operand of one product.
    pub right_bytes: u64,
    /// Bytes of one element.
    pub width: u64,
    /// Useful floating-point operations.
    pub flop: u64,
    /// Whether it computes in f32.
    pub f32: bool,
    /// Whether it is a depthwise convolution.
    pub depthwise: bool,
}

/// How a product is divided, and the cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tiling {
    /// Groups of cores; each group computes one product.
    pub groups: u64,
    /// Number of parts of rows, columns and depth over the cores of a group.
    pub split: [u64; 3],
    /// Rows and columns of a block, in tiles.
    pub block: [u64; 2],
    /// Loads of L0 by one core, each with one block and a part of the depth.
    pub loads: u64,
    /// Time of the matrix units.
    pub cube: Seconds,
    /// Time of the transfers between the shared cache and the cores.
    pub l2: Seconds,
    /// Bytes of these transfers.
    pub l2_bytes: u64,
}

impl Tiling {
    /// Both products one after the other, with the division of the first.
    pub fn then(self, next: Self) -> Self {
        Self {
            loads: self.loads + next.loads,
            cube: self.cube + next.cube,
            l2: self.l2 + next.l2,
            l2_bytes: self.l2_bytes + next.l2_bytes,
            ..self
        }
    }
}

/// The product of a node, if it has one.
pub fn product(graph: &Graph, node: &Node, device: &Device) -> Option<Product> {
    let ty = |v: &zoo_graph::ValueId| graph.ty(*v);
    let (inputs, outputs) = (graph.types(&node.inputs), graph.types(&node.outputs));
    let Work::Product { product, .. } = node.op.rules().work(&inputs, &outputs) else { return None };
    let depthwise = is_depthwise(graph, node);
    if depthwise && device.vector.depthwise_instructions.is_some() {
        return None;
    }
    let flop = node.op.cost(&inputs, &outputs).flop.0;
    let [tm, tn, tk] = device.matrix.tile.map(|t| t as u64);
    let up = |n: usize, tile: u64| (n as u64).div_ceil(tile);
    let rows = |images: usize, pixels: usize| {
        if device.matrix.pads_each_image { images as u64 * up(pixels, tm) } else { up(images * pixels, tm) }
    };
    // Depth over the given channels and taps.
    let depth = |channels: usize, taps: usize| {
        if device.matrix.blocked_channels { up(channels, tk) * taps as u64 } else { up(channels * taps, tk) }
    };
    let (left, right) = (ty(node.inputs.first()?), ty(node.inputs.get(1)?));
    let made = |m: u64, n: u64, k: u64| Product {
        count: 1,
        m,
        n,
        k,
        left_bytes: left.bytes().0,
        right_bytes: right.bytes().0,
        width: left.dtype.bytes().0,
        flop,
        f32: left.dtype.bytes().0 == 4,
        depthwise,
    };
    match product {
        Operation::Convolution(conv) => {
            let ([images, _, oh, ow], [out, channels, ..]) = (ty(&node.outputs[0]).shape.nchw()?, right.shape.nchw()?);
            let taps = conv.window.taps();
            let m = rows(images, oh * ow);
            Some(match conv.groups {
                1 => made(m, up(out, tn), depth(channels, taps)),
                groups => {
                    let (blocks, k) = grouped(out, channels, groups, taps, [tn, tk]);
                    made(m * blocks, 1, k)
                }
            })
        }
        Operation::ConvolutionInput(conv) => {
            let [images, channels, h, w] = ty(&node.outputs[0]).shape.nchw()?;
            let [_, out, oh, ow] = left.shape.nchw()?;
            let taps = conv.window.taps();
            // A window that overlaps itself is applied to the whole input grid, with the gradient dilated by zeros.
            let m = if taps == 1 { rows(images, oh * ow) } else { rows(images, h * w) };
            Some(match conv.groups {
                1 => made(m, up(channels, tn), depth(out, taps)),
                groups => {
                    let (blocks, k) = grouped(channels, out / groups, groups, taps, [tn, tk]);
                    made(m * blocks, 1, k)
                }
            })
        }
        Operation::ConvolutionFilter(conv) => {
            let [out, channels, ..] = ty(&node.outputs[0]).shape.nchw()?;
            let [images, _, oh, ow] = right.shape.nchw()?;
            // The output gradient is the left operand: its channels are the rows.
            let made = |m, n, k| Product { left_bytes: right.bytes().0, right_bytes: left.bytes().0, ..made(m, n, k) };
            let taps = conv.window.taps();
            let k =
                if device.matrix.pads_each_image { images as u64 * up(oh * ow, tk) } else { up(images * oh * ow, tk) };
            let columns =
                if device.matrix.blocked_channels { up(channels, tn) * taps as u64 } else { up(channels * taps, tn) };
            Some(match conv.groups {
                1 => made(up(out, tm), columns, k),
                groups => {
                    let (blocks, columns) = grouped(out, channels, groups, taps, [tm, tn]);
                    made(blocks, columns, k)
                }
            })
        }
        // As if all groups had as many rows.
        Operation::Groups(_) => {
            let ([rows, k], experts) = (matrix(left)?, *right.shape.first()?);
            let [_, n] = matrix(ty(&node.outputs[0]))?;
            Some(groups(experts, made(up(rows.div_ceil(experts.max(1)), tm), up(n, tn), up(k, tk))))
        }
        Operation::GroupGradients(_) => {
            let ([rows, k], [_, n]) = (matrix(left)?, matrix(right)?);
            let experts = *ty(&node.outputs[0]).shape.first()?;
            Some(groups(experts, made(up(k, tm), up(n, tn), up(rows.div_ceil(experts.max(1)), tk))))
        }
        Operation::Matrices(op) => {
            let products = op.joined(left, right).ok()?;
            let count = products.count().max(1) as u64;
            let one = made(up(products.m, tm), up(products.n, tn), up(products.k, tk));
            // Each product reads its own matrices, even if others read the same ones.
            let bytes = |elements: usize| elements as u64 * one.width;
            let (left_bytes, right_bytes) = (bytes(products.m * products.k), bytes(products.k * products.n));
            Some(Product { count, left_bytes, right_bytes, ..one })
        }
    }
}

/// Rows and columns of a matrix.
fn matrix(ty: &TensorType) -> Option<[usize; 2]> {
    ty.shape[..].try_into().ok()
}

/// One product for each expert, which reads its share of both operands.
fn groups(experts: usize, one: Product) -> Product {
    let count = experts.max(1) as u64;
    let share = |bytes: u64| bytes.div_ceil(count);
    Product { count, left_bytes: share(one.left_bytes), right_bytes: share(one.right_bytes), ..one }
}

/// Whether a node is a depthwise convolution, or a gradient of one.
pub fn is_depthwise(graph: &Graph, node: &Node) -> bool {
    let (inputs, outputs) = (graph.types(&node.inputs), graph.types(&node.outputs));
    let Work::Product { product, .. } = node.op.rules().work(&inputs, &outputs) else { return false };
    let (conv, filters) = match product {
        Operation::Convolution(conv) | Operation::ConvolutionInput(conv) => (conv, inputs.get(1)),
        Operation::ConvolutionFilter(conv) => (conv, outputs.first()),
        Operation::Matrices(_) | Operation::Groups(_) | Operation::GroupGradients(_) => return false,
    };
    conv.groups > 1 && filters.is_some_and(|filters| filters.shape.get(1) == Some(&1))
}

/// Blocks of output channels of a grouped convolution, and the tiles of input channels and taps that each of them
/// meets. A tile has `of_out` output channels and `of_in` input channels. Groups narrower than a tile share it; the
/// rest of their filters is zero.
fn grouped(out: usize, channels: usize, groups: usize, taps: usize, [of_out, of_in]: [u64; 2]) -> (u64, u64) {
    let [out, channels, groups, taps] = [out, channels, groups, taps].map(|n| n as u64);
    let of_group = (out / groups).max(1);
    if of_group >= of_out {
        return (groups * of_group.div_ceil(of_out), channels.div_ceil(of_in) * taps);
    }
    let groups_in_block = of_out / of_group;
    let met = (groups_in_block * channels).div_ceil(of_in).max(1);
    (out.div_ceil(of_out), met * taps)
}

/// Finds the tiles with which a kernel takes the least time. `time` is its time with the given tiles. All divisions
/// over all numbers of cores are tried, so more cores never make a kernel slower.
pub fn search(product: &Product, device: &Device, tuned: bool, time: &dyn Fn(&Tiling) -> Seconds) -> Tiling {
    let machine = Machine::new(product, device, tuned);
    let cores = device.cores() as u64;
    let first = machine.cost(product, 1, [1, 1, 1], 1);
    let mut best = (time(&first), first);
    for groups in 1..=cores.min(product.count) {
        let cores = cores / groups;
        for cm in 1..=cores.min(product.m) {
            for cn in 1..=(cores / cm).min(product.n) {
                for ck in 1..=(cores / (cm * cn)).min(product.k) {
                    for n0 in [1, 2, 4, 8, 16, 32] {
                        let tiling = machine.cost(product, groups, [cm, cn, ck], n0);
                        let needed = time(&tiling);
                        if needed < best.0 {
                            best = (needed, tiling);
                        }
                    }
                }
            }
        }
    }
    best.1
}

/// Properties of a device that the search needs.
struct Machine {
    /// Cycles of the matrix unit per second, with its efficiency and the product's type.
    cycles_per_s: f64,
    /// Largest number of tiles in a block.
    block_tiles: u64,
    /// Tiles of an operand that fit half of L0.
    load_tiles: u64,
    /// Left and right tiles loaded into L0 per cycle.
    feed: [f64; 2],
    /// Size of half of L1.
    half_l1: u64,
    /// Bytes per second between shared cache and one core.
    l2_per_core: f64,
    /// Bytes of a result tile in f32.
    sum_bytes: u64,
}

impl Machine {
    fn new(product: &Product, device: &Device, tuned: bool) -> Self {
        let [tm, tn, tk] = device.matrix.tile.map(|t| t as u64);
        let clock = device.matrix.clock_ghz.value * 1e9;
        let efficiency = if tuned { &device.matrix.tuned_efficiency } else { &device.matrix.efficiency };
        let share = |applies: bool, figure: &Figure| if applies { figure.value } else { 1.0 };
        let rate =
            share(product.f32, &device.matrix.f32_rate) * share(product.depthwise, &device.matrix.depthwise_rate);
        let kib = |figure: &Figure| (figure.value * 1024.0) as u64;
        let sum_bytes = 4 * tm * tn;
        let buffers = &device.buffers;
        Self {
            cycles_per_s: clock * efficiency.value * rate,
            block_tiles: (kib(&buffers.l0c_kib) / 2 / sum_bytes).max(1),
            load_tiles: kib(&buffers.l0a_kib).min(kib(&buffers.l0b_kib)) / 2 / (2 * tk * tm.max(tn)),
            feed: [
                buffers.l0a_bytes_per_cycle.value / (tm * tk * 2) as f64,
                buffers.l0b_bytes_per_cycle.value / (tk * tn * 2) as f64,
            ],
            half_l1: kib(&buffers.l1_kib) / 2,
            l2_per_core: device.l2.bytes_per_cycle.value * clock,
            sum_bytes,
        }
    }

    fn cost(&self, product: &Product, groups: u64, split: [u64; 3], n0: u64) -> Tiling {
        let [cm, cn, ck] = split;
        let rounds = product.count.div_ceil(groups);
        let (m, n, k) = (product.m.div_ceil(cm), product.n.div_ceil(cn), product.k.div_ceil(ck));
        let n0 = n0.min(n).min(self.block_tiles);
        let m0 = (self.block_tiles / n0).clamp(1, m);
        let blocks = m.div_ceil(m0) * n.div_ceil(n0);
        // A full block computes m0 * n0 tiles per step of the depth, while the next operands are loaded.
        let feed = (m0 as f64 / self.feed[0]).max(n0 as f64 / self.feed[1]);
        let compute = (m * n) as f64 / blocks as f64;
        let cycles = blocks as f64 * k as f64 * compute.max(feed);
        let left = product.left_bytes / (cm * ck);
        let right = product.right_bytes / (cn * ck);
        let left_loads = if left <= self.half_l1 { 1 } else { n.div_ceil(n0) };
        let right_loads = if right <= self.half_l1 { 1 } else { m.div_ceil(m0) };
        // Parts of the depth are summed in the shared cache, in f32.
        let sums = if ck > 1 { m * n * self.sum_bytes } else { 0 };
        let per_core = left * left_loads + right * right_loads + sums;
        Tiling {
            groups,
            split,
            block: [m0, n0],
            loads: rounds * blocks * k.div_ceil((self.load_tiles / m0.max(n0)).max(1)),
            cube: Seconds(rounds as f64 * cycles / self.cycles_per_s),
            l2: Seconds((rounds * per_core) as f64 / self.l2_per_core),
            l2_bytes: product.count * per_core * cm * cn * ck,
        }
    }
}

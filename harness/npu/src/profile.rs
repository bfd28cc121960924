//! One step of a recipe on a device: its time and memory, and their parts.

use crate::{
    NpuError,
    collective::MOST_DEVICES,
    compile::{Compiled, Work, compile},
    device::Device,
    input::{Input, input},
    kernel::{Kernel, Riding, kernels},
    memory::peak_memory,
    price::{Price, Pricing},
    schedule::{Plan, Stream, Timeline},
    traffic::Cache,
    units::Seconds,
};
use indexmap::IndexMap;
use serde::Serialize;
use zoo_graph::{Bytes, Graph, Origin, Phase, passes::Applied};
use zoo_recipe::{Recipe, Span, schema::InputShape};

/// A step on a device.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The graph, compiled for the device.
    pub graph: Graph,
    /// What the passes changed.
    pub applied: Vec<Applied>,
    /// Its kernels.
    pub kernels: Vec<Kernel>,
    /// The price of each kernel.
    pub prices: Vec<Price>,
    /// All events with their times.
    pub timeline: Timeline,
    /// The input side.
    pub input: Input,
    /// Time of one step.
    pub step: Seconds,
    /// Time of one step if it never waited for its input.
    pub device_step: Seconds,
    /// Time of the slowest device, relative to the mean. All devices wait for it.
    pub slowest: f64,
    /// What limits the step.
    pub limit: Limit,
    /// Samples per second on all devices.
    pub images_per_s: f64,
    /// Tokens per sample, if it has any.
    pub sequence: Option<usize>,
    /// Peak FLOP per second of the matrix units of one device, in half precision.
    pub peak_flops: f64,
    /// Memory of one device.
    pub peak_memory: Bytes,
    /// Time before the first step.
    pub compile: Seconds,
    /// Micro-batches of a step, computed one after the other. The timeline shows the kernels of the last one.
    pub accumulate: usize,
    /// Useful floating-point operations of a step, without recomputation.
    pub flop: u64,
    /// Images per step and device.
    pub batch: usize,
    /// Number of devices.
    pub devices: usize,
}

/// Phases of a step, in order.
pub const PHASES: [Phase; 4] = [Phase::Forward, Phase::Loss, Phase::Backward, Phase::Update];

/// What limits a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The device.
    Device,
    /// The input pipeline.
    Input,
}

impl Limit {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Input => "input",
        }
    }
}

/// All kernels with the same operator.
#[derive(Clone, Debug, Serialize)]
pub struct OpCost {
    /// The device's name of the operator.
    pub op: String,
    /// Number of kernels.
    pub count: usize,
    /// Time.
    pub ms: f64,
    /// Share of the device's time.
    pub share: f64,
    /// Time of the matrix units.
    pub cube_ms: f64,
    /// Time of the Vector units.
    pub vector_ms: f64,
    /// Time of device memory.
    pub hbm_ms: f64,
    /// Useful TFLOP per second.
    pub tflops: f64,
    /// Bandwidth of device memory, in gigabytes per second.
    pub gb_per_s: f64,
    /// What limits most of its time.
    pub bound: &'static str,
}

/// Simulates one step.
///
/// # Errors
/// A recipe from which no graph can be built, options that the device lacks, too many devices, or a batch that does
/// not fit.
pub fn profile(recipe: &Recipe, device: &Device, work: Work) -> Result<Profile, NpuError> {
    let (batch, devices) = (recipe.train.batch, recipe.npu.devices);
    if devices == 0 || devices > MOST_DEVICES {
        return Err(NpuError::Devices { found: devices, most: MOST_DEVICES });
    }
    let compiled = compile(recipe, device, work, micro_batch(recipe, work, batch)?)?;
    let peak_memory = peak_memory(&compiled.graph, &recipe.npu);
    let memory = Bytes(device.memory_bytes());
    if peak_memory > memory {
        let largest = largest_batch(recipe, device, work)?;
        return Err(NpuError::Memory { device: device.name.clone(), batch, needed: peak_memory, memory, largest });
    }
    Ok(simulate(recipe, device, compiled, work, peak_memory))
}

/// Simulates a compiled graph.
fn simulate(recipe: &Recipe, device: &Device, compiled: Compiled, work: Work, peak_memory: Bytes) -> Profile {
    let Compiled { graph, applied, flop } = compiled;
    let accumulate = micro_batches(recipe, work);
    let (npu, batch, devices) = (&recipe.npu, recipe.train.batch, recipe.npu.devices);
    let rides = npu.fusion && device.matrix.feeds_vector;
    let (sums, views) = (rides && npu.deep_fusion, &device.operators.views);
    let riding = Riding { elementwise: rides, sums, attention: npu.fused_attention, views };
    let kernels = kernels(&graph, riding);
    let masks = npu.fusion && device.control.relu_mask && work == Work::Train;
    let mut cache = Cache::new(&graph, &kernels, device, masks, npu.trans_data);
    let mut pricing = Pricing::new(device, npu.instruction_reordering, npu.tuned);
    let prices: Vec<Price> = kernels
        .iter()
        .map(|kernel| {
            let traffic = cache.run(&graph, kernel);
            pricing.price(&graph, kernel, &traffic)
        })
        .collect();
    let plan = Plan { graph: &graph, kernels: &kernels, prices: &prices, device, npu, devices, accumulate };
    let timeline = plan.timeline();
    let input = input(recipe, device, work, batch, devices);
    let ms = |figure: &crate::figure::Figure| Seconds(figure.value * 1e-3);
    let slowest = slowest(devices, device.links.spread.value);
    let mut busy = timeline.end * slowest;
    if devices > 1 {
        busy += ms(&device.links.step_ms);
    }
    if !npu.input.prefetch {
        busy += input.copy;
    }
    let longest = busy.max(input.pipeline);
    let limit = if longest == busy { Limit::Device } else { Limit::Input };
    // Device and host synchronise between loops, whatever limits the step.
    let sync = ms(&device.control.sync_ms) / npu.iterations_per_loop.max(1) as f64;
    let step = longest + sync;
    let compile =
        device.control.compile_s.value + device.control.compile_ms_per_operator.value * 1e-3 * graph.nodes.len() as f64;
    Profile {
        images_per_s: (batch * devices) as f64 / step.0,
        sequence: sequence(recipe),
        peak_flops: device.peak_flops(),
        compile: Seconds(compile),
        graph,
        applied,
        kernels,
        prices,
        timeline,
        input,
        step,
        device_step: busy + sync,
        slowest,
        limit,
        peak_memory,
        accumulate,
        flop: flop * accumulate as u64,
        batch,
        devices,
    }
}

/// Time of the slowest of `devices`, relative to the mean: a step ends when all of them end. Times have a logistic
/// distribution, in which the largest of n is `spread * (1 + 1/2 + ... + 1/(n - 1))` above the mean.
fn slowest(devices: usize, spread: f64) -> f64 {
    1.0 + spread * (1..devices).map(|n| 1.0 / n as f64).sum::<f64>()
}

/// Tokens per sample: those of the longest input with indices.
fn sequence(recipe: &Recipe) -> Option<usize> {
    recipe.model.inputs.values().filter_map(InputShape::tokens).max()
}

/// Micro-batches of a step. Without an update, there is only the batch itself.
fn micro_batches(recipe: &Recipe, work: Work) -> usize {
    match work {
        Work::Train => recipe.npu.accumulate.max(1),
        Work::Eval => 1,
    }
}

/// Samples that a device computes at once.
fn micro_batch(recipe: &Recipe, work: Work, batch: usize) -> Result<usize, NpuError> {
    let accumulate = micro_batches(recipe, work);
    if accumulate > batch || !batch.is_multiple_of(accumulate) {
        return Err(NpuError::Accumulate { batch, accumulate });
    }
    Ok(batch / accumulate)
}

/// The largest batch that fits the device; `None` if not even one image fits.
///
/// # Errors
/// As [`compile`].
pub fn largest_batch(recipe: &Recipe, device: &Device, work: Work) -> Result<Option<usize>, NpuError> {
    let memory = Bytes(device.memory_bytes());
    // With a batch of 1, maps of 1x1 have no statistics, so the search starts at 2 and tries 1 last.
    let pieces = micro_batches(recipe, work);
    let fits = |micro: usize| {
        let graph = compile(recipe, device, work, micro)?.graph;
        Ok::<_, NpuError>(peak_memory(&graph, &recipe.npu) <= memory)
    };
    if !fits(2)? {
        return Ok(matches!(fits(1), Ok(true)).then_some(pieces));
    }
    let mut low = 2;
    let mut high = 4;
    while high < 1 << 24 && fits(high)? {
        (low, high) = (high, 2 * high);
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        if fits(middle)? { low = middle } else { high = middle }
    }
    Ok(Some(pieces * low))
}

/// The line of a recipe entry, as `file:line`.
pub(crate) fn line(origin: &Origin) -> String {
    line_of(&origin.span)
}

/// The line of a position in a recipe, as `file:line`.
pub(crate) fn line_of(span: &Span) -> String {
    let (file, line) = (&span.file, span.line);
    // The folder is not needed: a recipe and the recipe that it extends have different names.
    format!("{}:{line}", file.rsplit(['/', '\\']).next().unwrap_or(file))
}

impl Profile {
    /// Shares of the step in which the matrix units, the Vector units and the memory are busy.
    pub fn utilisation(&self) -> [f64; 3] {
        let of_step = |stage: fn(&Price) -> Seconds| (0..self.prices.len()).map(move |k| self.per_step(k, stage));
        let share = |stage| of_step(stage).sum::<Seconds>().0 / self.step.0;
        [share(|p| p.cube), share(|p| p.vector), share(|p| p.hbm)]
    }

    /// Runs of a kernel per step: once per micro-batch, and once for the update.
    pub fn runs(&self, k: usize) -> usize {
        if self.kernels[k].phase == Phase::Update { 1 } else { self.accumulate }
    }

    /// Time of a stage of a kernel, over all its runs in a step.
    pub fn per_step(&self, k: usize, stage: impl Fn(&Price) -> Seconds) -> Seconds {
        stage(&self.prices[k]) * self.runs(k) as f64
    }

    /// Useful TFLOP per second of one device.
    pub fn tflops(&self) -> f64 {
        self.flop as f64 / self.step.0 / 1e12
    }

    /// Share of the peak that the products of the step reach: model FLOP utilisation.
    pub fn flop_utilisation(&self) -> f64 {
        self.tflops() * 1e12 / self.peak_flops
    }

    /// Tokens per second on all devices.
    pub fn tokens_per_s(&self) -> Option<f64> {
        self.sequence.map(|tokens| tokens as f64 * self.images_per_s)
    }

    /// Time of the kernels of each phase; phases without kernels are left out.
    pub fn by_phase(&self) -> Vec<(Phase, Seconds)> {
        let time = |phase: Phase| {
            let kernels = (0..self.kernels.len()).filter(|k| self.kernels[*k].phase == phase);
            (phase, kernels.map(|k| self.per_step(k, |price| price.time)).sum::<Seconds>())
        };
        PHASES.into_iter().map(time).filter(|(_, time)| time.0 > 0.0).collect()
    }

    /// The line of the recipe from which a kernel comes, as `file:line`: that of its first node with an origin.
    pub fn line_of(&self, kernel: &Kernel) -> Option<String> {
        let nodes = kernel.nodes.iter().map(|n| &self.graph.nodes[*n]);
        nodes.filter_map(|node| node.origin.as_ref()).next().map(line)
    }

    /// Costs by operator, the most expensive first.
    pub fn by_operator(&self) -> Vec<OpCost> {
        let mut groups: IndexMap<String, Vec<usize>> = IndexMap::new();
        for (k, kernel) in self.kernels.iter().enumerate() {
            groups.entry(self.kernel_name(kernel)).or_default().push(k);
        }
        let all: f64 = (0..self.prices.len()).map(|k| self.per_step(k, |price| price.time).0).sum();
        let mut costs: Vec<OpCost> = groups.into_iter().map(|(op, kernels)| self.op_cost(op, &kernels, all)).collect();
        costs.sort_by(|a, b| b.ms.total_cmp(&a.ms).then(a.op.cmp(&b.op)));
        costs
    }

    fn op_cost(&self, op: String, kernels: &[usize], all: f64) -> OpCost {
        let runs = |k: usize| self.runs(k) as f64;
        let sum = |stage: fn(&Price) -> f64| kernels.iter().map(|k| runs(*k) * stage(&self.prices[*k])).sum::<f64>();
        let time = sum(|p| p.time.0);
        let per_second = |amount: f64| if time > 0.0 { amount / time } else { 0.0 };
        let mut bounds: IndexMap<&'static str, f64> = IndexMap::new();
        for k in kernels {
            *bounds.entry(self.prices[*k].bound.name()).or_default() += runs(*k) * self.prices[*k].time.0;
        }
        let bound = bounds.iter().max_by(|a, b| a.1.total_cmp(b.1)).map_or("", |(name, _)| *name);
        OpCost {
            op,
            count: kernels.iter().map(|k| self.runs(*k)).sum(),
            ms: 1e3 * time,
            share: if all > 0.0 { time / all } else { 0.0 },
            cube_ms: 1e3 * sum(|p| p.cube.0),
            vector_ms: 1e3 * sum(|p| p.vector.0),
            hbm_ms: 1e3 * sum(|p| p.hbm.0),
            tflops: per_second(sum(|p| p.flop as f64)) / 1e12,
            gb_per_s: per_second(sum(|p| p.bytes as f64)) / 1e9,
            bound,
        }
    }

    /// Operators of a kernel, joined: `Conv2DBackpropInput+AddN+ReluGrad`.
    pub fn kernel_name(&self, kernel: &Kernel) -> String {
        let names: Vec<&str> = kernel.nodes.iter().map(|n| self.graph.nodes[*n].op.name()).collect();
        names.join("+")
    }

    /// Events of one stream.
    pub fn stream(&self, stream: Stream) -> impl Iterator<Item = &crate::schedule::Event> {
        self.timeline.events.iter().filter(move |event| event.stream == stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_waits_for_the_slowest() {
        assert_eq!(slowest(1, 0.1), 1.0);
        assert!((slowest(2, 0.1) - 1.1).abs() < 1e-12);
        assert!((slowest(4, 0.1) - (1.0 + 0.1 * (1.0 + 0.5 + 1.0 / 3.0))).abs() < 1e-12);
    }
}

//! What a device's arithmetic does to the step: every node against the engine's own f64 run.
//!
//! Three runs of the step under the golden's conditions: in f64; with the device's arithmetic; and with the device's
//! significands but unbounded exponents. The error of the third against the first is what rounding must cost. A node whose
//! error on the device is more than [`TOLERANCE`] times that loses something to the range: it underflows or overflows.

pub mod bisect;

use crate::{
    GoldenError,
    check::{CheckOptions, bound, under_conditions},
    compare::{Precision, relative_l2},
    manifest::Golden,
    probe::to_f64,
    report::Verdict,
    run::{Setup, inputs, scalars, set_weights},
};
use candle_core::Tensor;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use zoo_datasets::hash::sample_positions;
use zoo_engine::{
    Arithmetic, Findings, Kernels, Observer, Options, Scalars, Step,
    simulate::{Range, Subnormals, Tally},
};
use zoo_graph::{DType, Graph, Node, Op, Phase, Source, ValueId};
use zoo_recipe::Recipe;

/// How much more than rounding must cost a node's error may be.
pub const TOLERANCE: f64 = 3.0;
/// Errors below this are rounding of f32 and the order of its sums.
const F32_LEVEL: f64 = 1e-6;
/// Elements of a value that are compared: what a run keeps of each node, whatever its size.
const SAMPLES: usize = 2048;
/// Largest loss scale that is considered, as a power of two: what MindSpore's dynamic scale starts with.
const LARGEST_SCALE: i32 = 24;
/// Powers of two between the largest gradient and the largest number that a recommended loss scale leaves.
const HEADROOM: i32 = 2;

/// What a device is asked to compute.
pub struct DeviceOptions<'a> {
    /// Its name.
    pub device: &'a str,
    /// Its arithmetic.
    pub arithmetic: &'a Arithmetic,
    /// The loss scale of the step.
    pub loss_scale: f64,
    /// How the engine computes.
    pub engine: Options,
}

/// A node of the step on the device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeReport {
    /// Name of the node.
    pub node: String,
    /// Its operator.
    pub op: &'static str,
    /// Element type of its result.
    pub dtype: DType,
    /// Relative error against f64.
    pub error: f64,
    /// What rounding to the device's significand must cost.
    pub expected: f64,
    /// Share of the elements other than zero that became zero.
    pub underflow: f64,
    /// Share of the elements beyond the largest number.
    pub overflow: f64,
    /// How many elements of the exact result have which binary exponent.
    pub exponents: BTreeMap<i32, u64>,
    /// The verdict.
    pub verdict: Verdict,
    /// Part of the step.
    #[serde(skip)]
    phase: Phase,
    /// Line of the recipe.
    #[serde(skip)]
    line: Option<String>,
    /// Whether everything that it depends on passes.
    #[serde(skip)]
    own: bool,
}

/// What a loss scale saves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScaleReport {
    /// The scale of this step.
    pub present: f64,
    /// Share of the gradients' elements that vanish without a scale.
    pub lost_at_1: f64,
    /// The same with the present one.
    pub lost_at_present: f64,
    /// The scale that loses least without coming near an overflow.
    pub best: f64,
    /// The share lost with it.
    pub lost_at_best: f64,
}

/// The nodes of a part of the step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseReport {
    /// The part.
    pub stage: &'static str,
    /// Nodes compared.
    pub tensors: usize,
    /// Nodes that fail.
    pub failed: usize,
    /// The node that is farthest off, by its error over the expected one.
    pub worst: Option<Worst>,
    /// The verdict.
    pub verdict: Verdict,
}

/// The node of a stage that is farthest off.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// The node.
    pub name: String,
    /// Its error.
    pub error: f64,
    /// What rounding must cost.
    pub floor: f64,
    /// One over the other.
    pub ratio: f64,
}

/// The first node that fails although all it depends on passes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FirstLoss {
    /// Part of the step.
    pub stage: &'static str,
    /// The node's result.
    pub tensor: String,
    /// The node.
    pub node: String,
    /// Its operator.
    pub op: &'static str,
    /// Always: the loss is this node's own.
    pub local: bool,
    /// Line of the recipe that made it.
    pub line: Option<String>,
}

/// What the device does to the step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceReport {
    /// Version of this form.
    pub schema_version: u32,
    /// The recipe.
    pub recipe: String,
    /// The device.
    pub device: String,
    /// The verdict.
    pub verdict: Verdict,
    /// By part of the step.
    pub stages: Vec<PhaseReport>,
    /// Where it begins.
    pub first_divergence: Option<FirstLoss>,
    /// What a loss scale saves; absent where no gradient is half precision.
    pub loss_scale: Option<ScaleReport>,
    /// Every node, in order.
    pub nodes: Vec<NodeReport>,
}

/// Runs the step on the device and judges every node.
///
/// # Errors
/// A recipe that makes no step, or a step that the device cannot compute.
pub fn check_device(
    recipe: &Recipe,
    golden: &Golden,
    options: &DeviceOptions<'_>,
    progress: &mut dyn FnMut(&str),
) -> Result<DeviceReport, GoldenError> {
    let golden = &bound(recipe, golden)?;
    let recipe = &under_conditions(recipe, golden);
    progress("step in f64");
    let exact = exact(recipe, golden, options)?;
    let setup = setup(recipe, golden, options, Precision::F32)?;
    let run = |range: Range| {
        let arithmetic = Arithmetic { range, skips_overflow: false, ..options.arithmetic.clone() };
        OnDevice::run(&setup, golden, options, &arithmetic, &exact)
    };
    progress("step with unbounded exponents");
    let unbounded = run(Range::Unbounded)?;
    progress("step on the device");
    let device = run(options.arithmetic.range)?;
    Ok(judge(recipe, options, &exact, &device, &unbounded))
}

fn setup(
    recipe: &Recipe,
    golden: &Golden,
    options: &DeviceOptions<'_>,
    precision: Precision,
) -> Result<Setup, GoldenError> {
    Setup::new(recipe, golden, &CheckOptions { precision, engine: options.engine })
}

/// The exact step: samples and exponents by value.
fn exact(recipe: &Recipe, golden: &Golden, options: &DeviceOptions<'_>) -> Result<Watch, GoldenError> {
    let setup = setup(recipe, golden, options, Precision::F64)?;
    let engine = Options { kernels: Kernels::Reference, ..options.engine };
    let mut step = Step::new(setup.graph().clone(), engine)?;
    set_weights(&mut step, golden, false)?;
    let graph = step.graph().clone();
    let names = Names::of(&graph);
    let mut watch = Watch { counts_exponents: true, ..Watch::default() };
    for (v, value) in graph.values.iter().enumerate().filter(|(_, value)| value.ty.dtype.is_float()) {
        let name = names.own(ValueId(v));
        watch.ask(ValueId(v), name, name, value.ty.shape.numel());
    }
    step.run(&inputs(golden, setup.graph())?, scalars(golden, 0), &mut watch)?;
    Ok(watch)
}

/// A step on the device: its graph, samples by value of the exact step, and what it ran into.
struct OnDevice {
    graph: Graph,
    names: Names,
    watch: Watch,
    findings: Findings,
    /// Whether a value carries the loss scale.
    scaled: Vec<bool>,
}

impl OnDevice {
    fn run(
        setup: &Setup,
        golden: &Golden,
        options: &DeviceOptions<'_>,
        arithmetic: &Arithmetic,
        exact: &Watch,
    ) -> Result<Self, GoldenError> {
        let engine = options.engine.without_fusion();
        let mut step = Step::simulated(setup.graph().clone(), engine, arithmetic)?;
        set_weights(&mut step, golden, false)?;
        let graph = step.graph().clone();
        let names = Names::of(&graph);
        let mut watch = Watch::default();
        for (v, value) in graph.values.iter().enumerate().filter(|(_, value)| value.ty.dtype.is_float()) {
            let (own, exactly) = (names.own(ValueId(v)), names.exact(ValueId(v)));
            if exact.samples.contains_key(exactly) {
                watch.ask(ValueId(v), own, exactly, value.ty.shape.numel());
            }
        }
        let scalars = Scalars { loss_scale: options.loss_scale, ..scalars(golden, 0) };
        step.run(&inputs(golden, setup.graph())?, scalars, &mut watch)?;
        let findings = step.findings().cloned().unwrap_or_default();
        Ok(Self { scaled: scaled(&graph), graph, names, watch, findings })
    }

    /// Relative error of a value, on the samples.
    fn error(&self, v: ValueId, exact: &Watch, loss_scale: f64) -> Option<f64> {
        let truth = exact.samples.get(self.names.exact(v))?;
        let found = self.watch.samples.get(self.names.own(v))?;
        let by = if self.scaled[v.0] { 1.0 / loss_scale } else { 1.0 };
        let found: Vec<f64> = found.iter().map(|x| x * by).collect();
        let norm = truth.iter().map(|x| x * x).sum::<f64>().sqrt();
        let error = if norm > 0.0 {
            relative_l2(&found, truth, norm, truth.len())
        } else if found.iter().all(|x| *x == 0.0) {
            0.0
        } else {
            return None;
        };
        Some(if error.is_nan() { f64::INFINITY } else { error })
    }
}

/// Values whose numbers are multiplied by the loss scale: all that is computed from the scaled seed of the backward pass,
/// until it is divided again. Every gradient is linear in the one that it comes from.
fn scaled(graph: &Graph) -> Vec<bool> {
    let mut scaled = vec![false; graph.values.len()];
    for node in &graph.nodes {
        let carries = match &node.op {
            Op::LossScale(op) => !op.inverse,
            _ => node.inputs.iter().any(|v| scaled[v.0]),
        };
        node.outputs.iter().for_each(|v| scaled[v.0] = carries);
    }
    scaled
}

/// Names of a graph's values that hold in every graph of the same step.
struct Names {
    /// The value's own.
    own: Vec<String>,
    /// The one that it has in the exact step, which knows no casts, layouts or loss scale.
    exact: Vec<String>,
}

impl Names {
    fn of(graph: &Graph) -> Self {
        // Layers without a name of their own share that of their line, so calls are counted.
        let mut calls: HashMap<&str, usize> = HashMap::new();
        let mut call = Vec::new();
        for node in &graph.nodes {
            let count = calls.entry(&node.name).or_default();
            call.push(*count);
            *count += 1;
        }
        let own = |v: ValueId| match graph.value(v).source {
            Source::Node(n, i) => format!("{} {}#{i}", graph.node(n).name, call[n.0]),
            Source::Variable(id) => format!("variable {}", graph.variable(id).name),
            Source::Input(i) => format!("input {}", graph.inputs[i].name),
        };
        let own: Vec<String> = (0..graph.values.len()).map(|v| own(ValueId(v))).collect();
        let converts = |node: &&Node| matches!(node.op, Op::Cast(_) | Op::TransData(_) | Op::LossScale(_));
        let exact = |mut v: ValueId| {
            while let Some(node) = graph.producer(v).filter(converts) {
                v = node.inputs[0];
            }
            own[v.0].clone()
        };
        let exact = (0..graph.values.len()).map(|v| exact(ValueId(v))).collect();
        Self { own, exact }
    }

    fn own(&self, v: ValueId) -> &str {
        &self.own[v.0]
    }

    fn exact(&self, v: ValueId) -> &str {
        &self.exact[v.0]
    }
}

fn judge(
    recipe: &Recipe,
    options: &DeviceOptions<'_>,
    exact: &Watch,
    device: &OnDevice,
    unbounded: &OnDevice,
) -> DeviceReport {
    let graph = &device.graph;
    let mut failing = vec![false; graph.values.len()];
    let mut nodes = Vec::new();
    for (n, node) in graph.nodes.iter().enumerate() {
        let tally = device.findings.tallies.get(n).copied().unwrap_or_default();
        let Some(report) = judge_node(graph, node, tally, exact, device, unbounded, options.loss_scale) else {
            let inherits = node.inputs.iter().any(|v| failing[v.0]);
            node.outputs.iter().for_each(|v| failing[v.0] = inherits);
            continue;
        };
        let own = !node.inputs.iter().any(|v| failing[v.0]);
        let fails = report.verdict == Verdict::Fail;
        node.outputs.iter().for_each(|v| failing[v.0] = fails);
        nodes.push(NodeReport { own, ..report });
    }
    let stages: Vec<PhaseReport> = [Phase::Forward, Phase::Loss, Phase::Backward, Phase::Update]
        .into_iter()
        .map(|phase| summary(stage(phase), nodes.iter().filter(|node| node.phase == phase)))
        .collect();
    let first = nodes.iter().find(|node| node.verdict == Verdict::Fail && node.own);
    let first_divergence = first.map(|node| FirstLoss {
        stage: stage(node.phase),
        tensor: node.node.clone(),
        node: node.node.clone(),
        op: node.op,
        local: true,
        line: node.line.clone(),
    });
    let failed = nodes.iter().any(|node| node.verdict == Verdict::Fail);
    DeviceReport {
        schema_version: 1,
        recipe: recipe.name.clone(),
        device: options.device.to_owned(),
        verdict: if failed { Verdict::Fail } else { Verdict::Pass },
        loss_scale: scales(&nodes, options),
        stages,
        first_divergence,
        nodes,
    }
}

/// `None` for nodes that have no counterpart in the exact step.
fn judge_node(
    graph: &Graph,
    node: &Node,
    tally: Tally,
    exact: &Watch,
    device: &OnDevice,
    unbounded: &OnDevice,
    loss_scale: f64,
) -> Option<NodeReport> {
    let v = *node.outputs.first()?;
    let errors = node.outputs.iter().filter_map(|v| {
        let found = device.error(*v, exact, loss_scale)?;
        let expected = unbounded.error(*v, exact, loss_scale)?;
        Some((found, expected))
    });
    let worse = |a: &(f64, f64), b: &(f64, f64)| (a.0 / a.1.max(F32_LEVEL)).total_cmp(&(b.0 / b.1.max(F32_LEVEL)));
    let (error, expected) = errors.max_by(worse)?;
    let elements: usize = node.outputs.iter().map(|v| graph.ty(*v).shape.numel()).sum();
    let share = |count: u64, of: u64| if of == 0 { 0.0 } else { count as f64 / of as f64 };
    let fails = tally.overflowed > 0 || error > TOLERANCE * expected.max(F32_LEVEL);
    Some(NodeReport {
        node: node.name.clone(),
        op: node.op.name(),
        dtype: graph.ty(v).dtype,
        error,
        expected,
        underflow: share(tally.flushed, tally.nonzero),
        overflow: share(tally.overflowed, elements as u64),
        exponents: exact.exponents.get(device.names.exact(v)).cloned().unwrap_or_default(),
        verdict: if fails { Verdict::Fail } else { Verdict::Pass },
        phase: node.phase,
        line: node.origin.as_ref().map(|origin| origin.span.to_string()),
        own: true,
    })
}

fn stage(phase: Phase) -> &'static str {
    match phase {
        Phase::Forward => "forward",
        Phase::Loss => "loss",
        Phase::Backward => "backward",
        Phase::Update => "update",
    }
}

fn summary<'n>(stage: &'static str, nodes: impl Iterator<Item = &'n NodeReport>) -> PhaseReport {
    let (mut tensors, mut failed, mut worst) = (0, 0, None::<Worst>);
    for node in nodes {
        tensors += 1;
        failed += usize::from(node.verdict == Verdict::Fail);
        let floor = node.expected.max(F32_LEVEL);
        let ratio = node.error / floor;
        if worst.as_ref().is_none_or(|worst| ratio > worst.ratio) {
            worst = Some(Worst { name: node.node.clone(), error: node.error, floor, ratio });
        }
    }
    let verdict = match (tensors, failed) {
        (0, _) => Verdict::Absent,
        (_, 0) => Verdict::Pass,
        _ => Verdict::Fail,
    };
    PhaseReport { stage, tensors, failed, worst, verdict }
}

/// What each loss scale would lose, from the exponents of the exact gradients that are half precision on the device.
fn scales(nodes: &[NodeReport], options: &DeviceOptions<'_>) -> Option<ScaleReport> {
    let gradients = nodes.iter().filter(|node| node.phase == Phase::Backward);
    let mut exponents: BTreeMap<i32, u64> = BTreeMap::new();
    let mut half = None;
    for node in gradients.filter(|node| matches!(node.dtype, DType::F16 | DType::Bf16)) {
        half = Some(node.dtype);
        for (exponent, count) in &node.exponents {
            *exponents.entry(*exponent).or_default() += count;
        }
    }
    let flushes = matches!(options.arithmetic.range, Range::Format { subnormals: Subnormals::Flush, .. });
    // Below 2^smallest a number becomes zero, from 2^largest on it overflows.
    let (smallest, largest) = match (half?, flushes) {
        (DType::Bf16, true) => (-126, 128),
        (DType::Bf16, false) => (-134, 128),
        (_, true) => (-14, 16),
        (_, false) => (-25, 16),
    };
    let all: u64 = exponents.values().sum();
    let count = |of: &dyn Fn(i32) -> bool| exponents.iter().filter(|(e, _)| of(**e)).map(|(_, n)| n).sum::<u64>();
    let lost = |power: i32| count(&|e| e + power < smallest) as f64 / all.max(1) as f64;
    let near_overflow = |power: i32| count(&|e| e + power >= largest - HEADROOM) > 0;
    let safe = (0..=LARGEST_SCALE).take_while(|power| *power == 0 || !near_overflow(*power));
    let most = safe.last().unwrap_or(0);
    let best = (0..=most).find(|power| lost(*power) <= lost(most) + 1e-4).unwrap_or(most);
    Some(ScaleReport {
        present: options.loss_scale,
        lost_at_1: lost(0),
        lost_at_present: lost(options.loss_scale.log2().round() as i32),
        best: 2f64.powi(best),
        lost_at_best: lost(best),
    })
}

/// Keeps samples of every value that it was asked for, and counts exponents.
#[derive(Default)]
struct Watch {
    counts_exponents: bool,
    wanted: HashMap<ValueId, (String, Vec<usize>)>,
    samples: HashMap<String, Vec<f64>>,
    exponents: HashMap<String, BTreeMap<i32, u64>>,
}

impl Watch {
    /// Asks for the elements of a value that the exact value `exact` is sampled at.
    fn ask(&mut self, v: ValueId, name: &str, exact: &str, numel: usize) {
        let positions = match numel <= SAMPLES {
            true => (0..numel).collect(),
            false => sample_positions(exact, numel, SAMPLES).collect(),
        };
        self.wanted.insert(v, (name.to_owned(), positions));
    }
}

impl Observer for Watch {
    fn wants(&self, value: ValueId) -> bool {
        self.wanted.contains_key(&value)
    }

    fn observe(&mut self, value: ValueId, tensor: &Tensor) {
        let Some((name, positions)) = self.wanted.get(&value) else { return };
        // A value that cannot be read stays without samples, and its node is not compared.
        let Ok(values) = to_f64(tensor) else { return };
        if self.counts_exponents {
            let counts = self.exponents.entry(name.clone()).or_default();
            for x in values.iter().filter(|x| **x != 0.0 && x.is_finite()) {
                *counts.entry(exponent(*x)).or_default() += 1;
            }
        }
        let samples = positions.iter().map(|p| values.get(*p).copied().unwrap_or(f64::NAN)).collect();
        self.samples.insert(name.clone(), samples);
    }
}

/// The `e` of `2^e <= |x| < 2^(e+1)`; numbers below f64's normal ones count as its smallest.
fn exponent(x: f64) -> i32 {
    ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_those_of_the_powers_below() {
        assert_eq!([1.0, 1.99, 2.0, -0.5, 65504.0].map(exponent), [0, 0, 1, -1, 15]);
        assert_eq!(exponent(2f64.powi(-24)), -24);
    }
}

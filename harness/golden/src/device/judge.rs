//! The verdict on every node of a step on a device.

use super::{DeviceOptions, rounding::Exponents, runs::OnDevice, scaled};
use crate::report::{Divergence, Item, Stage, StageReport, Verdict};
use serde::Serialize;
use std::collections::HashMap;
use zoo_engine::simulate::Tally;
use zoo_graph::{DType, Graph, Node, NodeId, Phase};

/// The largest relative change of a number, and therefore of a tensor, by one rounding to a type: half the distance
/// between neighbours. Anything larger is lost to the range.
fn unit_roundoff(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 1.0 / 2048.0,
        DType::Bf16 => 1.0 / 256.0,
        DType::F32 | DType::U32 => 1.0 / (1u64 << 24) as f64,
        DType::F64 => 1.0 / (1u64 << 53) as f64,
    }
}

/// A node of the step on the device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeReport {
    /// Name of the node.
    pub node: String,
    /// Its operator.
    pub op: &'static str,
    /// Part of the step.
    pub stage: Stage,
    /// Element type of its result.
    pub dtype: DType,
    /// Relative distance between the result that the device stores and the one that the node computed; null in JSON
    /// if not finite.
    pub error: f64,
    /// The largest error of rounding to this type.
    pub expected: f64,
    /// The worst element of the kernel's f32 result, before the device rounds. Absent if the operands are already
    /// invalid, and in a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Item>,
    /// Share of the elements other than zero that became zero.
    pub underflow: f64,
    /// Share of the elements that exceed the largest number.
    pub overflow: f64,
    /// Histogram of the binary exponents of the result, without the loss scale and with an unbounded range.
    pub exponents: Exponents,
    /// Binary exponent of the factor on the results on the device: that of the loss scale for gradients.
    pub scaled_by: i32,
    /// The verdict.
    pub verdict: Verdict,
    /// Line of the recipe.
    pub line: Option<String>,
    /// Whether everything that it depends on passes.
    pub own: bool,
}

impl NodeReport {
    /// Whether the error of its kernel exceeds rounding in f32.
    fn kernel_fails(&self) -> bool {
        self.kernel.as_ref().is_some_and(|kernel| kernel.ratio.is_nan() || kernel.ratio > 1.0)
    }

    /// The item of the node in a stage: its error relative to the largest error of rounding.
    fn item(&self) -> Item {
        let item = Item::measured(&self.node, self.error, self.expected);
        // An overflow fails even if its error is small.
        match self.overflow > 0.0 {
            true => Item {
                ratio: f64::INFINITY,
                note: Some(format!("{:.2} % of its elements overflow", 100.0 * self.overflow)),
                ..item
            },
            false => item,
        }
    }
}

/// All nodes of the step on the device, in order. `kernels` are the nodes that were judged.
pub(super) fn nodes(
    options: &DeviceOptions<'_>,
    device: &OnDevice,
    mut kernels: HashMap<NodeId, Item>,
) -> Vec<NodeReport> {
    let graph = &device.graph;
    let scaled = scaled(graph);
    let mut failing = vec![false; graph.values.len()];
    let mut nodes = Vec::new();
    for (n, node) in graph.nodes.iter().enumerate() {
        let tally = device.findings.tallies.get(n).copied().unwrap_or_default();
        let inherits = node.inputs.iter().any(|v| failing[v.0]);
        let kernel = kernels.remove(&NodeId(n)).filter(|_| !inherits);
        let report = judge(graph, node, tally, device, kernel).map(|report| NodeReport {
            own: !inherits,
            scaled_by: if scaled[node.outputs[0].0] { options.loss_scale.log2().round() as i32 } else { 0 },
            ..report
        });
        let fails = report.as_ref().map_or(inherits, |report| report.verdict == Verdict::Fail);
        node.outputs.iter().for_each(|v| failing[v.0] = fails);
        nodes.extend(report);
    }
    nodes
}

/// `None` for nodes without a floating-point result.
fn judge(graph: &Graph, node: &Node, tally: Tally, device: &OnDevice, kernel: Option<Item>) -> Option<NodeReport> {
    let floats = || node.outputs.iter().filter(|v| graph.ty(**v).dtype.is_float());
    let first = floats().next()?;
    let errors = floats().map(|v| (device.errors[v.0].unwrap_or(0.0), unit_roundoff(graph.ty(*v).dtype)));
    let ratio = |(error, expected): &(f64, f64)| if error.is_nan() { f64::INFINITY } else { error / expected };
    let (error, expected) = errors.max_by(|a, b| ratio(a).total_cmp(&ratio(b)))?;
    let elements: usize = node.outputs.iter().map(|v| graph.ty(*v).shape.numel()).sum();
    let share = |count: u64, of: u64| if of == 0 { 0.0 } else { count as f64 / of as f64 };
    let loses = tally.overflowed > 0 || ratio(&(error, expected)) > 1.0;
    let report = NodeReport {
        node: node.name.clone(),
        op: node.op.name(),
        stage: stage(node.phase),
        dtype: graph.ty(*first).dtype,
        error,
        expected,
        kernel,
        underflow: share(tally.flushed, tally.nonzero),
        overflow: share(tally.overflowed, elements as u64),
        exponents: Exponents::new(),
        scaled_by: 0,
        verdict: Verdict::Pass,
        line: node.origin.as_ref().map(|origin| origin.span.to_string()),
        own: true,
    };
    let verdict = if loses || report.kernel_fails() { Verdict::Fail } else { Verdict::Pass };
    Some(NodeReport { verdict, ..report })
}

/// Sets the exponents of the nodes from the exponents of all values.
pub(super) fn with_exponents(nodes: &mut [NodeReport], graph: &Graph, exponents: &[Exponents]) {
    let floats = graph.nodes.iter().filter_map(|node| node.outputs.iter().find(|v| graph.ty(**v).dtype.is_float()));
    for (node, value) in nodes.iter_mut().zip(floats) {
        node.exponents = exponents[value.0].iter().map(|(e, count)| (e - node.scaled_by, *count)).collect();
    }
}

/// The stage that reports a phase of the step.
pub(crate) fn stage(phase: Phase) -> Stage {
    match phase {
        Phase::Forward => Stage::Forward,
        Phase::Loss => Stage::Loss,
        Phase::Backward => Stage::Backward,
        Phase::Update => Stage::Update,
    }
}

/// The stages: the kernels, and the parts of the step. No error may exceed its bound.
pub(super) fn stages(nodes: &[NodeReport]) -> impl Iterator<Item = StageReport> {
    let kernels = nodes.iter().filter_map(|node| node.kernel.clone()).collect();
    let parts = [Stage::Forward, Stage::Loss, Stage::Backward, Stage::Update].map(|stage| {
        let items = nodes.iter().filter(|node| node.stage == stage).map(NodeReport::item).collect();
        (stage, items)
    });
    [(Stage::Kernels, kernels)].into_iter().chain(parts).map(|(stage, items)| StageReport::of(stage, items, 1.0, None))
}

/// The first node that fails although everything that it depends on passes.
pub(super) fn first_divergence(nodes: &[NodeReport]) -> Option<Divergence> {
    let node = nodes.iter().find(|node| node.verdict == Verdict::Fail && node.own)?;
    let kernel = node.kernel.as_ref().filter(|_| node.kernel_fails());
    Some(Divergence {
        stage: if kernel.is_some() { Stage::Kernels } else { node.stage },
        tensor: node.node.clone(),
        node: Some(node.node.clone()),
        local: Some(true),
        suspects: vec![node.node.clone()],
        line: node.line.clone(),
        hints: vec![kernel.and_then(|kernel| kernel.note.clone()).unwrap_or_else(|| loss(node))],
    })
}

/// Describes what a node loses.
fn loss(node: &NodeReport) -> String {
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let mut what = Vec::new();
    if node.overflow > 0.0 {
        what.push(format!("{} of its elements overflow", percent(node.overflow)));
    }
    if node.underflow > 0.0 {
        what.push(format!("{} of its elements become zero", percent(node.underflow)));
    }
    what.push(format!("its error is {:.1e}, where rounding costs {:.1e} at most", node.error, node.expected));
    format!("{} in {}: {}", node.op, node.dtype, what.join(", "))
}

//! The verdict on every node of a device's step.

use super::{
    DeviceOptions, TOLERANCE,
    runs::OnDevice,
    watch::{Exponents, Watch},
};
use crate::report::{Divergence, Item, Stage, StageReport, Verdict};
use serde::Serialize;
use zoo_engine::simulate::Tally;
use zoo_graph::{
    DType, Graph, Node, Phase,
    ops::{LongestStep, Update},
};

/// Errors below this are rounding of f32 and the order of its sums.
pub(crate) const F32_LEVEL: f64 = 1e-6;

/// Up to so many elements it is chance how much of a rounding's bound a run shows: then the bound itself is expected,
/// that of the narrowest type in the step, since what is read was rounded to it.
const FEW: usize = 16;

/// The most that one rounding changes a number, relative to it; nothing for types whose rounding is below
/// [`F32_LEVEL`].
pub(super) fn one_rounding(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 1.0 / 2048.0,
        DType::Bf16 => 1.0 / 256.0,
        DType::F32 | DType::F64 | DType::U32 => 0.0,
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
    /// Relative error against f64; as JSON null where it is not finite.
    pub error: f64,
    /// What rounding to the device's significand must cost.
    pub expected: f64,
    /// Share of the elements other than zero that became zero.
    pub underflow: f64,
    /// Share of the elements beyond the largest number.
    pub overflow: f64,
    /// How many elements of the exact result have which binary exponent.
    pub exponents: Exponents,
    /// What these exponents are multiplied by on the device, as a power of two: that of the loss scale, for gradients.
    pub scaled_by: i32,
    /// The verdict.
    pub verdict: Verdict,
    /// Line of the recipe.
    pub line: Option<String>,
    /// Whether everything that it depends on passes.
    pub own: bool,
}

impl NodeReport {
    /// The node in a stage's report: its error in what rounding must cost.
    fn item(&self) -> Item {
        let floor = self.expected.max(F32_LEVEL);
        let ratio = ratio(self.error, self.expected);
        // An overflow fails, however small the error that it makes.
        let note = (self.overflow > 0.0).then(|| format!("{:.2} % of its elements overflow", 100.0 * self.overflow));
        let ratio = if note.is_some() { f64::INFINITY } else { ratio };
        Item { ratio, note, ..Item::measured(&self.node, self.error, floor) }
    }
}

/// An error over the one that must be expected.
fn ratio(error: f64, expected: f64) -> f64 {
    let floor = expected.max(F32_LEVEL);
    match error {
        _ if error.is_nan() => f64::INFINITY,
        // The truth is zero, and rounding alone makes something of it.
        _ if floor.is_infinite() => 1.0,
        _ => error / floor,
    }
}

/// All nodes of the device's step, in order.
pub(super) fn nodes(
    options: &DeviceOptions<'_>,
    exact: &Watch,
    device: &OnDevice,
    unbounded: &OnDevice,
) -> Vec<NodeReport> {
    let graph = &device.graph;
    let mut failing = vec![false; graph.values.len()];
    let mut expected = vec![0.0; graph.values.len()];
    let mut nodes = Vec::new();
    for (n, node) in graph.nodes.iter().enumerate() {
        let tally = device.findings.tallies.get(n).copied().unwrap_or_default();
        let inherits = node.inputs.iter().any(|v| failing[v.0]);
        let report = judge(graph, node, tally, exact, device, unbounded, &expected).map(|report| NodeReport {
            own: !inherits,
            scaled_by: match device.scaled[node.outputs[0].0] {
                true => options.loss_scale.log2().round() as i32,
                false => 0,
            },
            ..report
        });
        let fails = report.as_ref().map_or(inherits, |report| report.verdict == Verdict::Fail);
        for v in &node.outputs {
            failing[v.0] = fails;
            expected[v.0] = report.as_ref().map_or(0.0, |report| report.expected);
        }
        nodes.extend(report);
    }
    nodes
}

/// `None` for nodes without a floating-point result.
fn judge(
    graph: &Graph,
    node: &Node,
    tally: Tally,
    exact: &Watch,
    device: &OnDevice,
    unbounded: &OnDevice,
    known: &[f64],
) -> Option<NodeReport> {
    let v = *node.outputs.iter().find(|v| graph.ty(**v).dtype.is_float())?;
    let floats = node.outputs.iter().filter(|v| graph.ty(**v).dtype.is_float());
    let errors = floats.map(|v| {
        let rounding = if graph.ty(*v).shape.numel() <= FEW { device.one_rounding } else { 0.0 };
        let chance = match node.op.update() {
            Some(Update::Optimizer { group, longest: LongestStep::Rates(_), .. }) if *v == node.outputs[0] => {
                let truth = exact.samples(device.names.exact(*v)).unwrap_or_default();
                let gradient = node.inputs.last().map_or(0.0, |gradient| known[gradient.0]);
                flipped_signs(truth, gradient, group.lr_scale * device.learning_rate)
            }
            Some(Update::Average) => known[node.inputs[1].0],
            Some(Update::Optimizer { .. } | Update::Statistics) | None => 0.0,
        };
        (device.error(*v, exact), unbounded.error(*v, exact).max(rounding).max(chance))
    });
    let (error, expected) = errors.max_by(|a, b| ratio(a.0, a.1).total_cmp(&ratio(b.0, b.1)))?;
    let elements: usize = node.outputs.iter().map(|v| graph.ty(*v).shape.numel()).sum();
    let share = |count: u64, of: u64| if of == 0 { 0.0 } else { count as f64 / of as f64 };
    let fails = tally.overflowed > 0 || ratio(error, expected) > TOLERANCE;
    Some(NodeReport {
        node: node.name.clone(),
        op: node.op.name(),
        stage: stage(node.phase),
        dtype: graph.ty(v).dtype,
        error,
        expected,
        underflow: share(tally.flushed, tally.nonzero),
        overflow: share(tally.overflowed, elements as u64),
        exponents: exact.exponents(device.names.exact(v)).cloned().unwrap_or_default(),
        scaled_by: 0,
        verdict: if fails { Verdict::Fail } else { Verdict::Pass },
        line: node.origin.as_ref().map(|origin| origin.span.to_string()),
        own: true,
    })
}

/// The relative error of parameters `truth` after a first step of Adam whose gradients are off by `error`: each element
/// moves by `step` in the direction of its gradient's sign, and that share of the signs, and one more, is chance; at
/// worst all of them.
fn flipped_signs(truth: &[f64], error: f64, step: f64) -> f64 {
    let flipped = ((error * truth.len() as f64).ceil() + 1.0).min(truth.len() as f64);
    let norm = truth.iter().map(|x| x * x).sum::<f64>().sqrt();
    if norm > 0.0 && error.is_finite() { 2.0 * step * flipped.sqrt() / norm } else { 0.0 }
}

/// The stage that a part of the step is reported in.
pub(crate) fn stage(phase: Phase) -> Stage {
    match phase {
        Phase::Forward => Stage::Forward,
        Phase::Loss => Stage::Loss,
        Phase::Backward => Stage::Backward,
        Phase::Update => Stage::Update,
    }
}

/// The parts of the step.
pub(super) fn stages(nodes: &[NodeReport]) -> impl Iterator<Item = StageReport> + '_ {
    [Stage::Forward, Stage::Loss, Stage::Backward, Stage::Update].into_iter().map(|stage| {
        let items = nodes.iter().filter(|node| node.stage == stage).map(NodeReport::item).collect();
        StageReport::of(stage, items, TOLERANCE, None)
    })
}

/// The first node that fails although all it depends on passes.
pub(super) fn first_divergence(nodes: &[NodeReport]) -> Option<Divergence> {
    let node = nodes.iter().find(|node| node.verdict == Verdict::Fail && node.own)?;
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let mut what = Vec::new();
    if node.overflow > 0.0 {
        what.push(format!("{} of its elements overflow", percent(node.overflow)));
    }
    if node.underflow > 0.0 {
        what.push(format!("{} of its elements become zero", percent(node.underflow)));
    }
    if what.is_empty() {
        what.push(format!("its error is {:.1e}, where rounding must cost {:.1e}", node.error, node.expected));
    }
    Some(Divergence {
        stage: node.stage,
        tensor: node.node.clone(),
        node: Some(node.node.clone()),
        local: Some(true),
        suspects: vec![node.node.clone()],
        line: node.line.clone(),
        hints: vec![format!("{} in {}: {}", node.op, node.dtype, what.join(", "))],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_that_is_chance_moves_an_element_by_two_steps() {
        // Of 100 elements of size 1, 2 % and one more may be off by 0.02: the square root of 3 times that, over 10.
        assert!((flipped_signs(&[1.0; 100], 0.02, 0.01) - 0.02 * 3f64.sqrt() / 10.0).abs() < 1e-15);
        // However wrong a gradient is, no more than all signs are chance.
        assert_eq!(flipped_signs(&[1.0; 4], 1e10, 0.01), 0.02);
        assert_eq!(flipped_signs(&[0.0; 4], 0.1, 0.01), 0.0);
        assert_eq!(flipped_signs(&[1.0; 4], f64::NAN, 0.01), 0.0);
    }

    #[test]
    fn what_is_no_number_always_fails() {
        assert_eq!(ratio(f64::NAN, f64::INFINITY), f64::INFINITY);
        assert_eq!(ratio(f64::NAN, 1.0), f64::INFINITY);
        assert_eq!(ratio(f64::INFINITY, f64::INFINITY), 1.0);
        assert_eq!(ratio(f64::INFINITY, 0.5), f64::INFINITY);
        assert_eq!(ratio(3e-6, 0.0), 3.0);
        assert_eq!(ratio(3e-6, f64::NAN), 3.0);
    }
}

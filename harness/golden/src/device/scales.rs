//! What gradients lose with each loss scale, and which values are multiplied by it.

use super::{DeviceOptions, judge::NodeReport, rounding::Exponents};
use crate::report::Stage;
use serde::Serialize;
use zoo_engine::simulate::{Range, Subnormals};
use zoo_graph::{DType, Graph, Op};

/// Largest loss scale that is considered, as a power of two: the initial value of MindSpore's dynamic scale.
const LARGEST_SCALE: i32 = 24;
/// Powers of two between the largest gradient and the largest number, with the recommended loss scale.
const HEADROOM: i32 = 2;

/// What a loss scale saves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScaleReport {
    /// The loss scale of this step.
    pub present: f64,
    /// Share of the gradients' elements that become zero without a loss scale.
    pub lost_at_1: f64,
    /// The same with the present loss scale.
    pub lost_at_present: f64,
    /// The loss scale that loses the smallest share and keeps its distance from an overflow.
    pub best: f64,
    /// The same with the best loss scale.
    pub lost_at_best: f64,
}

/// What each loss scale would lose, from the exponents of the exact values of the gradients that the device stores in
/// half precision.
pub(super) fn scales(nodes: &[NodeReport], options: &DeviceOptions<'_>) -> Option<ScaleReport> {
    let gradients = nodes.iter().filter(|node| node.stage == Stage::Backward);
    let mut exponents = Exponents::new();
    let mut half = None;
    for node in gradients.filter(|node| node.dtype.is_half()) {
        half = Some(node.dtype);
        for (exponent, count) in &node.exponents {
            *exponents.entry(*exponent).or_default() += count;
        }
    }
    let flushes = matches!(options.arithmetic.range, Range::Format { subnormals: Subnormals::Flush, .. });
    // Numbers below 2^smallest become zero; numbers from 2^largest overflow.
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

/// Whether each value is multiplied by the loss scale: this holds for everything computed from the scaled seed of the
/// backward pass, until it is divided again. Every gradient is linear in the gradient from which it is computed.
pub(crate) fn scaled(graph: &Graph) -> Vec<bool> {
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

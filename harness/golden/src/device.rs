//! The effect of a device's arithmetic on the step, node by node.
//!
//! One step runs with the device's arithmetic under the golden's conditions. Each node is judged on the operands that
//! it reads:
//!
//! - The result of its kernel is judged as in a check in f32: against the operator in f64 ([`zoo_engine::bounds`]).
//! - The result that the device stores may differ from it by one rounding to its type, relative to the whole result.
//!   If the error is larger, the result loses values to the range of the type: it underflows or overflows.
//!
//! Nodes do not inherit errors, so the verdict needs no allowance for chance. The errors of outputs and losses
//! against the golden are reported for information only, since no bound exists for the effect of rounding on a whole
//! step.
//!
//! A second step, with the device's significands but unbounded exponents, shows which exponents the values have, and
//! therefore what would be lost with another loss scale.

pub mod bisect;
mod judge;
mod rounding;
mod runs;
mod scales;

pub use judge::NodeReport;
pub use rounding::Exponents;
pub use scales::ScaleReport;

pub(crate) use judge::stage;

use crate::{
    GoldenError,
    bound::Bound,
    compare::Precision,
    conditions::{self, Difference},
    golden::Golden,
    report::{Divergence, Item, StageReport, Verdict},
};
use runs::{Judged, OnDevice, exponents};
use serde::Serialize;
use zoo_engine::{Arithmetic, Options};
use zoo_graph::{Graph, Op};
use zoo_recipe::Recipe;

/// Options of a step on a device.
#[derive(Clone, Copy)]
pub struct DeviceOptions<'a> {
    /// Its name.
    pub device: &'a str,
    /// Its arithmetic.
    pub arithmetic: &'a Arithmetic,
    /// The loss scale of the step.
    pub loss_scale: f64,
    /// Kernels and threads of the engine.
    pub engine: Options,
}

/// Report on the step on a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceReport {
    /// Version of this structure.
    pub schema_version: u32,
    /// The recipe.
    pub recipe: String,
    /// The golden's manifest.
    pub golden: String,
    /// The device.
    pub device: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Conditions, kernels, and the effect of rounding on the nodes of each part of the step.
    pub stages: Vec<StageReport>,
    /// Outputs and losses against those of the golden: the effect of rounding on the whole step.
    pub end_to_end: Vec<Item>,
    /// The first failure whose dependencies all pass.
    pub first_divergence: Option<Divergence>,
    /// Conditions in which recipe and golden differ.
    pub conditions_differ: Vec<Difference>,
    /// What loss scales would save; absent if no gradient is half precision.
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
    let bound = Bound::new(recipe, golden, Precision::F32, options.engine)?;
    let differences = conditions::differences(recipe, &bound.graph, &bound.golden.manifest);
    progress("step on the device");
    let judged = Judged::run(&bound, options)?;
    let mut nodes = judge::nodes(options, &judged.device, judged.kernels);
    progress("step with unbounded exponents");
    judge::with_exponents(&mut nodes, &judged.device.graph, &exponents(&bound, options)?);
    let conditions = StageReport::of_conditions(&differences);
    let first_condition = conditions.failed.first().map(|item| Divergence {
        stage: conditions.stage,
        tensor: item.name.clone(),
        node: None,
        local: None,
        suspects: Vec::new(),
        line: differences.iter().find(|d| d.path == item.name).map(|d| d.line.clone()),
        hints: item.note.iter().cloned().collect(),
    });
    let stages: Vec<StageReport> = [conditions].into_iter().chain(judge::stages(&nodes)).collect();
    let failed = stages.iter().any(|stage| stage.verdict == Verdict::Fail);
    Ok(DeviceReport {
        schema_version: 1,
        recipe: recipe.name.clone(),
        golden: bound.golden.path.display().to_string(),
        device: options.device.to_owned(),
        verdict: if failed { Verdict::Fail } else { Verdict::Pass },
        stages,
        first_divergence: first_condition.or_else(|| judge::first_divergence(&nodes)),
        end_to_end: judged.end_to_end,
        conditions_differ: differences,
        loss_scale: scales::scales(&nodes, options),
        nodes,
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

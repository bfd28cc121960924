//! What a device's arithmetic does to the step, node by node.
//!
//! One step with the device's arithmetic under the golden's conditions, each node on the operands that it really
//! reads:
//!
//! - What its kernel computes is judged as in a check in f32: against the operator in f64 ([`zoo_engine::bounds`]).
//! - What the device then holds of it may be off by one rounding to its type, relative to the whole result. A result
//!   that is off by more loses something to the range of the type: it underflows or overflows.
//!
//! No error is inherited from one node by the next, so that the verdict needs no allowance for chance. How far outputs
//! and losses end up from the golden's is information: what rounding does to a whole step no bound says.
//!
//! A second step, with the device's significands but unbounded exponents, tells which exponents the numbers have, and
//! so what another loss scale would lose.

pub mod bisect;
mod judge;
mod rounding;
mod runs;
mod scales;

pub use judge::NodeReport;
pub use rounding::Exponents;
pub use scales::ScaleReport;

pub(crate) use judge::stage;
pub(crate) use scales::scaled;

use crate::{
    GoldenError,
    check::{bound, conditions_stage, under_conditions},
    conditions::{self, Difference},
    manifest::Golden,
    report::{Divergence, Item, StageReport, Verdict},
};
use runs::{Judged, OnDevice, exponents, setup};
use serde::Serialize;
use zoo_engine::{Arithmetic, Options};
use zoo_recipe::Recipe;

/// What a device is asked to compute.
#[derive(Clone, Copy)]
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

/// What the device does to the step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceReport {
    /// Version of this form.
    pub schema_version: u32,
    /// The recipe.
    pub recipe: String,
    /// The golden's manifest.
    pub golden: String,
    /// The device.
    pub device: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Conditions, kernels, then what rounding makes of nodes, by part of the step.
    pub stages: Vec<StageReport>,
    /// Outputs and losses against the golden's: what rounding makes of the whole step.
    pub end_to_end: Vec<Item>,
    /// The first thing that fails although all it depends on passes.
    pub first_divergence: Option<Divergence>,
    /// Conditions in which recipe and golden differ.
    pub conditions_differ: Vec<Difference>,
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
    let differences = |setup: &crate::run::Setup| conditions::differences(recipe, setup.graph(), &golden.manifest);
    let recipe = &under_conditions(recipe, golden);
    let setup = setup(recipe, golden, options)?;
    let differences = differences(&setup);
    progress("step on the device");
    let judged = Judged::run(&setup, golden, options)?;
    let mut nodes = judge::nodes(options, &judged.device, judged.kernels);
    progress("step with unbounded exponents");
    judge::with_exponents(&mut nodes, &judged.device.graph, &exponents(&setup, golden, options)?);
    let conditions = conditions_stage(&differences);
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
        golden: golden.path.display().to_string(),
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

//! What a device's arithmetic does to the step: every node against the engine's own f64 run.
//!
//! Three runs of the step under the golden's conditions: in f64; with the device's arithmetic; and with the device's
//! significands but unbounded exponents. The error of the third against the first is what rounding must cost. A node
//! whose error on the device is more than [`TOLERANCE`] times that loses something to the range: it underflows or
//! overflows.

pub mod bisect;
mod judge;
mod names;
mod runs;
mod scales;
mod watch;

pub use judge::NodeReport;
pub use scales::ScaleReport;
pub use watch::Exponents;

pub(crate) use judge::{F32_LEVEL, stage};
pub(crate) use names::{Names, converts, scaled};

use crate::{
    GoldenError,
    check::{bound, conditions_stage, under_conditions},
    compare::Precision,
    conditions::{self, Difference},
    manifest::Golden,
    report::{Divergence, StageReport, Verdict},
};
use runs::{OnDevice, exact, setup};
use serde::Serialize;
use zoo_engine::{Arithmetic, Options, simulate::Range};
use zoo_recipe::Recipe;

/// How much more than rounding must cost a node's error may be.
pub const TOLERANCE: f64 = 3.0;

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
    /// Conditions, then nodes by part of the step; floors are what rounding must cost.
    pub stages: Vec<StageReport>,
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
    let setup = setup(recipe, golden, options, Precision::F32)?;
    let differences = differences(&setup);
    let run =
        |range: Range| OnDevice::run(&setup, golden, options, &Arithmetic { range, ..options.arithmetic.clone() });
    progress("step with unbounded exponents");
    let unbounded = run(Range::Unbounded)?;
    progress("step on the device");
    let device = run(options.arithmetic.range)?;
    // Last: the many small pieces of memory that reference kernels give back are not the system's again at once.
    progress("step in f64");
    let exact = exact(recipe, golden, options)?;
    let nodes = judge::nodes(options, &exact, &device, &unbounded);
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
        conditions_differ: differences,
        loss_scale: scales::scales(&nodes, options),
        nodes,
    })
}

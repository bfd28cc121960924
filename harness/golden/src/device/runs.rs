//! The steps that a device check runs.

use super::{
    DeviceOptions,
    rounding::{Exponents, Rounded, Spread},
};
use crate::{
    GoldenError,
    check::CheckOptions,
    compare::Precision,
    golden::Golden,
    items,
    kernels::Judge,
    probe::Probe,
    report::Item,
    run::{Setup, inputs, probe, scalars, set_weights},
};
use std::collections::{BTreeMap, HashMap};
use zoo_engine::{Arithmetic, Findings, Observer, Scalars, Step, StepResult, simulate::Range};
use zoo_graph::{Graph, NodeId};
use zoo_recipe::Recipe;

/// The step's graph under the golden's conditions.
pub(super) fn setup(recipe: &Recipe, golden: &Golden, options: &DeviceOptions<'_>) -> Result<Setup, GoldenError> {
    Setup::new(recipe, golden, &CheckOptions { precision: Precision::F32, engine: options.engine, room: None })
}

/// A step on a device, with the golden's weights. An overflow does not skip the update, so everything is computed.
struct Prepared<'a> {
    step: Step,
    setup: &'a Setup,
    golden: &'a Golden,
    scalars: Scalars,
}

impl<'a> Prepared<'a> {
    fn new(
        setup: &'a Setup,
        golden: &'a Golden,
        options: &DeviceOptions<'_>,
        arithmetic: &Arithmetic,
    ) -> Result<Self, GoldenError> {
        let arithmetic = Arithmetic { skips_overflow: false, ..arithmetic.clone() };
        let mut step = Step::simulated(setup.graph().clone(), options.engine.without_fusion(), &arithmetic)?;
        set_weights(&mut step, golden, false)?;
        let scalars = Scalars { loss_scale: options.loss_scale, ..scalars(golden, 0) };
        Ok(Self { step, setup, golden, scalars })
    }

    fn run(&mut self, observer: &mut dyn Observer) -> Result<StepResult, GoldenError> {
        Ok(self.step.run(&inputs(self.golden, self.setup.graph())?, self.scalars, observer)?)
    }
}

/// By value, the exponents that the values of the step would have in an unbounded range.
pub(super) fn exponents(
    setup: &Setup,
    golden: &Golden,
    options: &DeviceOptions<'_>,
) -> Result<Vec<Exponents>, GoldenError> {
    let unbounded = Arithmetic { range: Range::Unbounded, planted: BTreeMap::new(), ..options.arithmetic.clone() };
    let mut prepared = Prepared::new(setup, golden, options, &unbounded)?;
    let mut spread = Spread::of(prepared.step.graph());
    prepared.run(&mut spread)?;
    Ok(spread.exponents)
}

/// Findings of a step on the device.
pub(super) struct OnDevice {
    pub graph: Graph,
    pub findings: Findings,
    /// Relative rounding error by value; none if the device stores the computed result.
    pub errors: Vec<Option<f64>>,
}

impl OnDevice {
    /// Runs the step.
    pub(super) fn run(
        setup: &Setup,
        golden: &Golden,
        options: &DeviceOptions<'_>,
        arithmetic: &Arithmetic,
    ) -> Result<Self, GoldenError> {
        let mut prepared = Prepared::new(setup, golden, options, arithmetic)?;
        let graph = prepared.step.graph().clone();
        let mut rounded = Rounded::of(&graph, ());
        prepared.run(&mut rounded)?;
        let Rounded { errors, .. } = rounded;
        Ok(Self { findings: prepared.step.findings().cloned().unwrap_or_default(), errors, graph })
    }
}

/// A step on the device, with judged kernels.
pub(super) struct Judged {
    pub device: OnDevice,
    /// For each node, the error of its kernel in f32, before the device rounds.
    pub kernels: HashMap<NodeId, Item>,
    /// Outputs and losses against those of the golden.
    pub end_to_end: Vec<Item>,
}

impl Judged {
    /// Runs the step.
    pub(super) fn run(setup: &Setup, golden: &Golden, options: &DeviceOptions<'_>) -> Result<Self, GoldenError> {
        let mut prepared = Prepared::new(setup, golden, options, options.arithmetic)?;
        let graph = prepared.step.graph().clone();
        let probe = probe(&graph, golden, None, |_| true)?;
        let mut rounded = Rounded::of(&graph, Judge::new(&graph, options.engine, prepared.scalars, probe));
        let result = prepared.run(&mut rounded)?;
        let Rounded { errors, of: judge, .. } = rounded;
        let (probe, kernels) = judge.finish()?;
        let findings = prepared.step.findings().cloned().unwrap_or_default();
        let end_to_end = end_to_end(setup, golden, &result, &probe);
        let kernels = kernels.into_iter().collect();
        Ok(Self { device: OnDevice { findings, errors, graph }, kernels, end_to_end })
    }
}

/// Compares the outputs and losses with those of the golden. Values that the golden does not have are left out.
fn end_to_end(setup: &Setup, golden: &Golden, result: &StepResult, probe: &Probe) -> Vec<Item> {
    let read = |key: &str| probe.measured(key);
    let outputs = items::outputs(setup.graph(), &[], golden, None, Precision::F32, read);
    let losses = items::losses(result, golden, None, 0, Precision::F32);
    let losses = losses.into_iter().filter(|item| !items::is_of_gradients(item));
    outputs.into_iter().filter(items::is_of_network).chain(losses).filter(|item| item.note.is_none()).collect()
}

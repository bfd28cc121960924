//! The steps that a device check runs.

use super::{
    DeviceOptions,
    rounding::{Exponents, Rounded, Spread},
};
use crate::{
    GoldenError, bound::Bound, compare::Precision, items, kernels::Judge, probe::Probe, report::Item, run::probe,
};
use std::collections::{BTreeMap, HashMap};
use zoo_engine::{Arithmetic, Findings, StepResult, simulate::Range};
use zoo_graph::{Graph, NodeId};

/// By value, the exponents that the values of the step would have in an unbounded range.
pub(super) fn exponents(bound: &Bound, options: &DeviceOptions<'_>) -> Result<Vec<Exponents>, GoldenError> {
    let unbounded = Arithmetic { range: Range::Unbounded, planted: BTreeMap::new(), ..options.arithmetic.clone() };
    let (mut step, scalars) = bound.simulated(&unbounded, options.loss_scale)?;
    let mut spread = Spread::of(step.graph());
    step.run(&bound.inputs()?, scalars, &mut spread)?;
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
        bound: &Bound,
        options: &DeviceOptions<'_>,
        arithmetic: &Arithmetic,
    ) -> Result<Self, GoldenError> {
        let (mut step, scalars) = bound.simulated(arithmetic, options.loss_scale)?;
        let graph = step.graph().clone();
        let mut rounded = Rounded::of(&graph, ());
        step.run(&bound.inputs()?, scalars, &mut rounded)?;
        let Rounded { errors, .. } = rounded;
        Ok(Self { findings: step.findings().cloned().unwrap_or_default(), errors, graph })
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
    pub(super) fn run(bound: &Bound, options: &DeviceOptions<'_>) -> Result<Self, GoldenError> {
        let (mut step, scalars) = bound.simulated(options.arithmetic, options.loss_scale)?;
        let graph = step.graph().clone();
        let probe = probe(&graph, &bound.golden, None, |_| true)?;
        let mut rounded = Rounded::of(&graph, Judge::new(&graph, options.engine, scalars, probe));
        let result = step.run(&bound.inputs()?, scalars, &mut rounded)?;
        let Rounded { errors, of: judge, .. } = rounded;
        let (probe, kernels) = judge.finish()?;
        let findings = step.findings().cloned().unwrap_or_default();
        let end_to_end = end_to_end(bound, &result, &probe);
        let kernels = kernels.into_iter().collect();
        Ok(Self { device: OnDevice { findings, errors, graph }, kernels, end_to_end })
    }
}

/// Compares the outputs and losses with those of the golden. Values that the golden does not have are left out.
fn end_to_end(bound: &Bound, result: &StepResult, probe: &Probe) -> Vec<Item> {
    let read = |key: &str| probe.measured(key);
    let outputs = items::outputs(&bound.graph, &[], &bound.golden, None, Precision::F32, read);
    let losses = items::losses(result, &bound.golden, None, 0, Precision::F32);
    let losses = losses.into_iter().filter(|item| !items::is_of_gradients(item));
    outputs.into_iter().filter(items::is_of_network).chain(losses).filter(|item| item.note.is_none()).collect()
}

//! The runs that a device check compares.

use super::{
    DeviceOptions,
    names::{Names, scaled},
    watch::Watch,
};
use crate::{
    GoldenError,
    check::CheckOptions,
    compare::{Precision, relative_l2},
    manifest::Golden,
    run::{Setup, inputs, scalars, set_weights},
};
use zoo_engine::{Arithmetic, Findings, Kernels, Options, Scalars, Step};
use zoo_graph::{Graph, ValueId};
use zoo_recipe::Recipe;

/// The step's graph under the golden's conditions.
pub(super) fn setup(
    recipe: &Recipe,
    golden: &Golden,
    options: &DeviceOptions<'_>,
    precision: Precision,
) -> Result<Setup, GoldenError> {
    Setup::new(recipe, golden, &CheckOptions { precision, engine: options.engine })
}

/// The exact step: samples and exponents by value.
pub(super) fn exact(recipe: &Recipe, golden: &Golden, options: &DeviceOptions<'_>) -> Result<Watch, GoldenError> {
    let setup = setup(recipe, golden, options, Precision::F64)?;
    let engine = Options { kernels: Kernels::Reference, ..options.engine };
    let mut step = Step::new(setup.graph().clone(), engine)?;
    set_weights(&mut step, golden, false)?;
    let graph = step.graph().clone();
    let names = Names::of(&graph);
    let mut watch = Watch::counting();
    for (v, value) in graph.values.iter().enumerate().filter(|(_, value)| value.ty.dtype.is_float()) {
        let name = names.own(ValueId(v));
        watch.ask(ValueId(v), name, name, value.ty.shape.numel());
    }
    step.run(&inputs(golden, setup.graph())?, scalars(golden, 0), &mut watch)?;
    Ok(watch)
}

/// A step on the device: its graph, samples by value, and what it ran into.
pub(super) struct OnDevice {
    pub graph: Graph,
    pub names: Names,
    pub findings: Findings,
    /// Whether a value carries the loss scale.
    pub scaled: Vec<bool>,
    watch: Watch,
    loss_scale: f64,
}

impl OnDevice {
    /// Runs the step; no overflow leaves out its update, so that everything is computed.
    pub(super) fn run(
        setup: &Setup,
        golden: &Golden,
        options: &DeviceOptions<'_>,
        arithmetic: &Arithmetic,
    ) -> Result<Self, GoldenError> {
        let arithmetic = Arithmetic { skips_overflow: false, ..arithmetic.clone() };
        let mut step = Step::simulated(setup.graph().clone(), options.engine.without_fusion(), &arithmetic)?;
        set_weights(&mut step, golden, false)?;
        let graph = step.graph().clone();
        let names = Names::of(&graph);
        let mut watch = Watch::default();
        for (v, value) in graph.values.iter().enumerate().filter(|(_, value)| value.ty.dtype.is_float()) {
            watch.ask(ValueId(v), names.own(ValueId(v)), names.exact(ValueId(v)), value.ty.shape.numel());
        }
        let loss_scale = options.loss_scale;
        let scalars = Scalars { loss_scale, ..scalars(golden, 0) };
        step.run(&inputs(golden, setup.graph())?, scalars, &mut watch)?;
        let findings = step.findings().cloned().unwrap_or_default();
        Ok(Self { scaled: scaled(&graph), graph, names, watch, findings, loss_scale })
    }

    /// Relative error of a value, on the samples: infinite where the truth is zero and this is not, NaN where either is no
    /// number or was not seen.
    pub(super) fn error(&self, v: ValueId, exact: &Watch) -> f64 {
        let (Some(truth), Some(found)) = (exact.samples(self.names.exact(v)), self.watch.samples(self.names.own(v)))
        else {
            return f64::NAN;
        };
        let by = if self.scaled[v.0] { 1.0 / self.loss_scale } else { 1.0 };
        let found: Vec<f64> = found.iter().map(|x| x * by).collect();
        let norm = truth.iter().map(|x| x * x).sum::<f64>().sqrt();
        if found.iter().chain(truth).any(|x| x.is_nan()) {
            f64::NAN
        } else if norm != 0.0 {
            relative_l2(&found, truth, norm, truth.len())
        } else if found.iter().all(|x| *x == 0.0) {
            0.0
        } else {
            f64::INFINITY
        }
    }
}

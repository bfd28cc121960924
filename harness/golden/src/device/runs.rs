//! The runs that a device check compares.

use super::{
    DeviceOptions,
    judge::one_rounding,
    names::{Names, scaled},
    watch::Watch,
};
use crate::{
    GoldenError,
    check::CheckOptions,
    compare::Precision,
    manifest::Golden,
    run::{Setup, inputs, scalars, set_weights},
};
use zoo_engine::{Arithmetic, Findings, Kernels, Options, Scalars, Step};
use zoo_graph::{Graph, ValueId};
use zoo_recipe::Recipe;

/// One of so many samples is left out, the worst.
const SPARED: usize = 64;

/// The step's graph under the golden's conditions.
pub(super) fn setup(
    recipe: &Recipe,
    golden: &Golden,
    options: &DeviceOptions<'_>,
    precision: Precision,
) -> Result<Setup, GoldenError> {
    Setup::new(recipe, golden, &CheckOptions { precision, engine: options.engine, room: None })
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
    /// The most that one rounding to the narrowest type of the step changes a number.
    pub one_rounding: f64,
    watch: Watch,
    loss_scale: f64,
    /// Learning rate of the step.
    pub learning_rate: f64,
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
        let one_rounding = graph.values.iter().map(|value| one_rounding(value.ty.dtype)).fold(0.0, f64::max);
        let names = Names::of(&graph);
        let mut watch = Watch::default();
        for (v, value) in graph.values.iter().enumerate().filter(|(_, value)| value.ty.dtype.is_float()) {
            watch.ask(ValueId(v), names.own(ValueId(v)), names.exact(ValueId(v)), value.ty.shape.numel());
        }
        let loss_scale = options.loss_scale;
        let scalars = Scalars { loss_scale, ..scalars(golden, 0) };
        let learning_rate = scalars.learning_rate;
        step.run(&inputs(golden, setup.graph())?, scalars, &mut watch)?;
        let findings = step.findings().cloned().unwrap_or_default();
        Ok(Self { scaled: scaled(&graph), one_rounding, graph, names, watch, findings, loss_scale, learning_rate })
    }

    /// Relative error of a value, on the samples: infinite where the truth is zero and this is not, NaN where either is
    /// no number or was not seen.
    ///
    /// The worst of every [`SPARED`] samples is left out: which ReLU inputs near zero fall on the other side is chance,
    /// as is the sign of a first step of Adam where the gradient is zero but for rounding, and one such element may
    /// outweigh all others.
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
            let mut squares: Vec<f64> = found.iter().zip(truth).map(|(a, b)| (a - b) * (a - b)).collect();
            squares.sort_unstable_by(f64::total_cmp);
            let kept = squares.len() - squares.len() / SPARED;
            squares[..kept].iter().sum::<f64>().sqrt() / norm
        } else if found.iter().all(|x| *x == 0.0) {
            0.0
        } else {
            f64::INFINITY
        }
    }
}

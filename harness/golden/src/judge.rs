//! Judges a step that ran elsewhere.
//!
//! The step is computed in f64 on the operands of the recording (`forced`), so each quantity has its own error. The
//! floor of a quantity is measured in the same way, on zoo's own step in the declared arithmetic (`simulated`), with
//! the same known quantities. The limits, in floors, are those of a check in f32.

mod coverage;
mod explain;
mod forced;
mod found;
mod hints;
mod judged;
mod matched;
mod nameless;
mod proposal;
mod report;
mod rounded_loss;
mod simulated;
mod start;
mod targets;

pub use coverage::Coverage;
pub(crate) use matched::Matched;
pub use proposal::Proposal;
pub use report::{JudgeReport, StepsReport};
pub use simulated::Declared;
pub(crate) use targets::{Target, Targets};

use crate::{
    GoldenError,
    bound::Bound,
    compare::{F32_WORST, Precision},
    foreign::{Entry, Quantity, Recording, Statistics},
    golden::Golden,
    options::CheckOptions,
    report::Stage,
};
use forced::Forced;
use found::{Found, Given};
use judged::{Judged, LARGEST_FLOOR};
use nameless::Nameless;
use start::Start;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use zoo_datasets::Rng;
use zoo_engine::{Inputs, Options, Step};
use zoo_graph::{Bytes, ValueId};
use zoo_recipe::Recipe;
use zoo_tensors::{Array, ElementType};

/// How to judge a recording.
#[derive(Clone, Copy, Debug)]
pub struct JudgeOptions<'a> {
    /// The arithmetic of the recording.
    pub declared: Declared<'a>,
    /// The factor on the recorded gradients, unless the recording says one.
    pub loss_scale: f64,
    /// Whether the recording may have names without a meaning in the step.
    pub allow_unmatched: bool,
    /// Stages of which the recording may lack quantities.
    pub allow_missing: &'a [Stage],
    /// The learning rates of the steps, if they are not all that of the golden.
    pub rates: Option<&'a [f64]>,
    /// Kernels and threads of zoo's own step.
    pub engine: Options,
}

impl JudgeOptions<'_> {
    /// The options for a recording, which may say its loss scale.
    fn of(&self, recording: &Recording) -> Self {
        let Some(loss_scale) = recording.loss_scale else { return *self };
        Self { loss_scale, declared: self.declared.scaled_by(loss_scale), ..*self }
    }
}

/// Number of calls of [`judge`]'s `progress`, per step.
pub const PHASES: usize = 3;

/// Judges the recorded steps of a training from the start of a golden, in turn. Each begins with what the recorded step
/// before has left behind.
///
/// # Errors
/// A golden or recording that cannot be read, or a step that cannot be built. A recording that differs gives a
/// report.
pub fn judge(
    recipe: &Recipe,
    golden: &Golden,
    steps: &[Recording],
    options: &JudgeOptions<'_>,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<JudgeReport>, GoldenError> {
    let bound = &Bound::new(recipe, golden, Precision::F64, options.engine)?;
    let targets = &Targets::of(&bound.graph, &bound.recipe);
    let inputs = &bound.inputs()?;
    let rate = |n: usize| {
        let own = options.rates.and_then(|rates| rates.get(n).copied());
        own.unwrap_or_else(|| bound.golden.manifest.optimizer.base_lr())
    };
    let judging = Judging { bound, targets, inputs, options };
    let mut start = Start::first(rate(0));
    let mut reports = Vec::new();
    for (n, recording) in steps.iter().enumerate() {
        let (report, after) = judging.step(recording, &start, n + 1 < steps.len(), progress)?;
        reports.push(report);
        if let Some(after) = after {
            start = Start::after(&after, start.step, rate(n + 1))?;
        }
    }
    Ok(reports)
}

/// What the steps of a recording have in common.
struct Judging<'a> {
    /// The step in f64.
    bound: &'a Bound,
    targets: &'a Targets,
    inputs: &'a Inputs,
    options: &'a JudgeOptions<'a>,
}

/// What a step in f64 on given values shows.
struct Seen {
    /// Errors, by place.
    found: Vec<Option<Found>>,
    /// Losses, by place.
    losses: HashMap<usize, f64>,
    /// The values of the step that outputs without a meaning are.
    nameless: Vec<Option<ValueId>>,
}

/// Gives the recorded value at a place, if any.
type Giving<'g> = dyn FnMut(usize) -> Result<Option<Given>, GoldenError> + Send + 'g;

impl Judging<'_> {
    /// Judges a step, and returns it with the state that it has left behind, if another one follows.
    fn step(
        &self,
        recording: &Recording,
        start: &Start,
        goes_on: bool,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(JudgeReport, Option<Step>), GoldenError> {
        let (Bound { recipe, golden, graph, .. }, targets) = (self.bound, self.targets);
        let options = &self.options.of(recording);
        let mut matched = Matched::of(recording, targets)?;
        if matched.entries.is_empty() && Proposal::of(&matched, targets, golden, start)?.is_empty() {
            let unknown = matched.unmatched().first().cloned().unwrap_or_default();
            let message = format!(
                "nothing in it has a name of {}, the first is `{unknown}`: names.yaml says what names mean (zoo judge --help)",
                recipe.name
            );
            return Err(crate::error::malformed(&recording.path, message));
        }
        progress("the recording, in f64");
        let nameless = matched.outputs_of_strangers()?;
        let nameless = Nameless::new(nameless, F32_WORST * options.declared.one_rounding(), graph);
        let (seen, after) = self.forced(start, nameless, &mut |place| {
            let Some(entry) = matched.entries.get(&place) else { return Ok(None) };
            given(entry, options.loss_scale).map(Some)
        })?;
        // All parameters in f64, and what the optimizer keeps of them.
        let after = goes_on.then_some(after);
        let Seen { mut found, losses, nameless } = seen;
        matched.are_nameless(&nameless);
        let proposal = Proposal::of(&matched, targets, golden, start)?;
        if let Declared::Half { dtype, .. } = options.declared
            && let Some((place, loss)) = rounded_loss::rounded_loss(graph, golden, targets, &matched.entries, dtype)?
            && let Some(found) = &mut found[place]
            && let Given::Elements(array) = given(matched.entries[&place], 1.0)?
            && let Some(recorded) = array.values.first()
        {
            found.error = found.error.min((recorded - loss).abs() / loss.abs());
        }
        progress(&format!("the step in {}", options.declared.name()));
        let places: Vec<usize> = matched.entries.keys().copied().collect();
        let simulated = |declared: &Declared<'_>| {
            simulated::simulate(self.bound, start, declared, options.engine, targets, &places)
        };
        let own = simulated(&options.declared)?;
        progress("its cost, in f64");
        let cost = self.cost(&matched, start, &own, None)?;
        let large = |(place, cost): (usize, &Option<Found>)| {
            let is_statistics = matched.entries.get(&place).is_some_and(|entry| entry.content.is_statistics());
            cost.as_ref().is_some_and(|cost| cost.note.is_none() && cost.worst(is_statistics) > LARGEST_FLOOR)
        };
        let rounding = match options.declared {
            Declared::F32 => cost.clone(),
            Declared::Half { .. } | Declared::Device { .. } if cost.iter().enumerate().any(large) => {
                self.cost(&matched, start, &simulated(&Declared::F32)?, None)?
            }
            Declared::Half { .. } | Declared::Device { .. } => vec![None; cost.len()],
        };
        let mut judged =
            Judged { recipe, golden, graph, targets, start, matched, proposal, found, losses, cost, rounding, options };
        if judged.is_close() {
            let moved = self.cost(&judged.matched, start, &own, Some(options.declared.one_rounding() / 2.0))?;
            judged.widen(moved);
        }
        Ok((judged.report(recording)?, after))
    }

    /// The errors of zoo's own step, by place, with the same known quantities as the recording. With `moved`, each
    /// element of them is changed at random by up to this, relatively: the effect of one rounding more.
    fn cost(
        &self,
        matched: &Matched<'_>,
        start: &Start,
        own: &HashMap<usize, Arc<[f32]>>,
        moved: Option<f64>,
    ) -> Result<Vec<Option<Found>>, GoldenError> {
        let (seen, _) = self.forced(start, Nameless::default(), &mut |place| {
            let Some(entry) = matched.entries.get(&place) else { return Ok(None) };
            let Some(values) = own.get(&place) else { return Ok(None) };
            let mut values: Vec<f64> = values.iter().map(|x| f64::from(*x)).collect();
            if let Some(by) = moved {
                let mut rng = Rng::new(place as u64, 0, 0);
                values.iter_mut().for_each(|x| *x *= 1.0 + rng.uniform(-by, by));
            }
            let shape = self.targets.list[place].shape.clone();
            Ok(Some(match entry.content.is_statistics() {
                true => Given::Statistics(Statistics::of(&values), shape),
                false => Given::Elements(Array { dtype: ElementType::F32, shape, values }),
            }))
        })?;
        Ok(seen.found)
    }

    /// What a step in f64 on given values shows, and the step.
    fn forced(
        &self,
        start: &Start,
        nameless: Nameless<'_>,
        given: &mut Giving<'_>,
    ) -> Result<(Seen, Step), GoldenError> {
        let Bound { graph, golden, engine, .. } = self.bound;
        let mut step = Step::new(graph.clone(), *engine)?;
        start.set(&mut step, golden)?;
        let mut forced = Forced::new(self.targets, golden, start, nameless, given);
        step.run(self.inputs, start.scalars(1.0), &mut forced)?;
        let nameless = forced.nameless.outputs.into_iter().map(|(_, at)| at).collect();
        let seen = Seen { found: forced.found, losses: forced.losses, nameless };
        forced.failed.map_or(Ok((seen, step)), Err)
    }
}

/// Peak memory of [`judge`], on top of what the process has: a step in f64 as in [`crate::memory`], and the values of
/// zoo's own step in f32 for everything that a recording may contain.
///
/// # Errors
/// As [`crate::memory`].
pub fn memory(recipe: &Recipe, golden: &Golden, engine: Options) -> Result<Bytes, GoldenError> {
    let options = CheckOptions { precision: Precision::F64, engine, room: None };
    let step = crate::memory(recipe, golden, &options)?;
    let bound = Bound::new(recipe, golden, Precision::F64, engine)?;
    let targets = Targets::of(&bound.graph, &bound.recipe);
    let values: HashSet<ValueId> = targets.list.iter().map(|target| target.value).collect();
    let numel: usize = values.into_iter().map(|value| bound.graph.ty(value).shape.numel()).sum();
    Ok(step + Bytes((numel * size_of::<f32>()) as u64))
}

/// The recorded value of a quantity, with gradients divided by the loss scale.
fn given(entry: &Entry, loss_scale: f64) -> Result<Given, GoldenError> {
    let by = if matches!(entry.quantity, Quantity::Gradient(_)) { loss_scale } else { 1.0 };
    Ok(match (entry.array()?, entry.content.statistics()) {
        (Some(array), _) => {
            let values = if by == 1.0 { array.values } else { array.values.iter().map(|x| x / by).collect() };
            Given::Elements(Array { values, ..array })
        }
        (None, Some((of, shape))) => {
            let of = Statistics { max: of.max / by, min: of.min / by, mean: of.mean / by, norm: of.norm / by };
            Given::Statistics(of, shape.to_vec())
        }
        (None, None) => Given::Elements(Array { dtype: ElementType::F64, shape: vec![0], values: Vec::new() }),
    })
}

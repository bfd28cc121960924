//! Judges a step that ran elsewhere.
//!
//! The step is computed in f64 on the operands of the recording (`forced`), so each quantity has its own error. The
//! floor of a quantity is measured in the same way, on zoo's own step in the declared arithmetic (`simulated`), with
//! the same known quantities. The limits, in floors, are those of a check in f32.

mod forced;
mod hints;
mod rounded_loss;
mod simulated;
mod targets;

pub use simulated::Declared;
pub(crate) use targets::Targets;

use crate::{
    GoldenError,
    check::{CheckOptions, bound, loss_hints, under_conditions},
    compare::{
        DEGENERATE_FACTOR, F32_MEDIAN, F32_WORST, LOSS_FLOOR, Measured, ORDERS, Precision, TENSOR_FLOOR, is_degenerate,
    },
    divergence,
    foreign::{Entry, Format, Quantity, Recording, Statistics},
    golden::Golden,
    items::GRAD,
    report::{Divergence, Item, Stage, StageReport, Verdict},
    run::{Setup, inputs, scalars, set_weights},
    stats::Stats,
};
use forced::{Forced, Found, Given};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use targets::{PARAMETER, Target};
use zoo_engine::{Kernels, Options, Step};
use zoo_graph::{Bytes, DType, Graph, ValueId};
use zoo_recipe::Recipe;
use zoo_tensors::{Array, ElementType};

/// How to judge a recording.
#[derive(Clone, Copy, Debug)]
pub struct JudgeOptions<'a> {
    /// The arithmetic of the recording.
    pub declared: Declared<'a>,
    /// The factor on the recorded gradients.
    pub loss_scale: f64,
    /// Whether the recording may have names without a meaning in the step.
    pub allow_unmatched: bool,
    /// Whether a recorded stage may lack quantities.
    pub allow_missing: bool,
    /// Kernels and threads of zoo's own step.
    pub engine: Options,
}

/// The verdict on a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JudgeReport {
    /// Version of this structure.
    pub schema_version: u32,
    /// The recipe.
    pub recipe: String,
    /// The golden's manifest.
    pub golden: String,
    /// The recording.
    pub recording: String,
    /// The writer of the recording.
    pub format: Format,
    /// The declared arithmetic.
    pub arithmetic: String,
    /// Overall verdict.
    pub verdict: Verdict,
    /// Verdict by stage.
    pub stages: Vec<StageReport>,
    /// The first quantity that differs.
    pub first_divergence: Option<Divergence>,
    /// Names without a meaning in the step; a failure unless they are allowed.
    pub unmatched: Vec<String>,
    /// Whether they are allowed.
    pub unmatched_allowed: bool,
    /// Number of quantities for which only statistics are recorded.
    pub statistics_only: usize,
    /// Number of contents of the recording that are not compared, by kind.
    pub not_compared: BTreeMap<String, usize>,
    /// Outputs and losses against those of the golden, with the errors of all modules. Not part of the verdict.
    pub end_to_end: Vec<Item>,
}

/// Stages of a recording.
const STAGES: [Stage; 5] = [Stage::Init, Stage::Forward, Stage::Loss, Stage::Backward, Stage::Update];

/// The largest floor of a tensor of which rounding leaves something. With it, an error up to the size of the tensor
/// passes: that of a tensor that underflows altogether.
const LARGEST_FLOOR: f64 = 1.0 / F32_WORST;

/// Number of calls of [`judge`]'s `progress`.
pub const PHASES: usize = 3;

/// Judges a recording of the first step of a golden.
///
/// # Errors
/// A golden or recording that cannot be read, or a step that cannot be built. A recording that differs gives a
/// report.
pub fn judge(
    recipe: &Recipe,
    golden: &Golden,
    recording: &Recording,
    options: &JudgeOptions<'_>,
    progress: &mut dyn FnMut(&str),
) -> Result<JudgeReport, GoldenError> {
    let golden = &bound(recipe, golden)?;
    let recipe = &under_conditions(recipe, golden);
    let exact = Options { kernels: Kernels::Reference, ..options.engine };
    let setup = Setup::new(recipe, golden, &CheckOptions { precision: Precision::F64, engine: exact, room: None })?;
    let targets = Targets::of(setup.graph(), recipe);
    let matched = Matched::of(recording, &targets)?;
    if matched.entries.is_empty() {
        let unknown = matched.unmatched.first().map_or("", String::as_str);
        let message = format!(
            "nothing in it has a name of {}, the first is `{unknown}`: names.yaml says what names mean (zoo judge --help)",
            recipe.name
        );
        return Err(GoldenError::Malformed { path: recording.path.clone(), message });
    }
    let places: Vec<usize> = matched.entries.keys().copied().collect();
    let forced = |given: &mut (dyn FnMut(usize) -> Result<Option<Given>, GoldenError> + Send)| {
        let mut step = Step::new(setup.graph().clone(), exact)?;
        set_weights(&mut step, golden, false)?;
        let mut forced = Forced::new(&targets, golden, given);
        step.run(&inputs(golden, setup.graph())?, scalars(golden, 0), &mut forced)?;
        forced.failed.map_or(Ok(forced.found), Err)
    };
    progress("the recording, in f64");
    let mut found = forced(&mut |place| {
        let Some(entry) = matched.entries.get(&place) else { return Ok(None) };
        given(entry, options.loss_scale).map(Some)
    })?;
    if let Declared::Half { dtype, .. } = options.declared
        && let Some((place, loss)) =
            rounded_loss::rounded_loss(setup.graph(), golden, &targets, &matched.entries, dtype)?
        && let Some(found) = &mut found[place]
        && let Given::Elements(array) = given(matched.entries[&place], 1.0)?
        && let Some(recorded) = array.values.first()
    {
        found.error = found.error.min((recorded - loss).abs() / loss.abs());
    }
    progress(&format!("the step in {}", options.declared.name()));
    let simulated =
        |declared: &Declared<'_>| simulated::simulate(recipe, golden, declared, options.engine, &targets, &places);
    let cost_of = |own: HashMap<usize, Arc<[f32]>>| {
        forced(&mut |place| {
            let Some(entry) = matched.entries.get(&place) else { return Ok(None) };
            let Some(values) = own.get(&place) else { return Ok(None) };
            let values: Vec<f64> = values.iter().map(|x| f64::from(*x)).collect();
            let shape = targets.list[place].shape.clone();
            Ok(Some(match entry.content.is_statistics() {
                true => Given::Statistics(Statistics::of(&values), shape),
                false => Given::Elements(Array { dtype: ElementType::F32, shape, values }),
            }))
        })
    };
    let own = simulated(&options.declared)?;
    progress("its cost, in f64");
    let cost = cost_of(own)?;
    let large = |(place, cost): (usize, &Option<Found>)| {
        let is_statistics = matched.entries.get(&place).is_some_and(|entry| entry.content.is_statistics());
        cost.as_ref().is_some_and(|cost| cost.note.is_none() && cost.worst(is_statistics) > LARGEST_FLOOR)
    };
    let rounding = match options.declared {
        Declared::F32 => cost.clone(),
        Declared::Half { .. } | Declared::Device { .. } if cost.iter().enumerate().any(large) => {
            cost_of(simulated(&Declared::F32)?)?
        }
        Declared::Half { .. } | Declared::Device { .. } => vec![None; cost.len()],
    };
    let graph = setup.graph();
    let judged = Judged { recipe, golden, graph, targets: &targets, matched, found, cost, rounding, options };
    judged.report(recording)
}

/// Peak memory of [`judge`], on top of what the process has: a step in f64 as in [`crate::memory`], and the values of
/// zoo's own step in f32 for everything that a recording may contain.
///
/// # Errors
/// As [`crate::memory`].
pub fn memory(recipe: &Recipe, golden: &Golden, engine: Options) -> Result<Bytes, GoldenError> {
    let options = CheckOptions { precision: Precision::F64, engine, room: None };
    let step = crate::memory(recipe, golden, &options)?;
    let golden = &bound(recipe, golden)?;
    let recipe = &under_conditions(recipe, golden);
    let setup = Setup::new(recipe, golden, &options)?;
    let targets = Targets::of(setup.graph(), recipe);
    let values: HashSet<ValueId> = targets.list.iter().map(|target| target.value).collect();
    let numel: usize = values.into_iter().map(|value| setup.graph().ty(value).shape.numel()).sum();
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

/// Assigns the entries of a recording to quantities of the step.
struct Matched<'r> {
    /// By place in `targets`.
    entries: BTreeMap<usize, &'r Entry>,
    unmatched: Vec<String>,
    not_compared: BTreeMap<String, usize>,
}

impl<'r> Matched<'r> {
    /// # Errors
    /// Two entries are the same quantity, such as a parameter with its names in PyTorch and in MindSpore.
    fn of(recording: &'r Recording, targets: &Targets) -> Result<Self, GoldenError> {
        let not_compared = recording.not_compared.iter().map(|(kind, count)| ((*kind).to_owned(), *count));
        let mut matched = Self {
            entries: BTreeMap::new(),
            unmatched: recording.unknown.clone(),
            not_compared: not_compared.collect(),
        };
        for entry in &recording.entries {
            match (targets.find(&entry.quantity), &entry.quantity) {
                // The input of the step may be recorded as itself and as an operand of the first modules.
                (Some(place), Quantity::Into { .. }) => {
                    matched.entries.entry(place).or_insert(entry);
                }
                (Some(place), _) => {
                    if let Some(other) = matched.entries.insert(place, entry)
                        && !matches!(other.quantity, Quantity::Into { .. })
                    {
                        let [a, b] = [other, entry].map(|entry| &entry.name);
                        let message = format!("`{a}` and `{b}` are both {}", targets.list[place].quantity);
                        return Err(GoldenError::Malformed { path: recording.path.clone(), message });
                    }
                }
                (None, Quantity::Into { .. }) => {
                    *matched.not_compared.entry("inputs of modules".to_owned()).or_default() += 1;
                }
                (None, _) => matched.unmatched.push(entry.name.clone()),
            }
        }
        Ok(matched)
    }
}

/// A compared recording.
struct Judged<'a> {
    recipe: &'a Recipe,
    golden: &'a Golden,
    graph: &'a Graph,
    targets: &'a Targets,
    matched: Matched<'a>,
    /// Error of the recording, by place.
    found: Vec<Option<Found>>,
    /// Error of zoo's own step in the declared arithmetic, by place.
    cost: Vec<Option<Found>>,
    /// Error of zoo's own step in f32, by place; none if no error in `cost` is large.
    rounding: Vec<Option<Found>>,
    options: &'a JudgeOptions<'a>,
}

impl Judged<'_> {
    fn report(self, recording: &Recording) -> Result<JudgeReport, GoldenError> {
        let items = self.items();
        let stages: Vec<StageReport> = STAGES
            .iter()
            .map(|stage| {
                let of_stage = items.iter().filter(|(s, ..)| s == stage).map(|(_, _, item)| item.clone()).collect();
                let median = (*stage != Stage::Init).then_some(F32_MEDIAN);
                StageReport::of(*stage, of_stage, F32_WORST, median)
            })
            .collect();
        let first_divergence = self.first_divergence(&stages, &items)?;
        let unmatched_fails = !self.matched.unmatched.is_empty() && !self.options.allow_unmatched;
        let fails = unmatched_fails || stages.iter().any(|stage| stage.verdict == Verdict::Fail);
        Ok(JudgeReport {
            schema_version: 1,
            recipe: self.recipe.name.clone(),
            golden: self.golden.path.display().to_string(),
            recording: recording.path.display().to_string(),
            format: recording.format,
            arithmetic: self.options.declared.name(),
            verdict: if fails { Verdict::Fail } else { Verdict::Pass },
            stages,
            first_divergence,
            statistics_only: self.matched.entries.values().filter(|entry| entry.content.is_statistics()).count(),
            end_to_end: self.end_to_end()?,
            unmatched: self.matched.unmatched,
            unmatched_allowed: self.options.allow_unmatched,
            not_compared: self.matched.not_compared,
        })
    }

    /// Items for compared and missing quantities, in the order of the graph: stage, place and item.
    fn items(&self) -> Vec<(Stage, usize, Item)> {
        let recorded =
            |target: &Target| self.matched.entries.keys().any(|n| kind(&self.targets.list[*n]) == kind(target));
        let known: HashSet<ValueId> = self.matched.entries.keys().map(|n| self.targets.list[*n].value).collect();
        let mut items = Vec::new();
        for (place, target) in self.targets.list.iter().enumerate() {
            let item = match (self.matched.entries.get(&place), &self.found[place]) {
                (Some(entry), Some(found)) => self.item(place, entry, found),
                (Some(_), None) => Item::wrong(&target.name, "was not reached by the step"),
                // Modules that return the result of another one need not be recorded twice, and parts of a loss are
                // optional.
                (None, _) if target.stage == Stage::Init || known.contains(&target.value) => continue,
                (None, _) if matches!(&target.quantity, Quantity::Loss(name) if name != "loss") => continue,
                (None, _) if self.options.allow_missing || !recorded(target) => continue,
                (None, _) => Item::wrong(&target.name, "is missing from the recording"),
            };
            items.push((target.stage, place, item));
        }
        items
    }

    /// The item of a quantity, with its error in floors.
    fn item(&self, place: usize, entry: &Entry, found: &Found) -> Item {
        let target = &self.targets.list[place];
        if let Some(note) = &found.note {
            return Item::wrong(&target.name, note);
        }
        let narrowest = element_type(self.options.declared.narrowest());
        let types = [entry.claim.dtype, found.stored].into_iter().flatten();
        let stored = types.max_by(|a, b| a.unit_roundoff().total_cmp(&b.unit_roundoff()));
        if let Some(stored) = stored.filter(|stored| stored.unit_roundoff() > narrowest.unit_roundoff()) {
            let name = self.options.declared.name();
            return Item::wrong(&target.name, format!("is {stored}, which {name} has not: declare its --arithmetic"));
        }
        let is_statistics = entry.content.is_statistics();
        let stored = stored.map_or(0.0, ElementType::unit_roundoff);
        let stored = match is_statistics {
            // Recorders sum in f32, in their own order, and round the sum to the type of the tensor.
            true => stored + ElementType::F32.unit_roundoff() * (target.shape.iter().product::<usize>() as f64).sqrt(),
            // The effect of one rounding on a tensor, in L2.
            false => stored / 2.0,
        };
        let least = if target.stage == Stage::Loss { LOSS_FLOOR } else { TENSOR_FLOOR }.max(stored);
        let error = found.worst(is_statistics);
        let Some(cost) = self.cost[place].as_ref().filter(|_| target.stage != Stage::Init) else {
            return Item::measured(&target.name, error, least);
        };
        let rounding = self.rounding[place].as_ref();
        if [Some(cost), rounding].into_iter().flatten().any(|own| own.note.is_some()) {
            return Item::wrong(&target.name, self.overflows(target.stage));
        }
        let lost = cost.worst(is_statistics);
        if lost <= LARGEST_FLOOR {
            return Item::measured(&target.name, error, lost.max(least));
        }
        // From a rounding error in f32 to one in the declared arithmetic.
        let widened = narrowest.unit_roundoff() / ElementType::F32.unit_roundoff();
        let rounding = rounding.map(|rounding| (rounding.worst(is_statistics), rounding.difference));
        let in_own_step = rounding.filter(|(error, _)| is_degenerate(*error)).map(|(_, difference)| difference);
        // The exact value of the tensor is zero, so it consists of rounding errors.
        if let Some(size) = in_own_step.into_iter().chain(self.rounding_alone(target)).reduce(f64::max) {
            let floor = DEGENERATE_FACTOR / F32_WORST * cost.difference.max(widened * size);
            return Item { counts: false, ..Item::measured(&target.name, found.difference, floor) };
        }
        // An error that rounding does not explain comes from the range, and says nothing about other errors.
        let explained = rounding.map_or(0.0, |(error, _)| ORDERS * widened * error);
        let largest = explained.max(LARGEST_FLOOR);
        Item { counts: lost <= largest, ..Item::measured(&target.name, error, lost.min(largest).max(least)) }
    }

    /// The effect on a tensor of rounding errors in a gradient whose exact value is zero; `None` for other tensors. The
    /// golden tells which gradients these are: the recorded operands of zoo's own step may be rounded so that their
    /// exact gradient is not zero any more.
    fn rounding_alone(&self, target: &Target) -> Option<f64> {
        let manifest = &self.golden.manifest;
        let (name, rate) = match &target.quantity {
            Quantity::Gradient(name) => (name, 1.0),
            Quantity::After { kind, name } if kind == PARAMETER => (name, manifest.optimizer.lr_of(name)),
            Quantity::After { name, .. } => (name, 1.0),
            Quantity::Start(_)
            | Quantity::Input(_)
            | Quantity::Into { .. }
            | Quantity::Output(_)
            | Quantity::Loss(_) => return None,
        };
        let gradient = manifest.tensors.get(&format!("{GRAD}{name}"))?;
        is_degenerate(gradient.f32_rel).then_some(rate * gradient.f32_rel * gradient.l2)
    }

    /// Why a tensor cannot be judged that is not finite in zoo's own step.
    fn overflows(&self, stage: Stage) -> String {
        let declared = &self.options.declared;
        let what = format!("zoo's own step in {} overflows here", declared.name());
        match stage > Stage::Loss && declared.loss_scale() > 1.0 {
            true => format!("{what}: lower the loss scale"),
            false => what,
        }
    }

    fn first_divergence(
        &self,
        stages: &[StageReport],
        items: &[(Stage, usize, Item)],
    ) -> Result<Option<Divergence>, GoldenError> {
        let Some(stage) = stages.iter().find(|stage| stage.verdict == Verdict::Fail) else { return Ok(None) };
        let Some(first) = stage.failed.first().or(stage.worst.as_ref()) else { return Ok(None) };
        let place = items.iter().find(|(s, _, item)| *s == stage.stage && item.name == first.name);
        let Some((_, place, _)) = place else { return Ok(None) };
        let target = &self.targets.list[*place];
        let mut divergence = Divergence {
            stage: stage.stage,
            tensor: first.name.clone(),
            node: None,
            local: None,
            suspects: Vec::new(),
            line: None,
            hints: first.note.iter().cloned().collect(),
        };
        let passed = items.iter().filter(|(_, _, item)| item.ratio <= F32_WORST);
        let proven: HashSet<ValueId> = passed.map(|(_, place, _)| self.targets.list[*place].value).collect();
        divergence::locate(&mut divergence, self.graph, target.value, &proven);
        if divergence.line.is_none() {
            let variable = self.graph.find_variable(&target.name).map(|id| self.graph.variable(id));
            divergence.line = variable.and_then(|v| v.origin.as_ref()).map(|origin| origin.span.to_string());
        }
        if target.stage == Stage::Loss {
            let entry = self.matched.entries.get(place);
            let loss = entry.map(|entry| entry.array()).transpose()?.flatten();
            divergence.hints.extend(loss_hints(loss.and_then(|loss| loss.values.first().copied()), self.golden));
        }
        divergence.hints.extend(self.hints(*place)?);
        Ok(Some(divergence))
    }

    /// Outputs and losses of the network against those of the golden, if the recording has all their elements.
    fn end_to_end(&self) -> Result<Vec<Item>, GoldenError> {
        let at_value: HashMap<ValueId, &Entry> =
            self.matched.entries.iter().map(|(place, entry)| (self.targets.list[*place].value, *entry)).collect();
        let mut items = Vec::new();
        for target in &self.targets.list {
            let Some(entry) = at_value.get(&target.value) else { continue };
            let Some(array) = entry.array().ok().flatten() else { continue };
            match &target.quantity {
                Quantity::Output(tap) if tap.starts_with("@root") => {
                    let key = target.quantity.key();
                    let Some(facts) = self.golden.manifest.tensors.get(&key) else { continue };
                    let truth = self.golden.samples(&key, None, facts.shape.iter().product())?;
                    let samples = truth.positions.iter().filter_map(|p| array.values.get(*p).copied()).collect();
                    let stats = Stats::of(&array.values);
                    let measured = Measured { shape: array.shape, stats, samples };
                    let distance = crate::compare::compare(&measured, facts, &truth, Precision::F32);
                    items.push(Item::measured(&target.name, distance.error, distance.floor));
                }
                Quantity::Loss(name) => {
                    let truth = self.golden.manifest.losses_f64.first().and_then(|losses| losses.get(name));
                    let Some((truth, found)) = truth.zip(array.values.first()) else { continue };
                    let scale = if *truth == 0.0 { 1.0 } else { truth.abs() };
                    items.push(Item::measured(name, (found - truth).abs() / scale, LOSS_FLOOR));
                }
                _ => {}
            }
        }
        Ok(items)
    }
}

/// Quantities of one kind are either all recorded, or none of them.
fn kind(target: &Target) -> (Stage, &str) {
    match &target.quantity {
        Quantity::After { kind, .. } => (target.stage, kind),
        Quantity::Start(_)
        | Quantity::Input(_)
        | Quantity::Into { .. }
        | Quantity::Output(_)
        | Quantity::Loss(_)
        | Quantity::Gradient(_) => (target.stage, ""),
    }
}

fn element_type(dtype: DType) -> ElementType {
    match dtype {
        DType::F16 => ElementType::F16,
        DType::Bf16 => ElementType::Bf16,
        DType::F64 => ElementType::F64,
        DType::F32 | DType::U32 => ElementType::F32,
    }
}

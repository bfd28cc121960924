//! Judges the errors of a compared recording.

use super::targets::{PARAMETER, Target, Targets};
use super::{Coverage, JudgeOptions, JudgeReport, Proposal, found::Found, matched::Matched, start::Start};
use crate::{
    GoldenError,
    compare::{
        DEGENERATE_FACTOR, F32_MEDIAN, F32_WORST, LOSS_FLOOR, Measured, ORDERS, Precision, TENSOR_FLOOR, is_degenerate,
    },
    divergence::{self, loss_hints},
    foreign::{Entry, Quantity, Recording},
    golden::{GRAD, Golden},
    report::{Divergence, Item, Stage, StageReport, Verdict},
    stats::Stats,
};
use std::collections::{HashMap, HashSet};
use zoo_graph::{DType, Graph, ValueId};
use zoo_recipe::Recipe;
use zoo_tensors::ElementType;

/// Stages of a recording.
const STAGES: [Stage; 5] = [Stage::Init, Stage::Forward, Stage::Loss, Stage::Backward, Stage::Update];

/// Failures of up to this many limits are close.
const CLOSE: f64 = 3.0;

/// The largest floor of a tensor of which rounding leaves something. With it, an error up to the size of the tensor
/// passes: that of a tensor that underflows altogether.
pub(super) const LARGEST_FLOOR: f64 = 1.0 / F32_WORST;

/// A compared recording.
pub(super) struct Judged<'a> {
    pub recipe: &'a Recipe,
    pub golden: &'a Golden,
    pub graph: &'a Graph,
    pub targets: &'a Targets,
    pub start: &'a Start,
    pub matched: Matched<'a>,
    pub proposal: Proposal,
    /// Error of the recording, by place.
    pub found: Vec<Option<Found>>,
    /// Exact losses, by place.
    pub losses: HashMap<usize, f64>,
    /// Error of zoo's own step in the declared arithmetic, by place.
    pub cost: Vec<Option<Found>>,
    /// Error of zoo's own step in f32, by place; none if no error in `cost` is large.
    pub rounding: Vec<Option<Found>>,
    pub options: &'a JudgeOptions<'a>,
}

impl Judged<'_> {
    /// The verdict.
    ///
    /// # Errors
    /// A tensor of the recording that cannot be read.
    pub fn report(self, recording: &Recording) -> Result<JudgeReport, GoldenError> {
        let items = self.items();
        let places = self.matched.entries.keys().copied().collect();
        let coverage: Vec<Coverage> = STAGES.iter().map(|stage| Coverage::of(*stage, self.targets, &places)).collect();
        let is_accepted = |coverage: &Coverage| self.options.allow_missing.contains(&coverage.stage);
        let stage = |coverage: &Coverage| {
            let of_stage = items.iter().filter(|(s, ..)| *s == coverage.stage);
            let median = coverage.counts().then_some(F32_MEDIAN);
            let of_stage = of_stage.map(|(_, _, item)| item.clone()).collect();
            let mut report = StageReport::of(coverage.stage, of_stage, F32_WORST, median);
            if report.verdict == Verdict::Pass && coverage.counts() && !coverage.is_full() {
                let fails = coverage.suspicious && !is_accepted(coverage);
                report.verdict = if fails { Verdict::Fail } else { Verdict::Partial };
            }
            report
        };
        let stages: Vec<StageReport> = coverage.iter().map(stage).collect();
        let first_divergence = self.first_divergence(&stages, &items)?;
        let unmatched = self.matched.unmatched();
        let fails = !unmatched.is_empty() && !self.options.allow_unmatched;
        let fails = fails || stages.iter().any(|stage| stage.verdict == Verdict::Fail);
        let incomplete = || coverage.iter().filter(|coverage| coverage.counts() && !coverage.is_full());
        let verdict = match (fails, incomplete().next()) {
            (true, _) => Verdict::Fail,
            (false, Some(_)) => Verdict::Partial,
            (false, None) => Verdict::Pass,
        };
        Ok(JudgeReport {
            schema_version: 1,
            recipe: self.recipe.name.clone(),
            golden: self.golden.path.display().to_string(),
            recording: recording.path.display().to_string(),
            format: recording.format,
            arithmetic: self.options.declared.name(),
            step: self.start.step,
            verdict,
            coverage_accepted: incomplete().all(is_accepted),
            stages,
            first_divergence,
            unmatched,
            unmatched_allowed: self.options.allow_unmatched,
            not_finite: recording.not_finite.clone(),
            statistics_only: self.matched.entries.values().filter(|entry| entry.content.is_statistics()).count(),
            end_to_end: self.end_to_end()?,
            proposal: self.proposal,
            wrappers: self.matched.wrappers,
            not_compared: self.matched.not_compared,
            coverage,
        })
    }

    /// Whether a stage fails by so little that the rounding of its operands may explain it. One run in the declared
    /// arithmetic is a sample of that, and a lucky one if the errors of a few tensors have one common cause.
    pub fn is_close(&self) -> bool {
        let items = self.items();
        STAGES.iter().filter(|stage| **stage != Stage::Init).any(|stage| {
            let of_stage = items.iter().filter(|(s, ..)| s == stage).map(|(_, _, item)| item.clone()).collect();
            let report = StageReport::of(*stage, of_stage, F32_WORST, Some(F32_MEDIAN));
            report.verdict == Verdict::Fail && report.failed.iter().all(|item| item.ratio <= CLOSE * F32_WORST)
        })
    }

    /// Takes the larger of two costs of each quantity.
    pub fn widen(&mut self, moved: Vec<Option<Found>>) {
        for (place, moved) in moved.into_iter().enumerate() {
            let is_statistics = self.matched.entries.get(&place).is_some_and(|entry| entry.content.is_statistics());
            if let (Some(cost), Some(moved)) = (&mut self.cost[place], moved)
                && moved.note.is_none()
                && moved.worst(is_statistics) > cost.worst(is_statistics)
            {
                *cost = moved;
            }
        }
    }

    /// Items for compared quantities, in the order of the graph: stage, place and item.
    fn items(&self) -> Vec<(Stage, usize, Item)> {
        let item = |(place, entry): (&usize, &&Entry)| {
            let target = &self.targets.list[*place];
            let item = match &self.found[*place] {
                Some(found) => self.item(*place, entry, found),
                None => Item::wrong(&target.name, "was not reached by the step"),
            };
            (target.stage, *place, item)
        };
        self.matched.entries.iter().map(item).collect()
    }

    /// The item of a quantity, with its error in floors.
    pub fn item(&self, place: usize, entry: &Entry, found: &Found) -> Item {
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
            Quantity::After { kind, name } if kind == PARAMETER => {
                (name, self.start.rate_of(&manifest.optimizer, name))
            }
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
        // What is missing is listed separately, so that it does not hide what differs.
        let differs = |stage: &&StageReport| !stage.failed.is_empty() || stage.median_limit.is_some();
        let Some(stage) = stages.iter().find(differs) else { return Ok(None) };
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
        if target.stage == Stage::Loss && self.start.step == 0 {
            let entry = self.matched.entries.get(place);
            let loss = entry.map(|entry| entry.array()).transpose()?.flatten();
            divergence.hints.extend(loss_hints(loss.and_then(|loss| loss.values.first().copied()), self.golden));
        }
        let explained = self.explain(*place)?;
        if explained.hints.is_empty() {
            divergence.hints.extend(self.hints(*place)?);
        }
        divergence.hints.extend(explained.hints);
        divergence.line = explained.line.or(divergence.line);
        // The update is judged on the recorded gradients, so its faults are others.
        let is_later = |stage: &&StageReport| stage.stage == Stage::Update && target.stage != Stage::Update;
        if let Some(update) = stages.iter().filter(is_later).find_map(|stage| stage.failed.first()) {
            let hints = self.explain_update()?.hints.into_iter();
            divergence.hints.extend(hints.map(|hint| format!("the update of {}: {hint}", update.name)));
        }
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
                Quantity::Output(tap) if tap.starts_with("@root") && self.start.step == 0 => {
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
                    let losses =
                        usize::try_from(self.start.step).ok().and_then(|n| self.golden.manifest.losses_f64.get(n));
                    let truth = losses.and_then(|losses| losses.get(name));
                    let Some((truth, found)) = truth.zip(array.values.first()) else { continue };
                    let scale = if *truth == 0.0 { 1.0 } else { truth.abs() };
                    items.push(Item::measured(name, (found - truth).abs() / scale, LOSS_FLOOR));
                }
                Quantity::Start(_)
                | Quantity::Input(_)
                | Quantity::Into { .. }
                | Quantity::Output(_)
                | Quantity::Gradient(_)
                | Quantity::After { .. } => {}
            }
        }
        Ok(items)
    }
}

/// The element type of a file that holds a type of the step.
pub(super) fn element_type(dtype: DType) -> ElementType {
    match dtype {
        DType::F16 => ElementType::F16,
        DType::Bf16 => ElementType::Bf16,
        DType::F64 => ElementType::F64,
        DType::F32 | DType::U32 => ElementType::F32,
    }
}

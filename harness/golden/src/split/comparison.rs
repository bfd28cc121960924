//! Compares what the ranks have with the step on one device.

use super::{
    LIMIT,
    assembled::{assembled, replicas},
    diagnosis::{diagnose, of_scalar},
    layout::Layout,
    proof::Proof,
    report::{Collectives, Difference, Divided, SplitReport},
    truth::{Key, OBSERVED},
};
use crate::{
    GoldenError, Stage, Verdict,
    report::{Item, StageReport},
};
use std::collections::{BTreeMap, BTreeSet};
use zoo_engine::lockstep::{LockStep, Ranked, RanksObserver};
use zoo_graph::{Origin, TapState, ValueId, VariableId, parallel::MeshAxis};
use zoo_recipe::Placed;

/// Parts of a comparison.
const STAGES: [Stage; 6] =
    [Stage::Init, Stage::Forward, Stage::Loss, Stage::Backward, Stage::Update, Stage::Trajectory];

/// A comparison, with all that the report says about it.
struct Compared {
    stage: Stage,
    key: Key,
    item: Item,
    origin: Option<Origin>,
    /// Whether the note of the item says what is missing.
    explained: bool,
}

/// A value as the ranks have it: each replica, with its first rank.
pub(super) type Replicas = Vec<(usize, Vec<f64>)>;

/// Which values to keep after they have been compared.
pub(super) enum Keep {
    Nothing,
    /// The first ones that differ.
    Differing(usize),
    These(BTreeSet<Key>),
}

/// A comparison that a value of the ranks is for: its stage and key, how it is placed, and its entry in the recipe.
type Wanted = (Stage, Key, Placed, Option<Origin>);

/// Compares what the ranks have with the truth.
pub(super) struct Comparison<'p> {
    proof: &'p Proof,
    /// The step, from 0.
    pub step: usize,
    /// What to compare of each value of a rank in the first step.
    wanted: BTreeMap<ValueId, Vec<Wanted>>,
    compared: Vec<Compared>,
    without_digits: Vec<String>,
    keep: Keep,
    /// What was kept.
    pub kept: BTreeMap<Key, Replicas>,
}

impl<'p> Comparison<'p> {
    /// Of ranks that run in lock-step; `gradients` are those of the graph of a rank.
    pub fn of_ranks(proof: &'p Proof, gradients: &[(VariableId, ValueId)], keep: Keep) -> Self {
        let (whole, split) = (&proof.whole, &proof.split);
        let mut wanted: BTreeMap<ValueId, Vec<_>> = BTreeMap::new();
        for tap in &whole.taps {
            let TapState::Value(value) = tap.state else { continue };
            // Taps of losses and gradients are compared as such.
            let Some(placed) = split.places.get(value.0).cloned().flatten() else { continue };
            let key = Key::Output(tap.key());
            wanted.entry(placed.value).or_default().push((Stage::Forward, key, placed, tap.origin.clone()));
        }
        for (id, value) in gradients {
            let placed = Placed { value: *value, ..split.variable(*id) };
            let variable = whole.variable(*id);
            let key = Key::Gradient(0, variable.name.clone());
            wanted.entry(*value).or_default().push((Stage::Backward, key, placed, variable.origin.clone()));
        }
        Self { wanted, ..Self::new(proof, keep) }
    }

    /// Without values that are awaited.
    pub fn new(proof: &'p Proof, keep: Keep) -> Self {
        let (compared, without_digits) = (Vec::new(), Vec::new());
        Self { proof, step: 0, wanted: BTreeMap::new(), compared, without_digits, keep, kept: BTreeMap::new() }
    }

    /// A value that cannot be compared.
    pub fn wrong(&mut self, stage: Stage, key: &Key, origin: Option<Origin>, note: String) {
        let item = Item::wrong(key.to_string(), note);
        self.compared.push(Compared { stage, key: key.clone(), item, origin, explained: true });
    }

    fn keeps(&mut self, key: &Key, differs: bool, replicas: Replicas) {
        let keeps = match &self.keep {
            Keep::Nothing => false,
            Keep::Differing(most) => differs && self.kept.len() < *most,
            Keep::These(keys) => keys.contains(key),
        };
        if keeps {
            self.kept.insert(key.clone(), replicas);
        }
    }

    /// The values that were compared, each with whether it differs. None of those before the first step.
    pub fn verdicts(&self) -> impl Iterator<Item = (&Key, bool)> {
        let steps = self.compared.iter().filter(|compared| compared.stage != Stage::Init);
        steps.map(|compared| (&compared.key, compared.item.ratio > LIMIT))
    }

    /// The first value that differs, in the order in which a step computes.
    fn first(&self) -> Option<&Compared> {
        self.compared.iter().filter(|compared| compared.item.ratio > LIMIT).min_by_key(|compared| compared.stage)
    }

    /// Whether something differs, and nothing says what is missing.
    pub fn wants_explanation(&self) -> bool {
        self.first().is_some_and(|first| first.stage != Stage::Init && !first.explained)
    }

    /// Compares a value of all ranks, which is laid out in the first of these ways in which it is right, or else in the
    /// one in which it is nearest to that. Returns the way.
    pub fn compare<'l>(
        &mut self,
        stage: Stage,
        key: &Key,
        layouts: &'l [Layout],
        origin: Option<Origin>,
        ranks: &Ranked,
    ) -> candle_core::Result<Option<&'l Layout>> {
        let (mesh, name) = (&self.proof.split.mesh, key.to_string());
        let Some(truth) = self.proof.truth.of_key(key) else {
            self.wrong(stage, key, origin, "one device computes no such value".to_owned());
            return Ok(None);
        };
        if truth.without_digits {
            self.without_digits.push(name.clone());
        }
        let mut nearest: Option<(&'l Layout, Replicas, f64)> = None;
        for layout in layouts {
            let wholes = replicas(assembled(ranks, layout, mesh)?, layout, mesh)?;
            if wholes.is_empty() {
                continue;
            }
            let error = wholes.iter().map(|(_, values)| truth.error(values)).fold(0.0, f64::max);
            if error <= LIMIT * truth.floor {
                let item = Item::measured(name, error, truth.floor);
                self.compared.push(Compared { stage, key: key.clone(), item, origin, explained: false });
                self.keeps(key, false, wholes);
                return Ok(Some(layout));
            }
            if nearest.as_ref().is_none_or(|(_, _, other)| error < *other) {
                nearest = Some((layout, wholes, error));
            }
        }
        let Some((layout, wholes, error)) = nearest else {
            self.wrong(stage, key, origin, "no rank computes it".to_owned());
            return Ok(None);
        };
        let before = key.before().and_then(|before| self.proof.truth.of_key(&before));
        let diagnosis = diagnose((truth, before), &wholes, ranks, layout, mesh)?;
        let item = Item { note: Some(diagnosis.text), ..Item::measured(name, error, truth.floor) };
        self.compared.push(Compared { stage, key: key.clone(), item, origin, explained: diagnosis.explains });
        self.keeps(key, true, wholes);
        Ok(Some(layout))
    }

    /// Compares losses and metrics of a step, each with the ranks that have it.
    pub fn scalars(&mut self, scalars: &[Vec<(usize, f64)>]) {
        scalars.iter().enumerate().for_each(|(n, ranks)| self.scalar(n, ranks));
    }

    /// The n-th loss, or a metric behind the losses.
    fn scalar(&mut self, n: usize, ranks: &[(usize, f64)]) {
        let whole = &self.proof.whole;
        let stage = match (self.step, n < whole.losses.len()) {
            (0, true) => Stage::Loss,
            (0, false) => Stage::Update,
            _ => Stage::Trajectory,
        };
        let Some((name, _)) = whole.losses.iter().chain(&whole.metrics).nth(n) else { return };
        let key = Key::Scalar(self.step, name.clone());
        if ranks.is_empty() {
            return self.wrong(stage, &key, None, "no rank computes it".to_owned());
        }
        let truth = self.proof.truth.loss(self.step, n);
        let error = ranks.iter().map(|(_, value)| truth.error(&[*value])).fold(0.0, f64::max);
        let (mut item, mut explained) = (Item::measured(key.to_string(), error, truth.floor), false);
        if item.ratio > LIMIT {
            let mut values: Vec<String> = ranks.iter().map(|(_, value)| format!("{value:.6}")).collect();
            values.dedup();
            let note = format!("{} on the ranks, {:.6} on one device", values.join(", "), truth.values[0]);
            let before = self.step.checked_sub(1).map(|before| self.proof.truth.loss(before, n));
            let reason = of_scalar((truth, before), ranks, &self.proof.split.mesh);
            explained = reason.is_some();
            item.note = Some(reason.map_or(note.clone(), |reason| format!("{note}: {reason}")));
        }
        self.keeps(&key, item.ratio > LIMIT, ranks.iter().map(|(rank, value)| (*rank, vec![*value])).collect());
        self.compared.push(Compared { stage, key, item, origin: None, explained });
    }

    /// Compares a recorded loss: each rank has all of it, or its term of the sum over the ranks that share the samples.
    pub fn recorded_loss(&mut self, name: &str, ranks: &[(usize, f64)]) {
        let (whole, mesh) = (&self.proof.whole, &self.proof.split.mesh);
        let Some(n) = whole.losses.iter().position(|(known, _)| known == name) else { return };
        let truth = self.proof.truth.loss(self.step, n);
        // Ranks that share layers have the same samples, and so the same term.
        let terms = ranks.iter().filter(|(rank, _)| mesh.place(*rank, MeshAxis::Tensor) == 0);
        let sum: f64 = terms.map(|(_, value)| value).sum();
        let is_sum = truth.error(&[sum]) <= LIMIT * truth.floor;
        let sum = [(0, sum)];
        self.scalar(n, if is_sum { &sum } else { ranks });
    }

    /// Compares the variables after a step: after the first one and the last one.
    ///
    /// # Errors
    /// An error of candle.
    pub fn variables(&mut self, ranks: &LockStep) -> Result<(), GoldenError> {
        if self.step > 0 && self.step + 1 < self.proof.options.steps {
            return Ok(());
        }
        let stage = if self.step == 0 { Stage::Update } else { Stage::Trajectory };
        let whole = &self.proof.whole;
        for (n, variable) in whole.variables.iter().enumerate().filter(|(_, variable)| variable.next.is_some()) {
            let id = VariableId(n);
            let key = Key::Variable(self.step, variable.name.clone());
            let layout = [self.proof.split.variable(id).placements];
            let compared = self.compare(stage, &key, &layout, variable.origin.clone(), ranks.variable(id));
            compared.map_err(zoo_engine::EngineError::from)?;
        }
        Ok(())
    }

    /// The verdict, with what ranks do together, and what of the parameters each has.
    pub fn report(self, collectives: Vec<Collectives>, divided: Vec<Divided>) -> SplitReport {
        let first_divergence = self.first().map(|first| {
            let explanation = first.item.note.clone().unwrap_or_default();
            let line = first.origin.as_ref().map(|origin| origin.span.to_string());
            let (stage, tensor) = (first.stage, first.item.name.clone());
            Difference { stage, tensor, explanation, line }
        });
        let Self { proof, compared, without_digits, .. } = self;
        let Proof { recipe, parallel, options, split, .. } = proof;
        let stage = |stage| {
            let items: Vec<Item> = compared.iter().filter(|c| c.stage == stage).map(|c| c.item.clone()).collect();
            (!items.is_empty()).then(|| StageReport::of(stage, items, LIMIT, None))
        };
        let stages: Vec<StageReport> = STAGES.into_iter().filter_map(stage).collect();
        let passed = !stages.is_empty() && stages.iter().all(|stage| stage.verdict == Verdict::Pass);
        SplitReport {
            schema_version: 1,
            recipe: recipe.name.clone(),
            parallel: parallel.to_string(),
            ranks: split.mesh.devices(),
            batch: options.batch,
            dtype: options.precision,
            collectives,
            divided,
            without_digits,
            stages,
            first_divergence,
            verdict: if passed { Verdict::Pass } else { Verdict::Fail },
        }
    }
}

impl RanksObserver for Comparison<'_> {
    fn wants(&self, value: ValueId) -> bool {
        let observed = |key: &Key| self.step == 0 || self.step < OBSERVED && matches!(key, Key::Gradient(..));
        self.wanted.get(&value).is_some_and(|wanted| wanted.iter().any(|(_, key, ..)| observed(key)))
    }

    fn observe(&mut self, value: ValueId, ranks: &Ranked) -> candle_core::Result<()> {
        for (stage, key, placed, origin) in self.wanted.get(&value).cloned().unwrap_or_default() {
            let (stage, key) = match (self.step, key) {
                (0, key) => (stage, key),
                (step, Key::Gradient(_, name)) => (Stage::Trajectory, Key::Gradient(step, name)),
                (_, Key::Start(_) | Key::Output(_) | Key::Variable(..) | Key::Scalar(..)) => continue,
            };
            self.compare(stage, &key, &[placed.placements], origin, ranks)?;
        }
        Ok(())
    }
}

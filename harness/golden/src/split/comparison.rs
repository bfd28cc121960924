//! Compares what the ranks have with the step on one device.

use super::{
    LIMIT,
    assembled::{assembled, replicas},
    diagnosis::diagnose,
    layout::Layout,
    proof::Proof,
    report::{Collectives, Difference, Divided, SplitReport},
    truth::Key,
};
use crate::{
    GoldenError, Stage, Verdict,
    report::{Item, StageReport},
};
use std::collections::BTreeMap;
use zoo_engine::lockstep::{LockStep, Ranked, RanksObserver};
use zoo_graph::{Origin, TapState, ValueId, VariableId, parallel::MeshAxis};
use zoo_recipe::Placed;

/// Parts of a comparison.
const STAGES: [Stage; 6] =
    [Stage::Init, Stage::Forward, Stage::Loss, Stage::Backward, Stage::Update, Stage::Trajectory];

/// A comparison, with all that the report says about it.
struct Compared {
    stage: Stage,
    item: Item,
    origin: Option<Origin>,
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
}

impl<'p> Comparison<'p> {
    /// Of ranks that run in lock-step; `gradients` are those of the graph of a rank.
    pub fn of_ranks(proof: &'p Proof, gradients: &[(VariableId, ValueId)]) -> Self {
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
            let key = Key::Gradient(variable.name.clone());
            wanted.entry(*value).or_default().push((Stage::Backward, key, placed, variable.origin.clone()));
        }
        Self { wanted, ..Self::new(proof) }
    }

    /// Without values that are awaited.
    pub fn new(proof: &'p Proof) -> Self {
        Self { proof, step: 0, wanted: BTreeMap::new(), compared: Vec::new(), without_digits: Vec::new() }
    }

    /// A value that cannot be compared.
    pub fn wrong(&mut self, stage: Stage, key: &Key, origin: Option<Origin>, note: String) {
        self.compared.push(Compared { stage, item: Item::wrong(key.to_string(), note), origin });
    }

    /// Compares a value of all ranks, which is laid out in the first of these ways in which it is right, or else in the
    /// first one. Returns the way.
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
        let mut first = None;
        for layout in layouts {
            let wholes = replicas(assembled(ranks, layout, mesh)?, layout, mesh)?;
            let error = wholes.iter().map(|(_, values)| truth.error(values)).fold(0.0, f64::max);
            if !wholes.is_empty() && error <= LIMIT * truth.floor {
                self.compared.push(Compared { stage, item: Item::measured(name, error, truth.floor), origin });
                return Ok(Some(layout));
            }
            first = first.or(Some((layout, wholes, error)));
        }
        let item = match &first {
            Some((layout, wholes, error)) if !wholes.is_empty() => {
                let note = Some(diagnose(truth, wholes, ranks, layout, mesh)?);
                Item { note, ..Item::measured(name, *error, truth.floor) }
            }
            Some(_) | None => Item::wrong(name, "no rank computes it"),
        };
        self.compared.push(Compared { stage, item, origin });
        Ok(first.map(|(layout, ..)| layout))
    }

    /// Compares losses and metrics of a step, each with the rank that has it.
    pub fn scalars(&mut self, scalars: &[Vec<(usize, f64)>]) {
        let whole = &self.proof.whole;
        let names = whole.losses.iter().chain(&whole.metrics).map(|(name, _)| name);
        for (n, (name, ranks)) in names.zip(scalars).enumerate() {
            let stage = match (self.step, n < whole.losses.len()) {
                (0, true) => Stage::Loss,
                (0, false) => Stage::Update,
                _ => Stage::Trajectory,
            };
            let truth = self.proof.truth.loss(self.step, n);
            let name = if self.step == 0 { name.clone() } else { format!("{name} of step {}", self.step + 1) };
            let error = ranks.iter().map(|(_, value)| truth.error(&[*value])).fold(0.0, f64::max);
            let mut item = match ranks.is_empty() {
                true => Item::wrong(name, "no rank computes it"),
                false => Item::measured(name, error, truth.floor),
            };
            if item.ratio > LIMIT && !ranks.is_empty() {
                let values: Vec<String> = ranks.iter().map(|(_, value)| format!("{value:.6}")).collect();
                item.note = Some(format!("{} on the ranks, {:.6} on one device", values.join(", "), truth.values[0]));
            }
            self.compared.push(Compared { stage, item, origin: None });
        }
    }

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

    /// Compares a recorded loss: each rank has all of it, or its term of the sum over the ranks that share the samples.
    pub fn recorded_loss(&mut self, name: &str, ranks: &[(usize, f64)]) {
        let (whole, mesh) = (&self.proof.whole, &self.proof.split.mesh);
        let Some(n) = whole.losses.iter().position(|(known, _)| known == name) else { return };
        let truth = self.proof.truth.loss(self.step, n);
        let worst = |values: &[f64]| values.iter().map(|value| truth.error(&[*value])).fold(0.0, f64::max);
        // Ranks that share layers have the same samples, and so the same term.
        let counted = |rank: usize| mesh.place(rank, MeshAxis::Tensor) == 0;
        let all: Vec<f64> = ranks.iter().map(|(_, value)| *value).collect();
        let sum: f64 = ranks.iter().filter(|(rank, _)| counted(*rank)).map(|(_, value)| value).sum();
        let error = worst(&all).min(worst(&[sum]));
        let stage = if self.step == 0 { Stage::Loss } else { Stage::Trajectory };
        let name = if self.step == 0 { name.to_owned() } else { format!("{name} of step {}", self.step + 1) };
        let mut item = Item::measured(name, error, truth.floor);
        if item.ratio > LIMIT {
            let values: Vec<String> = all.iter().map(|value| format!("{value:.6}")).collect();
            item.note = Some(format!("{} on the ranks, {:.6} on one device", values.join(", "), truth.values[0]));
        }
        self.compared.push(Compared { stage, item, origin: None });
    }

    /// The verdict, with what ranks do together, and what of the parameters each has.
    pub fn report(self, collectives: Vec<Collectives>, divided: Vec<Divided>) -> SplitReport {
        let Self { proof, compared, without_digits, .. } = self;
        let Proof { recipe, parallel, options, split, .. } = proof;
        let first_divergence = compared.iter().filter(|c| c.item.ratio > LIMIT).min_by_key(|c| c.stage).map(|first| {
            let explanation = first.item.note.clone().unwrap_or_default();
            let line = first.origin.as_ref().map(|origin| origin.span.to_string());
            let (stage, tensor) = (first.stage, first.item.name.clone());
            Difference { stage, tensor, explanation, line }
        });
        let stage = |stage| {
            let items: Vec<Item> = compared.iter().filter(|c| c.stage == stage).map(|c| c.item.clone()).collect();
            (!items.is_empty()).then(|| StageReport::of(stage, items, LIMIT, None))
        };
        let stages: Vec<StageReport> = STAGES.into_iter().filter_map(stage).collect();
        let passed = !stages.is_empty() && stages.iter().all(|stage| stage.verdict == Verdict::Pass);
        SplitReport {
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
        self.step == 0 && self.wanted.contains_key(&value)
    }

    fn observe(&mut self, value: ValueId, ranks: &Ranked) -> candle_core::Result<()> {
        for (stage, key, placed, origin) in self.wanted.get(&value).cloned().unwrap_or_default() {
            self.compare(stage, &key, &[placed.placements], origin, ranks)?;
        }
        Ok(())
    }
}

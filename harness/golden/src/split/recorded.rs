//! Judges the steps that several ranks recorded: what they have together is compared with the step on one device.

use super::{
    SplitOptions, SplitReport,
    comparison::{Comparison, Keep},
    layout::{Layout, layouts, named},
    proof::Proof,
    report::Divided,
    suspects::{KEPT, suspects},
    truth::{Key, OBSERVED},
};
use crate::{
    GoldenError, Stage, Verdict,
    foreign::{Entry, Quantity, RankRecordings},
    judge::{Coverage, Matched, Target, Targets},
};
use candle_core::{Device, Tensor};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use zoo_engine::{EngineError, lockstep::Ranked};
use zoo_graph::{
    Origin, TapState, VariableId,
    parallel::{Mesh, MeshAxis},
};
use zoo_recipe::{Parallel, Recipe};

/// What a recording need not have.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The factor on the recorded gradients, unless the recording says one.
    pub loss_scale: f64,
    /// Whether it may have names without a meaning in the step.
    pub allow_unmatched: bool,
    /// Stages of which it may lack quantities.
    pub allow_missing: &'a [Stage],
}

/// The verdict on steps that several ranks recorded.
#[derive(Clone, Debug, Serialize)]
pub struct RecordedSplit {
    /// The recording.
    pub recording: String,
    /// Number of recorded steps.
    pub steps: usize,
    /// What was compared.
    #[serde(flatten)]
    pub split: SplitReport,
    /// How much of each stage of the first step was compared.
    pub coverage: Vec<Coverage>,
    /// Whether the stages that are not completely recorded may be so.
    pub coverage_accepted: bool,
    /// Names without a meaning in the step; a failure unless they are allowed.
    pub unmatched: Vec<String>,
    /// Whether they are allowed.
    pub unmatched_allowed: bool,
    /// Number of contents that are not compared, by kind.
    pub not_compared: BTreeMap<String, usize>,
}

impl RecordedSplit {
    /// Whether everything was compared and passes, or everything compared passes and the rest need not be there.
    pub fn is_accepted(&self) -> bool {
        match self.split.verdict {
            Verdict::Pass => true,
            Verdict::Partial => self.coverage_accepted,
            Verdict::Fail | Verdict::Absent => false,
        }
    }

    /// The stages of which something is missing that the verdict needs.
    pub fn incomplete(&self) -> impl Iterator<Item = &Coverage> {
        self.coverage.iter().filter(|coverage| coverage.counts() && !coverage.is_full())
    }
}

/// Judges recorded steps. `progress` is told what is computed.
///
/// # Errors
/// A split that does not fit the network, an engine that fails, or a recording that cannot be read.
pub fn judge_split(
    recipe: &Recipe,
    parallel: &Parallel,
    options: &SplitOptions,
    (path, recordings): (&str, &RankRecordings),
    wanted: &Wanted<'_>,
    progress: &mut dyn FnMut(&str),
) -> Result<RecordedSplit, GoldenError> {
    let steps = recordings.steps.len();
    let proof = Proof::of_recorded(recipe, parallel, options, progress)?;
    progress("the recordings of all ranks");
    let targets = Targets::of(&proof.whole, &proof.recipe);
    let judging = Judging::of(&proof, &targets, recordings, wanted)?;
    let Judging { comparison, divided, places, unmatched, not_compared, .. } = judging;
    let divided = divided.into_iter().map(|(parameter, placement)| Divided { parameter, placement });
    progress("what may be wrong");
    let as_if = suspects(recipe, &proof, &comparison)?;
    let mut split = comparison.report(Vec::new(), divided.collect());
    if let (Some(first), Some(as_if)) = (&mut split.first_divergence, as_if) {
        first.explanation = format!("{}: as if {as_if}", first.explanation);
    }
    let coverage = [Stage::Init, Stage::Forward, Stage::Loss, Stage::Backward, Stage::Update];
    let coverage: Vec<Coverage> = coverage.map(|stage| Coverage::of(stage, &targets, &places)).into();
    let mut lacking = coverage.iter().filter(|coverage| coverage.counts() && !coverage.is_full()).peekable();
    let (partial, coverage_accepted) =
        (lacking.peek().is_some(), lacking.all(|coverage| wanted.allow_missing.contains(&coverage.stage)));
    let unmatched: Vec<String> = unmatched.into_iter().collect();
    split.verdict = match (split.verdict, partial) {
        (Verdict::Pass, _) if !unmatched.is_empty() && !wanted.allow_unmatched => Verdict::Fail,
        (Verdict::Pass, true) => Verdict::Partial,
        (verdict, _) => verdict,
    };
    Ok(RecordedSplit {
        recording: path.to_owned(),
        steps,
        split,
        coverage,
        coverage_accepted,
        unmatched,
        unmatched_allowed: wanted.allow_unmatched,
        not_compared,
    })
}

/// How zoo divides values, and their entries in the recipe.
fn planned(proof: &Proof) -> BTreeMap<Key, (Layout, Option<Origin>)> {
    let (whole, split) = (&proof.whole, &proof.split);
    let mut planned = BTreeMap::new();
    for tap in &whole.taps {
        if let TapState::Value(value) = tap.state
            && let Some(placed) = split.places.get(value.0).cloned().flatten()
        {
            planned.insert(Key::Output(tap.key()), (placed.placements, tap.origin.clone()));
        }
    }
    for (n, variable) in whole.variables.iter().enumerate() {
        let (placed, name) = (split.variable(VariableId(n)).placements, &variable.name);
        for key in [Key::Start(name.clone()), Key::Gradient(0, name.clone()), Key::Variable(0, name.clone())] {
            planned.insert(key, (placed.clone(), variable.origin.clone()));
        }
    }
    for input in &whole.inputs {
        if let Some(placed) = split.places[input.value.0].clone() {
            planned.insert(Key::Start(input.name.clone()), (placed.placements, None));
        }
    }
    planned
}

/// Recordings that are being judged.
struct Judging<'p> {
    proof: &'p Proof,
    targets: &'p Targets,
    planned: BTreeMap<Key, (Layout, Option<Origin>)>,
    comparison: Comparison<'p>,
    /// Parameters that are not whole, as they are found.
    divided: BTreeMap<String, String>,
    /// Targets that the first step has.
    places: BTreeSet<usize>,
    unmatched: BTreeSet<String>,
    not_compared: BTreeMap<String, usize>,
}

/// What a rank has of a quantity, and what it says about it.
type Found<'r> = Option<&'r Entry>;

impl<'p> Judging<'p> {
    /// Judges all steps.
    fn of(
        proof: &'p Proof,
        targets: &'p Targets,
        recordings: &RankRecordings,
        wanted: &Wanted<'_>,
    ) -> Result<Self, GoldenError> {
        let mut judging = Self {
            proof,
            targets,
            planned: planned(proof),
            comparison: Comparison::new(proof, Keep::Differing(KEPT)),
            divided: BTreeMap::new(),
            places: BTreeSet::new(),
            unmatched: BTreeSet::new(),
            not_compared: BTreeMap::new(),
        };
        for (n, ranks) in recordings.steps.iter().enumerate() {
            judging.comparison.step = n;
            judging.step(n, ranks, wanted)?;
        }
        Ok(judging)
    }

    /// Judges a step: by rank and micro-batch, what each recorded.
    fn step(
        &mut self,
        n: usize,
        ranks: &[Vec<crate::foreign::Recording>],
        wanted: &Wanted<'_>,
    ) -> Result<(), GoldenError> {
        let mesh = &self.proof.split.mesh;
        let devices = mesh.devices();
        // A micro-batch is the slowest axis of the mesh.
        let all = (0..mesh.ranks()).map(|rank| Matched::of(&ranks[rank % devices][rank / devices], self.targets));
        let all = all.collect::<Result<Vec<_>, _>>()?;
        let scales: Vec<f64> = ranks.iter().map(|own| own[0].loss_scale.unwrap_or(wanted.loss_scale)).collect();
        for matched in &all {
            self.unmatched.extend(matched.unknown.iter().cloned());
            for entry in &matched.strangers {
                // Without a name in the recipe, such as an activation between two layers.
                match matches!(entry.quantity, Quantity::Output(_)) {
                    true => *self.not_compared.entry("outputs of other layers".to_owned()).or_default() += 1,
                    false => drop(self.unmatched.insert(entry.name.clone())),
                }
            }
            for (kind, count) in &matched.not_compared {
                *self.not_compared.entry(kind.clone()).or_default() += count;
            }
        }
        let places: BTreeSet<usize> = all.iter().flat_map(|matched| matched.entries.keys().copied()).collect();
        for place in places {
            let found: Vec<Found<'_>> = all.iter().map(|matched| matched.entries.get(&place).copied()).collect();
            if self.target(n, &self.targets.list[place], &found, &scales)? && n == 0 {
                self.places.insert(place);
            }
        }
        Ok(())
    }

    /// Judges a quantity of a step; whether there is something to compare.
    fn target(&mut self, n: usize, target: &Target, found: &[Found<'_>], scales: &[f64]) -> Result<bool, GoldenError> {
        let later = |stage| if n == 0 { stage } else { Stage::Trajectory };
        let last = n == 0 || n + 1 == self.proof.options.steps;
        let (stage, key) = match &target.quantity {
            Quantity::Start(name) | Quantity::Input(name) if n == 0 => (Stage::Init, Key::Start(name.clone())),
            Quantity::Output(tap) if n == 0 => (Stage::Forward, Key::Output(tap.clone())),
            Quantity::Gradient(name) if n < OBSERVED => (later(Stage::Backward), Key::Gradient(n, name.clone())),
            Quantity::After { .. } if last => (later(Stage::Update), Key::Variable(n, target.name.clone())),
            Quantity::Loss(name) => return self.loss(name, found),
            Quantity::Start(_) | Quantity::Input(_) | Quantity::Into { .. } => return Ok(false),
            Quantity::Output(_) | Quantity::Gradient(_) | Quantity::After { .. } => return Ok(false),
        };
        let mut ranks: Ranked = Vec::new();
        for (rank, entry) in found.iter().enumerate() {
            let scale = if matches!(key, Key::Gradient(..)) { scales[rank % scales.len()] } else { 1.0 };
            ranks.push(entry.map(|entry| tensor(entry, scale)).transpose()?.flatten());
        }
        if ranks.iter().all(Option::is_none) {
            *self.not_compared.entry("statistics without elements".to_owned()).or_default() += 1;
            return Ok(false);
        }
        let first = match &key {
            Key::Variable(_, name) => Key::Variable(0, name.clone()),
            Key::Gradient(_, name) => Key::Gradient(0, name.clone()),
            Key::Start(_) | Key::Output(_) | Key::Scalar(..) => key.clone(),
        };
        let (planned, origin) = self.planned.get(&first).cloned().unwrap_or_default();
        let mesh = &self.proof.split.mesh;
        if let Some(rank) = lost(&ranks, mesh).filter(|_| !self.is_slot(target)) {
            self.comparison.wrong(stage, &key, origin, format!("{} has not recorded it", named(rank, mesh)));
            return Ok(true);
        }
        let mut all = found.iter().flatten().map(|entry| entry.claim.placed.as_ref());
        let said = all.next().flatten();
        if all.any(|other| other != said) {
            let note = "the ranks do not say the same about what each has of it".to_owned();
            self.comparison.wrong(stage, &key, origin, note);
            return Ok(true);
        }
        let ways = match layouts(&target.shape, &ranks, said, &planned, mesh) {
            Ok(ways) => ways,
            Err(note) => {
                self.comparison.wrong(stage, &key, origin, note);
                return Ok(true);
            }
        };
        let way = self.comparison.compare(stage, &key, &ways, origin, &ranks).map_err(EngineError::from)?;
        if let (Key::Variable(0, name), Some(way)) = (&key, way.filter(|way| !way.is_empty())) {
            let way: Vec<String> = way.iter().map(|(axis, placement)| format!("{axis}: {placement}")).collect();
            self.divided.insert(name.clone(), way.join(", "));
        }
        Ok(true)
    }

    /// A loss: each rank has all of it, or its part of the sum.
    fn loss(&mut self, name: &str, found: &[Found<'_>]) -> Result<bool, GoldenError> {
        let mut values = Vec::new();
        for (rank, entry) in found.iter().enumerate() {
            let array = entry.map(Entry::array).transpose()?.flatten();
            values.extend(array.and_then(|array| array.values.first().copied()).map(|value| (rank, value)));
        }
        let is_there = !values.is_empty();
        if is_there {
            self.comparison.recorded_loss(name, &values);
        }
        Ok(is_there)
    }

    /// Whether it is a slot of the optimizer, which one rank may keep for the others.
    fn is_slot(&self, target: &Target) -> bool {
        let whole = &self.proof.whole;
        matches!(target.quantity, Quantity::After { .. })
            && whole.find_variable(&target.name).is_some_and(|id| whole.variable(id).role.kept_beside().is_some())
    }
}

/// The elements of an entry in f64, divided by the loss scale; `None` for statistics.
fn tensor(entry: &Entry, scale: f64) -> Result<Option<Tensor>, GoldenError> {
    let Some(array) = entry.array()? else { return Ok(None) };
    let values: Vec<f64> = array.values.iter().map(|x| x / scale).collect();
    let tensor = Tensor::from_vec(values, array.shape, &Device::Cpu);
    Ok(Some(tensor.map_err(EngineError::from)?))
}

/// A rank that lacks what another one in the same stage and micro-batch has.
fn lost(ranks: &Ranked, mesh: &Mesh) -> Option<usize> {
    let beside = |a: usize, b: usize| {
        [MeshAxis::Pipeline, MeshAxis::MicroBatch].iter().all(|axis| mesh.place(a, *axis) == mesh.place(b, *axis))
    };
    (0..ranks.len()).find(|rank| {
        ranks[*rank].is_none() && (0..ranks.len()).any(|other| ranks[other].is_some() && beside(*rank, other))
    })
}

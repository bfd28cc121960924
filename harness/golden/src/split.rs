//! Proves a split step: all ranks run in lock-step, and what they have together is compared with the step on one device.
//!
//! The step on one device in f64 is the truth, under conditions that follow from the recipe alone: a golden proves it
//! for its own sizes. A second run of it, moved in its last place, shows how much of a difference rounding explains.
//! Then the ranks run the same steps; every module output, loss, gradient and update is put together from the ranks,
//! replicas are compared one by one, and what differs is explained (`diagnosis`).

mod assembled;
mod diagnosis;
pub mod mutants;
mod truth;

use crate::{
    GoldenError, Precision, Stage, Verdict,
    bound::with_parts_of_golden,
    record::{self, conditions::conditions, inputs::MadeInputs},
    report::{Item, StageReport},
};
use assembled::{assembled, replicas};
use candle_core::{Device, Tensor};
use diagnosis::diagnose;
use serde::Serialize;
use std::collections::BTreeMap;
use truth::{Key, Truth};
use zoo_engine::{
    Inputs, StepMemory, candle_dtype,
    lockstep::{Disturbance, LockStep, Ranked, RanksObserver, part_of},
};
use zoo_graph::{
    Bytes, DType, Graph, NodeId, Origin, TapState, ValueId, VariableId,
    parallel::{MeshAxis, Placement},
};
use zoo_recipe::{BuildOptions, Mode, Parallel, Placed, Recipe, SplitStep, build_split};

/// Conditions of a proof.
#[derive(Clone, Debug)]
pub struct SplitOptions {
    /// The arithmetic of the ranks.
    pub precision: Precision,
    /// Samples per step, of all ranks together.
    pub batch: usize,
}

/// Learning rate of all steps: small enough for three steps of any optimizer.
const LEARNING_RATE: f64 = 1e-3;

/// Number of steps.
pub const STEPS: usize = 3;

/// Largest error of a tensor, in floors.
const LIMIT: f64 = 10.0;

/// The verdict on a split step.
#[derive(Clone, Debug, Serialize)]
pub struct SplitReport {
    /// The recipe.
    pub recipe: String,
    /// The split.
    pub parallel: String,
    /// Number of ranks.
    pub ranks: usize,
    /// Samples per step.
    pub batch: usize,
    /// The arithmetic of the ranks.
    pub dtype: Precision,
    /// What ranks do together in a step.
    pub collectives: Vec<Collectives>,
    /// Parameters of which each rank has a part.
    pub divided: Vec<Divided>,
    /// Values that are rounding alone on one device too: a gradient that is zero in exact arithmetic, and what an
    /// optimizer makes of it. They are judged by their size.
    pub without_digits: Vec<String>,
    /// The stages.
    pub stages: Vec<StageReport>,
    /// The first value that differs, in the order in which the step computes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_divergence: Option<Difference>,
    /// The result.
    pub verdict: Verdict,
}

/// Operators of one kind that ranks compute together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Collectives {
    /// The operator of the device.
    pub operator: &'static str,
    /// The axis of the mesh.
    pub over: MeshAxis,
    /// How many a step has.
    pub count: usize,
    /// Bytes that a rank gives to them, in f32.
    pub bytes: u64,
}

/// A parameter of which each rank has a part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Divided {
    /// The parameter.
    pub parameter: String,
    /// How it is divided.
    pub placement: String,
}

/// A value that differs.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// The part of the check.
    pub stage: Stage,
    /// The value.
    pub tensor: String,
    /// What is wrong with it.
    pub explanation: String,
    /// The line of the recipe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
}

impl SplitReport {
    /// Whether all ranks together compute the step of one device.
    pub fn passed(&self) -> bool {
        self.verdict == Verdict::Pass
    }
}

/// A proof before its ranks run: the truth, and the start of the steps.
pub struct Proof {
    recipe: Recipe,
    parallel: Parallel,
    options: SplitOptions,
    whole: Graph,
    truth: Truth,
    start: Vec<Vec<f32>>,
    inputs: Inputs,
    split: SplitStep,
}

/// Checks a split of a recipe's step. `progress` is told what is computed.
///
/// # Errors
/// A split that does not fit the network, or an engine that fails.
pub fn check_split(
    recipe: &Recipe,
    parallel: &Parallel,
    options: &SplitOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<SplitReport, GoldenError> {
    let proof = Proof::new(recipe, parallel, options, progress)?;
    progress("the ranks in lock-step");
    proof.judge(proof.split.graph.clone(), &[])
}

/// Number of calls of `progress` of [`check_split`].
pub const PHASES: usize = 3;

/// What the graph of a step is for.
fn build_options(options: &SplitOptions, dtype: DType) -> BuildOptions {
    BuildOptions { mode: Mode::Train, batch: options.batch, dtype, dropout: true, epoch: 0 }
}

/// The type in which ranks compute.
fn dtype(precision: Precision) -> DType {
    match precision {
        Precision::F64 => DType::F64,
        Precision::F32 => DType::F32,
    }
}

/// Peak memory of a proof, on top of what the process has: one device with what is kept of its two runs, or all ranks with
/// what is kept of one; and copies of the largest value while it is compared.
///
/// # Errors
/// As [`check_split`].
pub fn memory(recipe: &Recipe, parallel: &Parallel, options: &SplitOptions) -> Result<Bytes, GoldenError> {
    let recipe = with_parts_of_golden(recipe);
    let model = recipe.resolve().map_err(|d| GoldenError::Recipe(d.to_string()))?;
    let whole = zoo_recipe::build(&recipe, &model, &build_options(options, DType::F64))?;
    let split = build_split(&recipe, &model, &build_options(options, dtype(options.precision)), parallel)?;
    let taps =
        whole.taps.iter().filter_map(|tap| if let TapState::Value(value) = tap.state { Some(value) } else { None });
    let once = taps.chain(whole.gradients.iter().map(|(_, value)| *value));
    // Variables are kept after the first and the last step, and before the first.
    let variables = whole.variables.iter().flat_map(|variable| [variable.value; 3]);
    let kept: u64 = once.chain(variables).map(|value| whole.ty(value).bytes().0).sum();
    let one = StepMemory::of(whole, record::REFERENCE, None)?;
    let rank = StepMemory::of(split.graph, record::REFERENCE, None)?;
    let ranks = Bytes(split.mesh.ranks() as u64 * rank.peak().0 + kept);
    Ok((one.peak() + Bytes(2 * kept)).max(ranks) + Bytes(COPIES * one.largest.0))
}

/// Copies of a value while it is compared: joined, as numbers in f64, and scaled for an explanation.
const COPIES: u64 = 4;

impl Proof {
    /// Computes the truth.
    ///
    /// # Errors
    /// As [`check_split`].
    pub fn new(
        recipe: &Recipe,
        parallel: &Parallel,
        options: &SplitOptions,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self, GoldenError> {
        let recipe = with_parts_of_golden(recipe);
        let model = recipe.resolve().map_err(|d| GoldenError::Recipe(d.to_string()))?;
        let whole = zoo_recipe::build(&recipe, &model, &build_options(options, DType::F64))?;
        // A split that does not fit is refused before anything is computed.
        let split = build_split(&recipe, &model, &build_options(options, dtype(options.precision)), parallel)?;
        let recorded = record::RecordOptions {
            batch: options.batch,
            learning_rate: LEARNING_RATE,
            salt: String::new(),
            samples: 0,
        };
        let made = MadeInputs::of(&recipe, &whole, model.classes, &recorded.salt);
        let manifest = conditions(&recipe, &whole, &made, &recorded);
        let inputs = truth::uneven(&whole, made.tensors(&whole)?)?;
        let numel = |v: &zoo_graph::Variable| whole.ty(v.value).shape.numel();
        let start = whole.variables.iter().map(|v| record::start_values(&manifest, &v.name, numel(v), false)).collect();
        let truth = Truth::of(&recipe, &model, options, (&whole, &start, &inputs), progress)?;
        let (parallel, options) = (parallel.clone(), options.clone());
        Ok(Self { recipe, parallel, options, whole, truth, start, inputs, split })
    }

    /// The graph of a rank.
    pub fn graph(&self) -> &Graph {
        &self.split.graph
    }

    /// Runs a graph on all ranks, and compares them with the truth: the graph of the split step, or one with a planted
    /// fault.
    ///
    /// # Errors
    /// An engine that fails.
    pub fn judge(&self, graph: Graph, disturbed: &[(NodeId, Disturbance)]) -> Result<SplitReport, GoldenError> {
        let mut ranks = LockStep::new(graph, self.split.mesh.clone())?;
        disturbed.iter().for_each(|(node, by)| ranks.disturb(*node, *by));
        self.set_start(&mut ranks)?;
        let inputs = self.inputs_of_ranks()?;
        let mut judge = Judge::new(self, &ranks.graph().gradients);
        for n in 0..STEPS {
            judge.step = n;
            let scalars = ranks.run(&inputs, truth::scalars(n), &mut judge)?;
            judge.scalars(&scalars);
            judge.variables(&ranks)?;
        }
        Ok(judge.report())
    }

    fn set_start(&self, ranks: &mut LockStep) -> Result<(), GoldenError> {
        for (n, values) in self.start.iter().enumerate() {
            let id = VariableId(n);
            let shape = self.whole.ty(self.whole.variable(id).value).shape.to_vec();
            let dtype = candle_dtype(ranks.graph().ty(ranks.graph().variable(id).value).dtype);
            let whole = Tensor::from_vec(values.clone(), shape, &Device::Cpu).and_then(|t| t.to_dtype(dtype));
            let parts = self.parts(&whole.map_err(zoo_engine::EngineError::from)?, &self.split.variable(id))?;
            let mesh = &self.split.mesh;
            let has = |rank: usize| self.split.has(mesh.place(rank, MeshAxis::Pipeline), id);
            let parts = parts.into_iter().enumerate().map(|(rank, part)| part.filter(|_| has(rank)));
            ranks.set_variable(id, parts.collect());
        }
        Ok(())
    }

    fn inputs_of_ranks(&self) -> Result<Vec<Ranked>, GoldenError> {
        let mut all = Vec::new();
        for (input, own) in self.whole.inputs.iter().zip(&self.split.graph.inputs) {
            let dtype = candle_dtype(self.split.graph.ty(own.value).dtype);
            let tensor = self.inputs.get(&input.name).map(|tensor| tensor.to_dtype(dtype));
            let missing = || GoldenError::Recipe(format!("no values for the input `{}`", input.name));
            let tensor = tensor.ok_or_else(missing)?.map_err(zoo_engine::EngineError::from)?;
            let placed = self.split.places[input.value.0].clone();
            all.push(self.parts(&tensor, &placed.unwrap_or(Placed { value: own.value, placements: Vec::new() }))?);
        }
        Ok(all)
    }

    /// What each rank has of a tensor.
    fn parts(&self, whole: &Tensor, placed: &Placed) -> Result<Ranked, GoldenError> {
        let mesh = &self.split.mesh;
        let of_rank = |rank: usize| {
            placed.placements.iter().try_fold(whole.clone(), |tensor, (axis, placement)| match placement {
                Placement::Split(part) => part_of(&tensor, part, mesh.place(rank, *axis), mesh.extent(*axis)),
                Placement::Whole | Placement::Partial | Placement::Local => Ok(tensor),
            })
        };
        let parts = (0..mesh.ranks()).map(|rank| of_rank(rank).map(Some)).collect::<candle_core::Result<_>>();
        Ok(parts.map_err(zoo_engine::EngineError::from)?)
    }
}

/// A comparison, with all that the report says about it.
struct Compared {
    stage: Stage,
    item: Item,
    origin: Option<Origin>,
}

/// A comparison that a value of the ranks is for: its stage and key, how it is placed, and its entry in the recipe.
type Wanted = (Stage, Key, Placed, Option<Origin>);

/// Compares what the ranks have with the truth.
struct Judge<'p> {
    proof: &'p Proof,
    step: usize,
    /// What to compare of each value of a rank in the first step.
    wanted: BTreeMap<ValueId, Vec<Wanted>>,
    compared: Vec<Compared>,
    without_digits: Vec<String>,
}

impl<'p> Judge<'p> {
    fn new(proof: &'p Proof, gradients: &[(VariableId, ValueId)]) -> Self {
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
        Self { proof, step: 0, wanted, compared: Vec::new(), without_digits: Vec::new() }
    }

    /// Compares a value of all ranks.
    fn compare(
        &mut self,
        stage: Stage,
        key: &Key,
        placed: &Placed,
        origin: Option<Origin>,
        ranks: &Ranked,
    ) -> candle_core::Result<()> {
        let (mesh, name) = (&self.proof.split.mesh, key.to_string());
        let Some(truth) = self.proof.truth.of_key(key) else {
            self.compared.push(Compared {
                stage,
                item: Item::wrong(name, "one device computes no such value"),
                origin,
            });
            return Ok(());
        };
        if truth.without_digits {
            self.without_digits.push(name.clone());
        }
        let wholes = replicas(assembled(ranks, &placed.placements, mesh)?, &placed.placements, mesh)?;
        let error = wholes.iter().map(|(_, values)| truth.error(values)).fold(0.0, f64::max);
        let mut item = match wholes.is_empty() {
            true => Item::wrong(name, "no rank computes it"),
            false => Item::measured(name, error, truth.floor),
        };
        if item.ratio > LIMIT && !wholes.is_empty() {
            item.note = Some(diagnose(truth, &wholes, ranks, &placed.placements, mesh)?);
        }
        self.compared.push(Compared { stage, item, origin });
        Ok(())
    }

    fn scalars(&mut self, scalars: &[Vec<(usize, f64)>]) {
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

    fn variables(&mut self, ranks: &LockStep) -> Result<(), GoldenError> {
        if self.step > 0 && self.step + 1 < STEPS {
            return Ok(());
        }
        let stage = if self.step == 0 { Stage::Update } else { Stage::Trajectory };
        let whole = &self.proof.whole;
        for (n, variable) in whole.variables.iter().enumerate().filter(|(_, variable)| variable.next.is_some()) {
            let id = VariableId(n);
            let key = Key::Variable(self.step, variable.name.clone());
            let placed = self.proof.split.variable(id);
            let compared = self.compare(stage, &key, &placed, variable.origin.clone(), ranks.variable(id));
            compared.map_err(zoo_engine::EngineError::from)?;
        }
        Ok(())
    }

    fn report(self) -> SplitReport {
        let Self { proof, compared, without_digits, .. } = self;
        let Proof { recipe, parallel, options, split, .. } = proof;
        let first_divergence = compared.iter().filter(|c| c.item.ratio > LIMIT).min_by_key(|c| c.stage).map(|first| {
            let explanation = first.item.note.clone().unwrap_or_default();
            let line = first.origin.as_ref().map(|origin| origin.span.to_string());
            let (stage, tensor) = (first.stage, first.item.name.clone());
            Difference { stage, tensor, explanation, line }
        });
        let stages = [Stage::Forward, Stage::Loss, Stage::Backward, Stage::Update, Stage::Trajectory].map(|stage| {
            let items = compared.iter().filter(|c| c.stage == stage).map(|c| c.item.clone()).collect();
            StageReport::of(stage, items, LIMIT, None)
        });
        let passed = stages.iter().all(|stage| stage.verdict == Verdict::Pass);
        SplitReport {
            recipe: recipe.name.clone(),
            parallel: parallel.to_string(),
            ranks: split.mesh.devices(),
            batch: options.batch,
            dtype: options.precision,
            collectives: collectives(&split.graph),
            divided: divided(split),
            without_digits,
            stages: stages.into(),
            first_divergence,
            verdict: if passed { Verdict::Pass } else { Verdict::Fail },
        }
    }
}

impl RanksObserver for Judge<'_> {
    fn wants(&self, value: ValueId) -> bool {
        self.step == 0 && self.wanted.contains_key(&value)
    }

    fn observe(&mut self, value: ValueId, ranks: &Ranked) -> candle_core::Result<()> {
        for (stage, key, placed, origin) in self.wanted.get(&value).cloned().unwrap_or_default() {
            self.compare(stage, &key, &placed, origin, ranks)?;
        }
        Ok(())
    }
}

/// What ranks do together.
fn collectives(graph: &Graph) -> Vec<Collectives> {
    let mut found: BTreeMap<(MeshAxis, &'static str), (usize, u64)> = BTreeMap::new();
    for node in &graph.nodes {
        let zoo_graph::Op::Collective(op) = &node.op else { continue };
        if op.communicates() {
            let (count, bytes) = found.entry((op.over, node.op.name())).or_default();
            *count += 1;
            *bytes += 4 * graph.ty(node.inputs[0]).shape.numel() as u64;
        }
    }
    found.into_iter().map(|((over, operator), (count, bytes))| Collectives { operator, over, count, bytes }).collect()
}

/// The parameters of which each rank has a part.
fn divided(split: &SplitStep) -> Vec<Divided> {
    let of = |(id, variable): (VariableId, &zoo_graph::Variable)| {
        let placements = split.variable(id).placements;
        let placement = placements.iter().map(|(axis, placement)| format!("{axis}: {placement}")).collect::<Vec<_>>();
        (!placements.is_empty()).then(|| Divided { parameter: variable.name.clone(), placement: placement.join(", ") })
    };
    split.graph.parameters().filter_map(of).collect()
}

//! Proves a split step: all ranks run in lock-step, and what they have together is compared with the step on one
//! device.
//!
//! The step on one device in f64 is the truth, under conditions that follow from the recipe alone: a golden proves it
//! for its own sizes. Runs in f32, moved in their last place, show how much of a difference rounding explains; in f64
//! it is accordingly less. Then the ranks run the same steps; every module output, loss, gradient and update is put
//! together from the ranks, replicas are compared one by one, and what differs is explained (`diagnosis`).

mod assembled;
mod comparison;
mod diagnosis;
mod layout;
pub mod mutants;
mod planted;
mod proof;
mod recorded;
mod report;
mod run;
mod suspects;
mod truth;
mod whole;

pub use proof::Proof;
pub use recorded::{RecordedSplit, Wanted, judge_split};
pub use report::{Collectives, Difference, Divided, SplitReport};

use crate::{
    Golden, GoldenError, Precision, Verdict, record,
    start::{Conditions, Spelling, Start, arrays},
};
use truth::OBSERVED;
use whole::{Begin, Whole};
use zoo_engine::StepMemory;
use zoo_graph::{Bytes, TapState};
use zoo_recipe::{Parallel, Recipe};

/// Conditions of a proof.
#[derive(Clone, Debug)]
pub struct SplitOptions {
    /// The arithmetic of the ranks.
    pub precision: Precision,
    /// Samples per step, of all ranks together.
    pub batch: usize,
    /// Number of steps.
    pub steps: usize,
    /// Whether dropout is on.
    pub dropout: bool,
    /// Runs that show what rounding explains. One is a lucky sample where few elements decide, such as those of a ReLU
    /// near zero; a proof in f32 needs no more, because f64 decides what differs.
    pub roundings: usize,
    /// The golden whose weights, inputs, batch and learning rate the steps have; `None`: they follow from names, and
    /// some labels are ignored if the loss can.
    pub golden: Option<Golden>,
}

impl SplitOptions {
    /// A proof in this arithmetic: three steps with dropout.
    pub fn new(precision: Precision, batch: usize) -> Self {
        Self { precision, batch, steps: STEPS, dropout: true, roundings: 1, golden: None }
    }

    /// The same under the conditions of a golden.
    #[must_use]
    pub fn of_golden(self, golden: Option<Golden>) -> Self {
        let batch = |golden: &Golden| golden.manifest.inputs.values().find_map(|input| input.shape.first().copied());
        Self { batch: golden.as_ref().and_then(batch).unwrap_or(self.batch), golden, ..self }
    }

    /// Recorded steps, which are without dropout.
    pub fn recorded(batch: usize, steps: usize) -> Self {
        Self { precision: Precision::F32, batch, steps, dropout: false, roundings: 3, golden: None }
    }
}

/// Learning rate of all steps: small enough for three steps of any optimizer.
const LEARNING_RATE: f64 = 1e-3;

/// Number of steps of a proof.
const STEPS: usize = 3;

/// Largest error of a tensor, in floors.
const LIMIT: f64 = 10.0;

/// Checks a split of a recipe's step. `progress` is told what is computed. What differs in f32 is judged in f64, in which
/// rounding decides no ReLU.
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
    let report = proof.judge(proof.split.graph.clone(), &[])?;
    if report.passed() || options.precision == Precision::F64 {
        return Ok(report);
    }
    let options = SplitOptions { precision: Precision::F64, ..options.clone() };
    let proof = Proof::new(recipe, parallel, &options, &mut |_| {})?;
    let mut exact = proof.judge(proof.split.graph.clone(), &[])?;
    for (stage, rounded) in exact.stages.iter_mut().zip(report.stages) {
        stage.in_f32 = rounded.worst.filter(|_| rounded.verdict == Verdict::Fail);
    }
    Ok(exact)
}

/// Number of calls of `progress` of [`check_split`].
pub const PHASES: usize = 3;

/// Number of calls of `progress` of [`judge_split`].
pub const JUDGE_PHASES: usize = 4;

/// Peak memory of a proof, on top of what the process has: one device with what is kept of its runs, or all ranks with
/// what is kept of one, in f64, which decides; and copies of the largest value while it is compared.
///
/// # Errors
/// As [`check_split`].
pub fn memory(recipe: &Recipe, parallel: &Parallel, options: &SplitOptions) -> Result<Bytes, GoldenError> {
    let whole = Whole::of(recipe, options)?;
    let split = whole.split(parallel, Precision::F64)?;
    let whole = whole.graph;
    let taps =
        whole.taps.iter().filter_map(|tap| if let TapState::Value(value) = tap.state { Some(value) } else { None });
    let once = taps.chain(whole.gradients.iter().flat_map(|(_, value)| [*value; OBSERVED]));
    // Variables are kept after the first and the last step, and before the first.
    let variables = whole.variables.iter().flat_map(|variable| [variable.value; 3]);
    let kept: u64 = once.chain(variables).map(|value| whole.ty(value).bytes().0).sum();
    let one = StepMemory::of(whole, record::REFERENCE, None)?;
    let rank = StepMemory::of(split.graph, record::REFERENCE, None)?;
    let ranks = Bytes(split.mesh.ranks() as u64 * rank.peak().0 + kept);
    Ok((one.peak() + Bytes((1 + options.roundings as u64) * kept)).max(ranks) + Bytes(COPIES * one.largest.0))
}

/// Copies of a value while it is compared: joined, as numbers in f64, and scaled for an explanation.
const COPIES: u64 = 4;

/// The start of a step that ranks are to record for [`judge_split`]: weights, and the inputs of all ranks together.
///
/// # Errors
/// As [`check_split`].
pub fn start(recipe: &Recipe, parallel: &Parallel, batch: usize, spelling: Spelling) -> Result<Start, GoldenError> {
    let options = SplitOptions::recorded(batch, 1);
    let whole = Whole::of(recipe, &options)?;
    whole.split(parallel, Precision::F32)?;
    let Begin { variables: start, inputs, manifest } = whole.start()?;
    let Whole { recipe, graph: whole, .. } = whole;
    let values = |name: &str| whole.variables.iter().zip(&start).find(|(v, _)| v.name == name).map(|(_, x)| x.clone());
    let (weights, inputs) = arrays(
        &whole,
        spelling,
        |variable| Ok(values(&variable.name).unwrap_or_default()),
        |name| {
            let tensor = inputs.get(name).map(crate::probe::to_f64).transpose();
            Ok(tensor.map_err(zoo_engine::EngineError::from)?.unwrap_or_default())
        },
    )?;
    let outputs = whole.taps.iter().filter(|tap| matches!(tap.state, TapState::Value(_))).map(zoo_graph::Tap::key);
    let conditions = Conditions {
        golden: None,
        parallel: Some(parallel.to_string()),
        outputs: outputs.collect(),
        ..Conditions::of(&recipe, &manifest)
    };
    Ok(Start { weights, inputs, conditions })
}

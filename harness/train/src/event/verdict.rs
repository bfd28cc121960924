//! The verdict on several trainings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use zoo_recipe::schema::{Metric, ReferenceRuns};

use super::before::GoldenVerdict;

/// The verdict on a set of runs, from `zoo verdict` or from the end of `zoo run --repeat`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Convergence {
    /// Version of the events as JSON.
    pub schema_version: u32,
    /// The recipe.
    pub recipe: String,
    /// The judged metric.
    pub metric: Metric,
    /// All runs.
    pub runs: Vec<RunScore>,
    /// Mean of the finished runs.
    pub mean: Option<f64>,
    /// Their standard deviation; null for fewer than two runs.
    pub sigma: Option<f64>,
    /// The reference; null for the target itself, if the recipe has no reference.
    pub reference: Option<ReferenceRuns>,
    /// The margin by which they may be worse than the reference.
    pub margin: Option<f64>,
    /// The bound for the mean: the mean of the reference minus the margin, or the target.
    pub bound: f64,
    /// Probability that runs pass although they are not good enough.
    pub alpha: f64,
    /// The hypotheses.
    pub hypotheses: Hypotheses,
    /// The test; null if there are too few runs.
    pub test: Option<Test>,
    /// Whether the spread of the runs exceeds that of the reference; the test assumes that it does not.
    pub spread: Option<SpreadTest>,
    /// Power: the probability that this number of runs passes if they are as good as the reference.
    pub power: Option<f64>,
    /// Further targets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<AlsoReached>,
    /// The verdict.
    pub verdict: ConvergenceVerdict,
    /// The reason, in one sentence.
    pub because: String,
    /// Number of further runs that would settle an inconclusive verdict with a probability of 80 %; null if no
    /// practical number would.
    pub more_runs: Option<usize>,
}

/// One run of a set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunScore {
    /// Its folder.
    pub folder: PathBuf,
    /// Its seed.
    pub seed: u64,
    /// Its result; null if it failed.
    pub achieved: Option<f64>,
    /// The reason, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Whether it differs from the others (Grubbs' test at 5 %). It counts anyway.
    pub outlier: bool,
    /// Whether its step was proven.
    pub golden: GoldenVerdict,
    /// Time of training and evaluations.
    pub seconds: Option<f64>,
}

/// The hypotheses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hypotheses {
    /// The null hypothesis.
    pub null: String,
    /// The alternative hypothesis.
    pub alternative: String,
}

/// Another goal of the target, which the mean of the runs has to reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AlsoReached {
    /// The metric.
    pub metric: Metric,
    /// The value to reach.
    pub target: f64,
    /// Mean of the runs; null if none has measured it.
    pub mean: Option<f64>,
    /// Whether it is at least as good as the target.
    pub met: bool,
}

/// The verdict on a set of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConvergenceVerdict {
    /// The runs are shown to be good enough.
    Pass,
    /// They are shown not to be good enough, or one of them failed.
    Missed,
    /// Neither is shown: there are too few runs for their spread.
    Inconclusive,
}

/// A test of H0: *the mean of such runs is below the bound*.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Test {
    /// Student's t: the distance of the mean from the bound, in standard errors; null if there is no variation.
    pub statistic: Option<f64>,
    /// Degrees of freedom of t.
    pub degrees_of_freedom: usize,
    /// Probability of this or a larger distance if the true mean equals the bound.
    pub p: f64,
}

/// A test of H0: *such runs do not spread more than those of the reference*, which the t-test assumes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpreadTest {
    /// Fisher's F: variance of the runs, divided by that of the reference.
    pub statistic: f64,
    /// Probability of this or a larger ratio if both have the same spread.
    pub p: f64,
}

//! What several trainings showed together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use zoo_recipe::schema::{Metric, ReferenceRuns};

use super::before::GoldenVerdict;

/// The verdict on a set of runs: what `zoo verdict` says, and `zoo run --repeat` at its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Convergence {
    /// Version of the events as JSON.
    pub schema_version: u32,
    /// The recipe.
    pub recipe: String,
    /// What is judged.
    pub metric: Metric,
    /// The runs, every one of them.
    pub runs: Vec<RunScore>,
    /// Mean of the runs that came to their end.
    pub mean: Option<f64>,
    /// Their standard deviation; null of fewer than two.
    pub sigma: Option<f64>,
    /// What they are compared with; null: the target itself, as the recipe names no reference.
    pub reference: Option<ReferenceRuns>,
    /// What they may be worse than the reference by.
    pub margin: Option<f64>,
    /// What the mean must not be worse than: the reference's mean, worse by the margin, or the target.
    pub bound: f64,
    /// Probability that runs that are too bad pass.
    pub alpha: f64,
    /// The hypotheses.
    pub hypotheses: Hypotheses,
    /// The test; null if the runs are too few for one.
    pub test: Option<Test>,
    /// Whether the runs spread more than the reference's, which the test takes for granted that they do not.
    pub spread: Option<SpreadTest>,
    /// Chance that so many runs pass if they are truly as good as the reference.
    pub power: Option<f64>,
    /// What has to be reached as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<AlsoReached>,
    /// The verdict.
    pub verdict: ConvergenceVerdict,
    /// What it rests on, in a sentence.
    pub because: String,
    /// Runs that would settle what is inconclusive, with a chance of 80 %; null if no reasonable number would.
    pub more_runs: Option<usize>,
}

/// One run of a set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunScore {
    /// Its folder.
    pub folder: PathBuf,
    /// Its seed.
    pub seed: u64,
    /// What it reached; null if it failed.
    pub achieved: Option<f64>,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Whether it is unlike the others (Grubbs' test at 5 %). It counts all the same.
    pub outlier: bool,
    /// Whether its step was proven.
    pub golden: GoldenVerdict,
    /// Time of training and evaluations.
    pub seconds: Option<f64>,
}

/// What is tested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hypotheses {
    /// What has to be refuted.
    pub null: String,
    /// What is shown if it is.
    pub alternative: String,
}

/// Another goal of the target: the runs' mean has to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AlsoReached {
    /// What was measured.
    pub metric: Metric,
    /// The value to reach.
    pub target: f64,
    /// Mean of the runs; null if none has measured it.
    pub mean: Option<f64>,
    /// Whether it is at least as good as the target.
    pub met: bool,
}

/// How a set of runs is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConvergenceVerdict {
    /// The runs are shown to be good enough.
    Pass,
    /// They are shown not to be, or one of them failed.
    Missed,
    /// Neither is shown: the runs are too few for their spread.
    Inconclusive,
}

/// A test of H0: *the mean of such runs is below what it must be*.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Test {
    /// Student's t: the distance of the mean from what it must not be below, in standard errors; null if nothing
    /// varies.
    pub statistic: Option<f64>,
    /// Degrees of freedom of t.
    pub degrees_of_freedom: usize,
    /// Probability of such a distance, or a larger one, if the mean were exactly what it must not be below.
    pub p: f64,
}

/// A test of H0: *such runs spread no more than the reference's*. The t-test takes that for granted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpreadTest {
    /// Fisher's F: variance of the runs over that of the reference's.
    pub statistic: f64,
    /// Probability of such a ratio, or a larger one, if they spread alike.
    pub p: f64,
}

//! Trainings with other frameworks: what runs are compared with.

use serde::Deserialize;
use std::path::{Path, PathBuf};
use zoo_datasets::files;
use zoo_recipe::schema::{Metric, ReferenceRuns};

use crate::{convergence::noninferiority::Sample, event::Started};

/// Limit of the size of a file with trainings.
const LONGEST: u64 = 1 << 24;

/// A training with another framework: a line of JSON from the scripts in `benches/real`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elsewhere {
    /// The recipe that it follows.
    pub recipe: String,
    /// The framework and its version, and the processor unless it is a CPU.
    pub by: String,
    /// The metric.
    pub metric: Metric,
    /// Its result, in the range of the metric.
    pub value: f64,
    /// Seconds of training.
    pub seconds: f64,
    /// Its seed.
    pub seed: u64,
    /// Steps of the training.
    pub steps: u64,
    /// Number of samples on which the value was measured.
    pub held_out: u64,
}

/// Why runs cannot be compared with trainings of other frameworks.
#[derive(Debug, thiserror::Error)]
pub enum ElsewhereError {
    /// A file that cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// A line that does not describe a training.
    #[error("{}:{line}: {source}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The reason.
        source: serde_json::Error,
    },
    /// Too few trainings that correspond to a run.
    #[error(
        "the trainings to compare with include {found} of {recipe} with {steps} steps and {metric} of {held_out} held-out \
         samples, as in {}; a reference needs two: train further seeds with the scripts in benches/real",
        folder.display()
    )]
    TooFew {
        /// How many correspond.
        found: usize,
        /// The recipe of the run.
        recipe: String,
        /// Its steps.
        steps: u64,
        /// The judged metric.
        metric: Metric,
        /// Its held-out samples.
        held_out: u64,
        /// The run.
        folder: PathBuf,
    },
}

impl Elsewhere {
    /// Reads a file with a training per line.
    ///
    /// # Errors
    /// A file that cannot be read, or the first line that does not describe a training.
    pub fn read(path: &Path) -> Result<Vec<Self>, ElsewhereError> {
        let unreadable = |source| ElsewhereError::Unreadable { path: path.to_owned(), source };
        let bytes = files::read(path, LONGEST).map_err(unreadable)?;
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let parsed = lines.map(|(index, line)| {
            let wrong = |source| ElsewhereError::Line { path: path.to_owned(), line: index + 1, source };
            serde_json::from_str(line).map_err(wrong)
        });
        parsed.collect()
    }

    /// Whether it is the training of a run: the same recipe and number of steps, judged by this metric on as many
    /// samples.
    #[must_use]
    pub fn is_training_of(&self, run: &Started, metric: Metric) -> bool {
        self.recipe == run.recipe
            && self.metric == metric
            && self.steps == run.steps
            && self.held_out == run.val_samples as u64
    }
}

/// Those among these trainings that are the training of the run in this folder, as a reference for it.
///
/// # Errors
/// Fewer than two are.
pub fn reference(
    trainings: &[Elsewhere],
    folder: &Path,
    run: &Started,
    metric: Metric,
) -> Result<ReferenceRuns, ElsewhereError> {
    let same: Vec<&Elsewhere> = trainings.iter().filter(|training| training.is_training_of(run, metric)).collect();
    let values: Vec<f64> = same.iter().map(|training| training.value).collect();
    let Some(Sample { n: runs, mean, deviation: sigma }) = Sample::of(&values).filter(|sample| sample.n > 1) else {
        let (recipe, steps, held_out) = (run.recipe.clone(), run.steps, run.val_samples as u64);
        let folder = folder.to_owned();
        return Err(ElsewhereError::TooFew { found: same.len(), recipe, steps, metric, held_out, folder });
    };
    let mut by: Vec<&str> = same.iter().map(|training| training.by.as_str()).collect();
    by.sort_unstable();
    by.dedup();
    Ok(ReferenceRuns { mean, sigma, runs, source: by.join(", ") })
}

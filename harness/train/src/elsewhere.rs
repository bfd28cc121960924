//! Trainings with other frameworks: what runs are compared with.

use serde::Deserialize;
use std::path::Path;
use zoo_datasets::files;
use zoo_recipe::schema::Metric;

use crate::{RunsError, event::Started};

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

impl Elsewhere {
    /// Reads a file with a training per line.
    ///
    /// # Errors
    /// A file that cannot be read, or the first line that does not describe a training.
    pub fn read(path: &Path) -> Result<Vec<Self>, RunsError> {
        let malformed = |place: String, reason: String| RunsError::Malformed { place, reason };
        let file = path.display();
        let bytes = files::read(path, LONGEST).map_err(|error| malformed(file.to_string(), error.to_string()))?;
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let parsed = lines.map(|(index, line)| {
            serde_json::from_str(line).map_err(|error| malformed(format!("{file}:{}", index + 1), error.to_string()))
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

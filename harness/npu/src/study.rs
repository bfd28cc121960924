//! Studies: series of options with published and simulated figures.

mod published;
mod training;

pub use published::{PublishedFigure, Verdict};
pub use training::{Trained, Training, TrainingOutcome, TrainingRow, TrainingTable};

use crate::library::{unknown_operator, yaml_files};
use published::ratios_agree;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use zoo_recipe::{Diagnostics, Document, texts_of};

zoo_recipe::settings! {
    /// A published series of measurements, and how to simulate it.
    pub struct Study {
        /// Name of the study and of its file.
        pub name: String,
        /// Description.
        pub description: String,
        /// Source of the figures.
        pub source: String,
        /// Recipe of the rows.
        pub recipe: String,
        /// Device of the rows.
        pub device: String,
        /// Number of devices.
        #[schemars(range(min = 1, max = 65536))]
        pub devices: usize = 1,
        /// Images per step and device, for tables of step times.
        #[schemars(range(min = 1, max = 65536))]
        pub batch?: usize,
        /// Options of every row, as for `--set`.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub set: Vec<String> = Vec::new(),
        /// Tables of step times.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub tables: Vec<StudyTable> = Vec::new(),
        /// Tables of trainings.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub trainings: Vec<TrainingTable> = Vec::new(),
    }
}

zoo_recipe::settings! {
    /// Rows that belong together. Ratios are relative to the first row.
    pub struct StudyTable {
        /// Its title.
        pub title: String,
        /// Remarks: what is reproduced, and what contradicts what.
        pub note?: String,
        /// The rows.
        #[schemars(length(min = 1))]
        pub rows: Vec<StudyRow>,
    }
}

zoo_recipe::settings! {
    /// One set of options.
    pub struct StudyRow {
        /// How it differs from the other rows.
        pub what: String,
        /// Options, in addition to those of the study.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub set: Vec<String> = Vec::new(),
        /// Number of devices, if it differs.
        #[schemars(range(min = 1, max = 65536))]
        pub devices?: usize,
        /// Images per step and device, if it differs.
        #[schemars(range(min = 1, max = 65536))]
        pub batch?: usize,
        /// What was published, in milliseconds per step: a number, or the ends of a range.
        pub published_ms?: PublishedFigure,
        /// Whether the published result is that it does not run.
        #[serde(skip_serializing_if = "is_false")]
        pub published_error: bool = false,
        /// A published change without a figure: slower or faster per image than the first row of the table.
        pub published_direction?: Direction,
        /// Why the row is not simulated.
        pub not_modelled?: String,
        /// Why simulated and published ratio differ, if they do.
        pub because?: String,
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A change without a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// It takes longer.
    Slower,
    /// It takes less time.
    Faster,
}

/// Result of a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The table it is in.
    pub table: String,
    /// How it differs from the other rows.
    pub what: String,
    /// The published time.
    pub published_ms: Option<f64>,
    /// The simulated time.
    pub simulated_ms: Option<f64>,
    /// The published change without a figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_direction: Option<Direction>,
    /// Published time per image, relative to the first row of the table.
    pub published_ratio: Option<f64>,
    /// Simulated time per image, relative to the first row of the table.
    pub simulated_ratio: Option<f64>,
    /// Whether the two ratios agree (or both are errors).
    pub verdict: Verdict,
    /// The error of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why the ratios differ, or why there is no simulation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// Largest relative difference of times: the effect of different software stacks and versions on one device.
const TIME_TOLERANCE: f64 = 0.35;
/// The clock has no noise: a smaller change is not an effect of the option.
const LEAST_CHANGE: f64 = 1e-3;

/// Names and files of the studies next to the recipes in these folders.
pub fn list(recipes: impl IntoIterator<Item = impl AsRef<Path>>) -> Vec<(String, PathBuf)> {
    let dirs: Vec<PathBuf> = recipes.into_iter().map(|dir| dir.as_ref().join("studies")).collect();
    yaml_files(&dirs)
}

/// Reads a study.
///
/// # Errors
/// All mistakes in the file.
pub fn read(path: &Path) -> Result<Study, Diagnostics> {
    let document: Document<Study> = Document::read(path)?;
    if path.file_stem().and_then(|stem| stem.to_str()) != Some(document.value.name.as_str()) {
        let error = document.error_at("name", "a study is named as its file");
        return Err(document.errors(vec![error]));
    }
    let study = &document.value;
    let mut found = Vec::new();
    if study.tables.is_empty() && study.trainings.is_empty() {
        found.push(document.error_at("name", "a study has `tables` of step times, or `trainings`"));
    }
    for (t, table) in study.tables.iter().enumerate() {
        for (r, _) in table.rows.iter().enumerate().filter(|(_, row)| row.batch.or(study.batch).is_none()) {
            let path = format!("tables[{t}].rows[{r}]");
            found.push(document.error_at(&path, "a step has a `batch`: name it here, or for the whole study"));
        }
    }
    found.extend(study.overrides().flat_map(|(path, set)| {
        let unknown = texts_of(set, "npu.host_operators").into_iter().filter_map(|name| unknown_operator(&name));
        unknown.map(|message| document.error_at(&path, message)).collect::<Vec<_>>()
    }));
    if !found.is_empty() {
        return Err(document.errors(found));
    }
    Ok(document.value)
}

impl Study {
    /// The overrides of step times, with their paths.
    fn overrides(&self) -> impl Iterator<Item = (String, &str)> {
        let rows = self.tables.iter().enumerate().flat_map(|(t, table)| {
            let rows = table.rows.iter().enumerate();
            rows.map(move |(r, row)| (format!("tables[{t}].rows[{r}].set"), &row.set))
        });
        let sets = std::iter::once(("set".to_owned(), &self.set)).chain(rows);
        sets.flat_map(|(path, sets)| {
            sets.iter().enumerate().map(move |(n, set)| (format!("{path}[{n}]"), set.as_str()))
        })
    }
}

/// Times of the first row of a table, to which the others are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct First {
    published_ms: Option<f64>,
    simulated_ms: Option<f64>,
    images: f64,
}

impl First {
    /// From the outcome of the row, and the number of images of its steps.
    pub fn new(outcome: &Outcome, images: usize) -> Self {
        let Outcome { published_ms, simulated_ms, .. } = *outcome;
        Self { published_ms, simulated_ms, images: images as f64 }
    }
}

impl StudyRow {
    /// Images of a step on all devices. If neither row nor study has a batch, it is one image.
    pub fn images(&self, study: &Study) -> usize {
        self.batch.or(study.batch).unwrap_or(1) * self.devices.unwrap_or(study.devices)
    }

    /// Compares the simulated time of a row with the published one. `images` is the number of images of its steps;
    /// `first` is the first row of the table, or `None` for this row itself.
    pub fn judge(&self, table: &str, simulated: Result<f64, String>, images: usize, first: Option<First>) -> Outcome {
        let published = self.published_ms.map(PublishedFigure::middle);
        let (ms, error) = match simulated {
            Ok(ms) => (Some(ms), None),
            Err(error) => (None, Some(error)),
        };
        let images = images as f64;
        let base = first.unwrap_or(First { published_ms: published, simulated_ms: ms, images });
        // A larger batch takes longer on any device, so the time per image is compared.
        let ratio = |own: Option<f64>, of: Option<f64>| own.zip(of).map(|(own, of)| own / of * (base.images / images));
        let (published_ratio, simulated_ratio) = (ratio(published, base.published_ms), ratio(ms, base.simulated_ms));
        let of_time = published.zip(ms).map(|(published, ms)| (ms / published - 1.0).abs() <= TIME_TOLERANCE);
        let of_ratio = published_ratio.zip(simulated_ratio).map(|(published, own)| ratios_agree(published, own));
        let direction = self.published_direction.zip(simulated_ratio).map(|(direction, ratio)| match direction {
            Direction::Slower => ratio > 1.0 + LEAST_CHANGE,
            Direction::Faster => ratio < 1.0 - LEAST_CHANGE,
        });
        let verdict = match (self.published_error, of_time) {
            // Whether a row runs at all is judged separately.
            (true, _) => Verdict::of(Some(error.is_some()), false),
            (false, Some(false)) => Verdict::Differs,
            (false, _) if first.is_none() => Verdict::Base,
            (false, Some(true)) => Verdict::of(of_ratio, false),
            (false, None) if direction == Some(true) => Verdict::Illustrates,
            (false, None) => Verdict::of(direction, false),
        };
        Outcome {
            table: table.to_owned(),
            what: self.what.clone(),
            published_ms: published,
            published_direction: self.published_direction,
            simulated_ms: ms,
            published_ratio,
            simulated_ratio,
            verdict,
            error,
            because: self.not_modelled.clone().or_else(|| self.because.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(published_ms: Option<f64>, published_direction: Option<Direction>) -> StudyRow {
        StudyRow {
            what: "x".into(),
            set: Vec::new(),
            devices: None,
            batch: None,
            published_ms: published_ms.map(PublishedFigure::One),
            published_error: false,
            published_direction,
            not_modelled: None,
            because: Some("why".into()),
        }
    }

    #[test]
    fn every_verdict_could_have_come_out_otherwise() {
        let base = row(Some(50.0), None).judge("t", Ok(60.0), 64, None);
        assert_eq!(base.verdict, Verdict::Base);
        // The first row is compared with its own published figure.
        assert_eq!(row(Some(50.0), None).judge("t", Ok(1.0), 64, None).verdict, Verdict::Differs);
        let first = Some(First::new(&base, 64));
        let verdict = |row: StudyRow, ms: f64, images| row.judge("t", Ok(ms), images, first).verdict;
        assert_eq!(verdict(row(Some(100.0), None), 120.0, 64), Verdict::Agrees);
        // The ratio agrees with the published one, but the time does not: 2 x 60 against 80.
        assert_eq!(verdict(row(Some(80.0), None), 120.0, 64), Verdict::Differs);
        // The time is close to the published one, but the change is not.
        assert_eq!(verdict(row(Some(100.0), None), 80.0, 64), Verdict::Differs);
        // Four times the images in twice the time: faster per image.
        assert_eq!(verdict(row(None, Some(Direction::Faster)), 120.0, 256), Verdict::Illustrates);
        assert_eq!(verdict(row(None, Some(Direction::Slower)), 120.0, 256), Verdict::Differs);
        assert_eq!(verdict(row(None, Some(Direction::Slower)), 60.0, 64), Verdict::Differs);
        assert_eq!(verdict(row(None, None), 2.0, 64), Verdict::Open);
    }

    #[test]
    fn ratios_have_direction_and_size() {
        assert!(ratios_agree(2.0, 1.6) && ratios_agree(2.0, 2.4) && ratios_agree(1.0, 1.0));
        assert!(!ratios_agree(2.0, 1.4) && !ratios_agree(2.0, 2.6));
        // Within a quarter, but one is faster and one slower.
        assert!(!ratios_agree(1.1, 0.95));
        assert!(ratios_agree(1.02, 0.98), "neither is a change");
    }
}

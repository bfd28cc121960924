//! Tables of trainings: the scores that a network reaches with different options, compared with published ones.
//!
//! The trainings are run by the crates that can train. This module contains the study file's description and the
//! verdict.

use super::published::{PublishedFigure, Verdict, ratios_agree};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zoo_recipe::schema::{Better, Metric};

zoo_recipe::settings! {
    /// Trainings that belong together. Scores are relative to the first row.
    pub struct TrainingTable {
        /// Its title.
        pub title: String,
        /// Remarks: what is reproduced, and what contradicts what.
        pub note?: String,
        /// Profile of the recipe that is trained.
        pub profile: String = "mini".to_owned(),
        /// Options of every row, as for `--set`, in addition to those of the study.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub set: Vec<String> = Vec::new(),
        /// Scores with a smaller difference count as equal: this is the difference between seeds.
        #[schemars(range(min = 0))]
        pub spread: f64,
        /// The rows.
        #[schemars(length(min = 1))]
        pub rows: Vec<TrainingRow>,
    }
}

zoo_recipe::settings! {
    /// One training.
    pub struct TrainingRow {
        /// How it differs from the other rows.
        pub what: String,
        /// Options, in addition to those of the table.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub set: Vec<String> = Vec::new(),
        /// Where it runs, if not on the study's device: on another one, or `host` for this machine's fp32.
        pub device?: String,
        /// The published score as a fraction: a number, or the ends of a range.
        pub published?: PublishedFigure,
        /// The published result, if it has no figure.
        pub published_outcome?: TrainingOutcome,
        /// Why published and measured scores differ, if they do.
        pub because?: String,
    }
}

/// Result of a training, compared with the first row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrainingOutcome {
    /// It reaches the same score.
    Same,
    /// It reaches a worse score.
    Lower,
    /// It does not converge: it stays below half of the score, or above twice the score if lower is better.
    Fails,
    /// It does not start.
    Error,
}

impl TrainingOutcome {
    /// Its name in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Lower => "lower",
            Self::Fails => "fails",
            Self::Error => "error",
        }
    }
}

/// A training with less than this share of the first row's score has not converged.
const CONVERGED: f64 = 0.5;

/// Result of a training.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trained {
    /// The table it is in.
    pub table: String,
    /// How it differs from the other rows.
    pub what: String,
    /// Where it ran.
    pub device: String,
    /// The published score.
    pub published: Option<f64>,
    /// The published result, if it has no figure.
    pub published_outcome: Option<TrainingOutcome>,
    /// The metric.
    pub metric: Option<Metric>,
    /// The score.
    pub score: Option<f64>,
    /// Number of steps that were skipped because of an overflow.
    pub skipped_steps: Option<u64>,
    /// Scores during the training: number of steps, and score.
    pub curve: Vec<(u64, f64)>,
    /// Whether both agree; open if it was not trained.
    pub verdict: Verdict,
    /// Why it was not trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why published and measured scores differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// Result of a training, as run.
#[derive(Clone, Debug, PartialEq)]
pub enum Training {
    /// It ended.
    Ended {
        /// The metric.
        metric: Metric,
        /// The score.
        score: f64,
        /// Number of skipped steps.
        skipped_steps: u64,
        /// Scores during the training.
        curve: Vec<(u64, f64)>,
    },
    /// It did not start or failed, with the reason.
    Refused(String),
    /// It was not run, with the reason if there is one: for example, the recipe lacks the profile.
    Missing(Option<String>),
}

impl TrainingRow {
    /// Compares a training with the published score. `first` contains the published and measured scores of the first
    /// row of the table.
    pub fn judge(
        &self,
        table: &TrainingTable,
        device: &str,
        training: Training,
        first: Option<(Option<f64>, Option<f64>)>,
    ) -> Trained {
        let published = self.published.map(PublishedFigure::middle);
        let (metric, score, skipped_steps, curve, error, missing) = match training {
            Training::Ended { metric, score, skipped_steps, curve } => {
                (Some(metric), Some(score), Some(skipped_steps), curve, None, false)
            }
            Training::Refused(error) => (None, None, None, Vec::new(), Some(error), false),
            Training::Missing(reason) => (None, None, None, Vec::new(), reason, true),
        };
        let (first_published, first_score) = first.unwrap_or((published, score));
        let agrees = match (self.published_outcome, score.zip(first_score)) {
            _ if missing => None,
            (Some(TrainingOutcome::Error), _) => Some(error.is_some()),
            (_, None) if error.is_some() => Some(false),
            (Some(TrainingOutcome::Same), Some((score, first))) => Some((score - first).abs() <= table.spread),
            (Some(TrainingOutcome::Lower), Some((score, first))) => {
                metric.map(|metric| metric.gain(score, first) < -table.spread)
            }
            (Some(TrainingOutcome::Fails), Some((score, first))) => metric.map(|metric| match metric.better() {
                Better::Higher => score < CONVERGED * first,
                Better::Lower => score * CONVERGED > first,
            }),
            (None, Some((score, first))) => {
                let ratio = published.zip(first_published).map(|(published, first)| published / first);
                ratio.map(|ratio| ratios_agree(ratio, score / first))
            }
            (_, None) => None,
        };
        let errs = self.published_outcome == Some(TrainingOutcome::Error);
        let verdict = Verdict::of(agrees, first.is_none() && score.is_some() && !errs);
        Trained {
            table: table.title.clone(),
            what: self.what.clone(),
            device: device.to_owned(),
            published,
            published_outcome: self.published_outcome,
            metric,
            score,
            skipped_steps,
            curve,
            verdict,
            error,
            because: self.because.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(published: Option<f64>, outcome: Option<TrainingOutcome>) -> TrainingRow {
        TrainingRow {
            what: "x".into(),
            set: Vec::new(),
            device: None,
            published: published.map(PublishedFigure::One),
            published_outcome: outcome,
            because: None,
        }
    }

    fn ended(score: f64) -> Training {
        Training::Ended { metric: Metric::Top1, score, skipped_steps: 0, curve: Vec::new() }
    }

    #[test]
    fn scores_are_held_against_the_first_row_s() {
        let rows = vec![row(None, None)];
        let table = TrainingTable {
            title: "t".into(),
            note: None,
            profile: "mini".into(),
            set: Vec::new(),
            spread: 0.02,
            rows,
        };
        let first = Some((Some(0.82), Some(0.90)));
        let judge = |row: TrainingRow, training| row.judge(&table, "d", training, first).verdict;
        use TrainingOutcome::{Error, Fails, Lower, Same};
        for (outcome, score, verdict) in [
            (Same, 0.89, Verdict::Agrees),
            (Same, 0.85, Verdict::Differs),
            (Lower, 0.85, Verdict::Agrees),
            (Lower, 0.89, Verdict::Differs),
            (Fails, 0.44, Verdict::Agrees),
            (Fails, 0.46, Verdict::Differs),
            (Error, 0.9, Verdict::Differs),
        ] {
            assert_eq!(judge(row(None, Some(outcome)), ended(score)), verdict, "{outcome:?} {score}");
        }
        // 0.75 of 0.82 is 0.915: within a quarter, and in the same direction.
        assert_eq!(judge(row(Some(0.75), None), ended(0.82)), Verdict::Agrees);
        assert_eq!(judge(row(Some(0.75), None), ended(0.95)), Verdict::Differs);
        assert_eq!(judge(row(None, Some(Error)), Training::Refused("no".into())), Verdict::Agrees);
        assert_eq!(judge(row(None, Some(Same)), Training::Refused("no".into())), Verdict::Differs);
        assert_eq!(judge(row(None, Some(Same)), Training::Missing(None)), Verdict::Open);
        assert_eq!(judge(row(None, None), ended(0.9)), Verdict::Open);
    }
}

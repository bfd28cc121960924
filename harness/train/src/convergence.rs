//! Tests whether runs of one recipe with different seeds converge as they should.

pub mod noninferiority;
mod outliers;

use std::path::Path;
use zoo_recipe::schema::{Better, Goal, Metric, ReferenceRuns, Target};

use crate::{
    RunsError,
    checkpoint::{Change, differences},
    elsewhere::Elsewhere,
    event::{AlsoReached, Convergence, ConvergenceVerdict, Hypotheses, RunScore, SCHEMA_VERSION, Started, Test},
    record::{RunEnd, RunRecord},
};
use noninferiority::{Against, Sample, more_runs, power, spread, test};
use outliers::outlier;

/// Parts of a recipe in which the runs of a set may differ: those that do not affect results, and the seed.
const FREE: [&str; 6] =
    ["description", "reference", "golden", "engine.threads", "train.checkpoint_every", "train.seed"];

/// Options of a verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Probability that runs pass although they are not good enough.
    pub alpha: f64,
    /// Replaces the margin of the target.
    pub margin: Option<f64>,
    /// Trainings of other frameworks: those that correspond to the runs replace the reference of the target.
    pub against: Option<Vec<Elsewhere>>,
}

impl Default for Rules {
    fn default() -> Self {
        Self { alpha: 0.05, margin: None, against: None }
    }
}

/// Judges runs.
///
/// # Errors
/// Runs that do not form a set: of different trainings, with the same seed, or unfinished. Trainings of other
/// frameworks of which fewer than two correspond to them.
pub fn judge(records: &[RunRecord], rules: &Rules) -> Result<Convergence, RunsError> {
    let first = records.first().ok_or_else(|| RunsError::Unfit("there are no runs to judge".to_owned()))?;
    expect_one_training(first, records)?;
    let no_target = || format!("{}: its recipe has no target to judge by", first.folder.display());
    let target = first.recipe.target.as_ref().ok_or_else(|| RunsError::Unfit(no_target()))?;
    let mut runs = records.iter().map(|record| score(record, target.metric)).collect::<Result<Vec<_>, _>>()?;
    let counted: Vec<usize> = (0..runs.len()).filter(|i| runs[*i].achieved.is_some()).collect();
    let values: Vec<f64> = counted.iter().filter_map(|i| runs[*i].achieved).collect();
    if let Some(found) = outlier(&values) {
        runs[counted[found]].outlier = true;
    }
    let reference = match &rules.against {
        None => target.reference.clone(),
        Some(trainings) => {
            let started = first.started().ok_or_else(|| RunsError::not_done(&first.folder))?;
            Some(elsewhere(trainings, &first.folder, started, target.metric)?)
        }
    };
    let against = against(target, reference.as_ref(), rules.margin)?;
    // The tests assume that more is better.
    let sample = Sample::of(&values.iter().map(|value| rising(target.metric, *value)).collect::<Vec<f64>>());
    let also: Vec<AlsoReached> = target.also.iter().map(|goal| also(*goal, records)).collect();
    let test = sample.and_then(|sample| test(sample, against));
    let spread = sample.and_then(|sample| spread(sample, against));
    let (verdict, mut because) = verdict(&runs, test, &also, target.metric, rules.alpha);
    if verdict != ConvergenceVerdict::Pass && runs.iter().any(|run| run.outlier) {
        because.push_str("; one run is unlike the others: look at its curves first");
    }
    if spread.is_some_and(|spread| spread.p <= rules.alpha) {
        because.push_str("; the runs spread more than those of the reference, so they are not comparable");
    }
    let more_runs = match verdict {
        ConvergenceVerdict::Inconclusive => sample.and_then(|sample| match test {
            Some(_) => more_runs(sample, against, rules.alpha),
            // A first spread.
            None => Some(2),
        }),
        ConvergenceVerdict::Pass | ConvergenceVerdict::Missed => None,
    };
    let (margin, bound) = match against {
        Against::Runs { reference, margin } => (Some(margin), rising(target.metric, reference.mean - margin)),
        Against::Value(value) => (None, rising(target.metric, value)),
    };
    Ok(Convergence {
        schema_version: SCHEMA_VERSION,
        recipe: first.recipe.name.clone(),
        metric: target.metric,
        mean: sample.map(|sample| rising(target.metric, sample.mean)),
        sigma: sample.filter(|sample| sample.n > 1).map(|sample| sample.deviation),
        reference,
        margin,
        bound,
        alpha: rules.alpha,
        hypotheses: hypotheses(target.metric, margin, bound),
        test,
        spread,
        power: sample.and_then(|sample| power(sample, against, rules.alpha)),
        also,
        verdict,
        because,
        more_runs,
        runs,
    })
}

/// Converts a value of a metric to one for which more is better, and back.
fn rising(metric: Metric, value: f64) -> f64 {
    metric.gain(value, 0.0)
}

/// Refuses runs of different trainings, or with the same seed.
fn expect_one_training(first: &RunRecord, records: &[RunRecord]) -> Result<(), RunsError> {
    let seed = |record: &RunRecord| record.recipe.train.seed;
    for (index, record) in records.iter().enumerate() {
        let changes = training_changes(first, record);
        if !changes.is_empty() {
            let (first, other) = (first.folder.display(), record.folder.display());
            let changes: String = changes.iter().map(|change| format!("\n  {change}")).collect();
            let message = format!("{first} and {other} are not runs of the same training; they differ in:{changes}");
            return Err(RunsError::Unfit(message));
        }
        if let Some(twin) = records[..index].iter().find(|other| seed(other) == seed(record)) {
            let (first, other, seed) = (twin.folder.display(), record.folder.display(), seed(record));
            return Err(RunsError::Unfit(format!(
                "{first} and {other} have the same seed, {seed}: such runs are bit-identical and count only once"
            )));
        }
    }
    Ok(())
}

/// The differences between two runs that make them different trainings. The same data may lie in different places, as on
/// two machines.
pub(crate) fn training_changes(first: &RunRecord, other: &RunRecord) -> Vec<Change> {
    let anywhere = |run: &RunRecord| {
        let mut run = run.clone();
        run.recipe.data.source.location_mut().map(std::mem::take);
        run
    };
    setting_changes(&anywhere(first), &anywhere(other), &FREE)
}

/// The differences between two runs: values of the recipe except the `free` ones, device, and data.
fn setting_changes(first: &RunRecord, other: &RunRecord, free: &[&str]) -> Vec<Change> {
    let value = |record: &RunRecord| serde_json::to_value(&record.recipe).unwrap_or_default();
    let mut changes = differences(&value(first), &value(other), free);
    if let (Some(before), Some(now)) = (first.started(), other.started()) {
        let facts = [
            ("device", before.device.clone(), now.device.clone()),
            ("training samples", before.train_samples.to_string(), now.train_samples.to_string()),
            ("held-out samples", before.val_samples.to_string(), now.val_samples.to_string()),
        ];
        for (path, before, now) in facts.into_iter().filter(|(_, before, now)| before != now) {
            changes.push(Change { path: path.to_owned(), before: Some(before), now: Some(now) });
        }
    }
    changes
}

fn score(record: &RunRecord, metric: Metric) -> Result<RunScore, RunsError> {
    let folder = record.folder.clone();
    let (achieved, failed, seconds) = match record.end() {
        RunEnd::Open | RunEnd::Interrupted(_) => return Err(RunsError::not_done(&folder)),
        RunEnd::Failed(step, message) => {
            let line = message.lines().next().unwrap_or_default();
            (None, Some(format!("after step {step}: {line}")), None)
        }
        RunEnd::Finished(result) => {
            let achieved = match result.metric == metric {
                true => result.achieved,
                // The target has been changed since.
                false => record.last_evaluation().and_then(|evaluated| evaluated.score(metric)),
            };
            let achieved = achieved.filter(|value| value.is_finite());
            let lost = if achieved.is_none() { Some(metric) } else { result.not_finite.first().copied() };
            let failed = match lost {
                Some(metric) => Some(format!("to reach a finite {metric}")),
                None => result.fault().map(|_| "to update anything".to_owned()),
            };
            (achieved.filter(|_| failed.is_none()), failed, Some(result.seconds))
        }
    };
    let golden = record.started().map(|started| started.golden).unwrap_or_default();
    Ok(RunScore { folder, seed: record.recipe.train.seed, achieved, failed, outlier: false, golden, seconds })
}

/// Those among these trainings that are the training of the run in this folder, as a reference for it.
///
/// # Errors
/// Fewer than two are.
fn elsewhere(
    trainings: &[Elsewhere],
    folder: &Path,
    run: &Started,
    metric: Metric,
) -> Result<ReferenceRuns, RunsError> {
    let same: Vec<&Elsewhere> = trainings.iter().filter(|training| training.is_training_of(run, metric)).collect();
    let values: Vec<f64> = same.iter().map(|training| training.value).collect();
    let Some(Sample { n: runs, mean, deviation: sigma }) = Sample::of(&values).filter(|sample| sample.n > 1) else {
        let (found, recipe, steps, held_out) = (same.len(), &run.recipe, run.steps, run.val_samples);
        return Err(RunsError::Unfit(format!(
            "the trainings to compare with include {found} of {recipe} with {steps} steps and {metric} of {held_out} \
             held-out samples, as in {}; a reference needs two: train further seeds with the scripts in benches/real",
            folder.display()
        )));
    };
    let mut by: Vec<&str> = same.iter().map(|training| training.by.as_str()).collect();
    by.sort_unstable();
    by.dedup();
    Ok(ReferenceRuns { mean, sigma, runs, source: by.join(", ") })
}

fn against(target: &Target, reference: Option<&ReferenceRuns>, margin: Option<f64>) -> Result<Against, RunsError> {
    let (metric, given) = (target.metric, margin.or(target.margin));
    let [low, high] = metric.range();
    if let Some(margin) = given.filter(|margin| *margin > high - low) {
        return Err(RunsError::Unfit(format!("a margin of {margin} exceeds the range of {metric}")));
    }
    let Some(ReferenceRuns { mean, sigma, runs, .. }) = reference else {
        return Ok(Against::Value(rising(target.metric, target.value)));
    };
    let implied = Some(target.metric.gain(*mean, target.value)).filter(|margin| *margin > 0.0);
    let no_margin = "the target is not worse than the mean of its reference, so no margin follows from it; set \
                     `target.margin` or --margin";
    let margin = given.or(implied).ok_or_else(|| RunsError::Unfit(no_margin.to_owned()))?;
    let reference = Sample { n: *runs, mean: rising(target.metric, *mean), deviation: *sigma };
    Ok(Against::Runs { reference, margin })
}

fn also(Goal { metric, value: target }: Goal, records: &[RunRecord]) -> AlsoReached {
    let scores = records.iter().filter_map(|record| record.last_evaluation()?.score(metric));
    let mean = Sample::of(&scores.collect::<Vec<f64>>()).map(|sample| sample.mean);
    AlsoReached { metric, target, mean, met: mean.is_some_and(|mean| metric.reaches(mean, target)) }
}

fn verdict(
    runs: &[RunScore],
    test: Option<Test>,
    also: &[AlsoReached],
    metric: Metric,
    alpha: f64,
) -> (ConvergenceVerdict, String) {
    use ConvergenceVerdict::{Inconclusive, Missed, Pass};
    let unfinished = runs.iter().filter(|run| run.seconds.is_none()).count();
    if unfinished > 0 {
        return (Missed, format!("{unfinished} of {} runs did not finish", runs.len()));
    }
    let diverged: Vec<&RunScore> = runs.iter().filter(|run| run.achieved.is_none()).collect();
    if let Some(first) = diverged.first() {
        let not_done = first.failed.as_deref().unwrap_or_default().trim_start_matches("to ");
        return (Missed, format!("{} of {} runs did not {not_done}", diverged.len(), runs.len()));
    }
    if also.iter().any(|goal| !goal.met) {
        return (Missed, "another goal of the target is missed".to_owned());
    }
    match test {
        None => (Inconclusive, "a single run has no spread".to_owned()),
        Some(Test { p, .. }) if p <= alpha => (Pass, "H0 is refuted".to_owned()),
        Some(Test { p, .. }) if 1.0 - p <= alpha => (Missed, format!("the mean is significantly {}", sides(metric).0)),
        Some(_) => (Inconclusive, "the difference may be due to chance".to_owned()),
    }
}

fn hypotheses(metric: Metric, margin: Option<f64>, bound: f64) -> Hypotheses {
    let (worse, better) = sides(metric);
    let bound = metric.format(bound);
    let at = match margin {
        Some(margin) => {
            let by = match metric.better() {
                Better::Higher => "less",
                Better::Lower => "plus",
            };
            format!("{bound}, the mean of the reference {by} a margin of {}", metric.format(margin))
        }
        None => format!("{bound}, the target"),
    };
    Hypotheses {
        null: format!("the mean of such runs is {worse} {at}"),
        alternative: format!("the mean of such runs is {better} {bound}"),
    }
}

/// Words for the directions of worse and better values.
fn sides(metric: Metric) -> (&'static str, &'static str) {
    match metric.better() {
        Better::Higher => ("below", "at least"),
        Better::Lower => ("above", "at most"),
    }
}

#[cfg(test)]
mod tests;

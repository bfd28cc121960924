//! Comparison of several runs, as a page or a table: curves, differing settings, results.

use schemars::JsonSchema;
use serde::Serialize;
use std::{collections::BTreeSet, path::PathBuf};
use zoo_pages::{Cell, Chart, Grid, Level, Link, Page, Section, Series, Verdict, duration};
use zoo_recipe::schema::{Metric, Score, Unit};

use super::curves::{chart, smoothed, thinned};
use crate::{
    RunsError,
    checkpoint::{Setting, differing},
    event::{Cost, Event, GoldenVerdict, SCHEMA_VERSION, Started},
    record::{RunEnd, RunRecord},
};

/// CSS classes of curves, which differ in colour and dashes.
const CLASSES: [&str; 8] = ["run0", "run1", "run2", "run3", "run4", "run5", "run6", "run7"];
/// Values of differing settings are truncated to this many characters.
const LONGEST: usize = 60;

/// Several runs, compared.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    /// Version of the events as JSON.
    pub schema_version: u32,
    /// The runs.
    pub runs: Vec<ComparedRun>,
    /// Settings that differ between runs.
    pub settings: Vec<Setting>,
}

/// One of several runs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ComparedRun {
    /// Its folder.
    pub folder: PathBuf,
    /// The recipe.
    pub recipe: String,
    /// Its seed.
    pub seed: u64,
    /// Its state: `finished`, `failed`, `interrupted` or `open`.
    pub state: &'static str,
    /// Steps done.
    pub steps: u64,
    /// Whether the step was proven.
    pub golden: GoldenVerdict,
    /// The metric of the target; without a target, the first one for the kind of data.
    pub metric: Option<Metric>,
    /// The value to reach.
    pub target: Option<f64>,
    /// The value of the last evaluation.
    pub achieved: Option<f64>,
    /// Whether the target was met.
    pub met: Option<bool>,
    /// The last evaluation.
    pub scores: Vec<Score>,
    /// Loss of the last step, smoothed over a fiftieth of the run.
    pub loss: Option<f64>,
    /// Time of training and evaluations.
    pub seconds: Option<f64>,
    /// Median of the samples per second.
    pub images_per_s: Option<f64>,
    /// The arithmetic: a device, or `host`.
    pub device: String,
    /// The predicted time of a step, and the device.
    pub simulated_step: Option<(String, f64)>,
}

impl ComparedRun {
    /// Whether the target was met, the value reached, and the target.
    pub fn judged(&self) -> [Cell; 3] {
        let unit = self.metric.map_or(Unit::Plain, Metric::unit);
        let metric = self.metric.map(Metric::name).unwrap_or_default();
        let verdict = match self.met {
            Some(true) => Cell::classed("met", "good"),
            Some(false) => Cell::classed("missed", "bad"),
            None => "".into(),
        };
        let reached = self.achieved.map(|value| format!("{metric} {}", unit.format(value))).unwrap_or_default();
        [verdict, reached.into(), self.target.map(|value| unit.format(value)).unwrap_or_default().into()]
    }

    /// The loss, and the time.
    pub fn cost(&self) -> [Cell; 2] {
        let loss = self.loss.map(|loss| format!("{loss:.4}")).unwrap_or_default();
        [loss.into(), self.seconds.map(duration).unwrap_or_default().into()]
    }
}

/// Compares runs.
///
/// # Errors
/// There are no runs.
pub fn compare(records: &[RunRecord]) -> Result<Comparison, RunsError> {
    if records.is_empty() {
        return Err(RunsError::Unfit("there are no runs to compare".to_owned()));
    }
    let runs = records.iter().map(compared).collect();
    Ok(Comparison { schema_version: SCHEMA_VERSION, runs, settings: settings(records) })
}

fn compared(record: &RunRecord) -> ComparedRun {
    let steps = losses(record);
    let started = record.started();
    let evaluation = record.last_evaluation();
    let target = record.recipe.target.as_ref();
    let metric = target.map(|target| target.metric).or(evaluation.and_then(|e| Some(e.scores.first()?.metric)));
    let (state, result) = match record.end() {
        RunEnd::Open => ("open", None),
        RunEnd::Interrupted(_) => ("interrupted", None),
        RunEnd::Failed(..) => ("failed", None),
        RunEnd::Finished(result) => ("finished", Some(result)),
    };
    let mut speeds: Vec<f64> = step_events(record).map(|done| done.images_per_s).collect();
    speeds.sort_by(f64::total_cmp);
    ComparedRun {
        folder: record.folder.clone(),
        recipe: record.recipe.name.clone(),
        seed: record.recipe.train.seed,
        state,
        steps: steps.last().map_or(0, |(step, _)| *step as u64),
        golden: started.map(|started| started.golden).unwrap_or_default(),
        metric,
        target: target.map(|target| target.value),
        achieved: metric.and_then(|metric| evaluation?.score(metric)),
        met: result.and_then(|result| result.met),
        scores: evaluation.map(|evaluation| evaluation.scores.clone()).unwrap_or_default(),
        loss: smoothed(&steps).last().map(|point| point.1).filter(|loss| loss.is_finite()),
        seconds: result.map(|result| result.seconds).or(step_events(record).last().map(|done| done.seconds)),
        images_per_s: speeds.get(speeds.len() / 2).copied(),
        device: started.map_or_else(String::new, |started| started.device.clone()),
        simulated_step: cost(record).map(|cost| (cost.device.clone(), cost.step_ms)),
    }
}

fn step_events(record: &RunRecord) -> impl Iterator<Item = &crate::event::StepDone> {
    record.events.iter().filter_map(|event| match event {
        Event::Step(done) => Some(done),
        _ => None,
    })
}

fn losses(record: &RunRecord) -> Vec<(f64, f64)> {
    step_events(record).map(|done| (done.step as f64, done.loss)).collect()
}

fn cost(record: &RunRecord) -> Option<&Cost> {
    record.events.iter().rev().find_map(|event| match event {
        Event::Cost(cost) => Some(cost.as_ref()),
        _ => None,
    })
}

/// The settings that differ between runs, with the value in each.
fn settings(records: &[RunRecord]) -> Vec<Setting> {
    let recipes: Vec<_> =
        records.iter().map(|record| serde_json::to_value(&record.recipe).unwrap_or_default()).collect();
    let mut settings = differing(&recipes.iter().collect::<Vec<_>>(), &["description", "reference"]);
    let facts = |started: &Started| {
        [started.device.clone(), started.train_samples.to_string(), started.val_samples.to_string()]
    };
    let found: Vec<Option<[String; 3]>> = records.iter().map(|record| record.started().map(facts)).collect();
    for (place, name) in ["device", "training samples", "held-out samples"].into_iter().enumerate() {
        let values: Vec<Option<String>> = found.iter().map(|facts| Some(facts.as_ref()?[place].clone())).collect();
        let known: BTreeSet<&String> = values.iter().flatten().collect();
        if known.len() > 1 {
            settings.push(Setting { path: name.to_owned(), values });
        }
    }
    settings
}

impl Comparison {
    /// The page; with links to others, it is one of the server.
    ///
    /// # Errors
    /// A template that cannot be rendered.
    pub fn page(&self, records: &[RunRecord], links: Vec<Link>) -> Result<String, RunsError> {
        let names: Vec<String> = self.runs.iter().map(|run| run.folder.display().to_string()).collect();
        let finished = self.runs.iter().filter(|run| run.state == "finished").count();
        let aiming = self.runs.iter().filter(|run| run.target.is_some()).count();
        let met = self.runs.iter().filter(|run| run.met == Some(true)).count();
        let short = match (aiming, names.len() - aiming) {
            (0, all) => format!("{finished} of {all} runs finished"),
            (aiming, 0) => format!("{met} of {aiming} runs met their target"),
            (aiming, others) => format!("{met} of {aiming} runs met their target, {others} without one"),
        };
        let class = match (aiming, met) {
            (0, _) => "",
            (aiming, met) if met == aiming => "met",
            _ => "missed",
        };
        let mut sections = vec![self.runs_section(&names), self.settings_section(&names)];
        sections.extend(charts(self, records, &names).iter().map(Chart::section));
        let mut recipes: Vec<&str> = self.runs.iter().map(|run| run.recipe.as_str()).collect();
        let mut named = BTreeSet::new();
        recipes.retain(|recipe| named.insert(*recipe));
        let page = Page {
            title: format!("{}: {} runs", recipes.join(", "), names.len()),
            subtitle: Vec::new(),
            verdict: Verdict { class, short, lines: Vec::new() },
            served: !links.is_empty(),
            links,
            sections,
            tables: Vec::new(),
            details: records
                .iter()
                .zip(&names)
                .map(|(record, name)| (format!("Resolved recipe of {name}"), record.yaml.as_str()))
                .collect(),
        };
        Ok(page.render()?)
    }

    fn runs_section(&self, names: &[String]) -> Section {
        let columns = [
            ("run", false),
            ("verdict", false),
            ("reached", true),
            ("target", true),
            ("seed", true),
            ("state", false),
            ("golden", false),
            ("loss", true),
            ("time", true),
            ("samples/s", true),
            ("simulated step", true),
        ];
        let mut grid = Grid::new("Results and time of each run", columns);
        for (run, name) in self.runs.iter().zip(names) {
            let step = run.simulated_step.as_ref();
            let [verdict, reached, target] = run.judged();
            let [loss, time] = run.cost();
            grid.rows.push(vec![
                name.as_str().into(),
                verdict,
                reached,
                target,
                run.seed.to_string().into(),
                run.state.into(),
                run.golden.cell(),
                loss,
                time,
                run.images_per_s.map(|speed| Unit::Plain.format(speed)).unwrap_or_default().into(),
                step.map(|(device, ms)| format!("{} ms on {device}", Unit::Plain.format(*ms)))
                    .unwrap_or_default()
                    .into(),
            ]);
        }
        Section { id: "runs".into(), title: "Runs".into(), grids: vec![grid], ..Section::default() }
    }

    fn settings_section(&self, names: &[String]) -> Section {
        let (id, title) = ("settings".to_owned(), "Differences".to_owned());
        if self.settings.is_empty() {
            let notes = vec!["None: the runs have the same settings and the same seed.".to_owned()];
            return Section { id, title, notes, ..Section::default() };
        }
        let columns = std::iter::once("setting").chain(names.iter().map(String::as_str));
        let mut grid = Grid::new("Settings that differ between runs", columns.map(|name| (name, false)));
        for setting in &self.settings {
            let cell = |value: &Option<String>| match value {
                Some(value) => value.chars().take(LONGEST).collect::<String>().into(),
                None => Cell::classed("absent", "faint"),
            };
            let row = std::iter::once(setting.path.as_str().into()).chain(setting.values.iter().map(cell));
            grid.rows.push(row.collect());
        }
        Section { id, title, grids: vec![grid], ..Section::default() }
    }
}

/// Charts of loss and metrics, with the curves of all runs.
fn charts(comparison: &Comparison, records: &[RunRecord], names: &[String]) -> Vec<Chart<'static>> {
    let steps = comparison.runs.iter().map(|run| run.steps as f64).fold(0.0, f64::max);
    let overlaid = |title: &'static str, id: &'static str, unit: Unit, curves: Vec<Vec<(f64, f64)>>, markers: bool| {
        let ends = names.iter().zip(&curves).filter_map(|(name, curve)| {
            curve.last().map(|end| format!("{name} ends at {} after {} steps.", unit.format(end.1), end.0))
        });
        let description = ends.collect::<Vec<_>>().join(" ");
        let series = curves.into_iter().zip(names).zip(CLASSES.iter().cycle()).map(|((points, name), class)| Series {
            label: Some(name.clone()),
            class,
            points,
            markers,
        });
        chart((title, id), description, unit, steps, series.collect())
    };
    let mut charts = Vec::new();
    let loss: Vec<Vec<(f64, f64)>> = records.iter().map(|record| thinned(&smoothed(&losses(record)))).collect();
    if loss.iter().any(|curve| !curve.is_empty()) {
        charts.push(overlaid("Training loss, smoothed", "loss", Unit::Plain, loss, false));
    }
    let mut measured: Vec<Metric> = Vec::new();
    for run in &comparison.runs {
        let main = run.metric.into_iter().chain(run.scores.iter().map(|score| score.metric));
        main.for_each(|metric| {
            if !measured.contains(&metric) {
                measured.push(metric);
            }
        });
    }
    for metric in measured {
        let curve = |record: &RunRecord| -> Vec<(f64, f64)> {
            let evaluations = record.events.iter().filter_map(|event| match event {
                Event::Evaluated(evaluated) => Some((evaluated.step as f64, evaluated.score(metric)?)),
                _ => None,
            });
            evaluations.collect()
        };
        let (name, unit) = (metric.name(), metric.unit());
        let mut chart = overlaid(name, name, unit, records.iter().map(curve).collect(), true);
        let mut targets: Vec<f64> =
            comparison.runs.iter().filter(|run| run.metric == Some(metric)).filter_map(|run| run.target).collect();
        targets.sort_by(f64::total_cmp);
        targets.dedup();
        if let [value] = targets.as_slice() {
            let label = format!("target {}", unit.format(*value));
            chart.levels.push(Level { label, class: "target", value: *value });
        }
        charts.push(chart);
    }
    charts
}

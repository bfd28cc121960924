//! The page of a run, and the comparison of several runs.

mod before;
mod comparison;
mod curves;
pub(crate) mod pictures;
mod results;

pub use comparison::{ComparedRun, Comparison, compare};
pub use results::results;

use std::path::Path;
use zoo_pages::{Cell, Chart, Facts, Grid, Link, Page, Section, Verdict, duration, grouped};
use zoo_recipe::schema::{Metric, Reference, Unit};
use zoo_tasks::Baseline;

use crate::event::{
    Cost, DeviceCheck, Evaluated, Event, GoldenCheck, GoldenVerdict, Reached, RunResult, Started, StepDone,
};
use crate::launch::Launch;
use crate::record::RunEnd;
use curves::Point;

/// The content of a page, collected from the events of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    started: Option<Started>,
    resumed: usize,
    steps: Vec<Point>,
    evaluations: Vec<Evaluated>,
    golden: Option<GoldenCheck>,
    device: Option<DeviceCheck>,
    cost: Option<Cost>,
    /// The last event that ended the run, unless it was resumed.
    end: Option<Event>,
}

/// The content of a page in addition to the events.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The resolved recipe, as a file.
    pub yaml: &'a str,
    /// The description of the recipe.
    pub description: &'a str,
    /// Its source.
    pub reference: &'a Reference,
    /// Folder of pictures; need not exist.
    pub pictures: &'a Path,
    /// The settings with which the run was started, if known.
    pub launch: Option<&'a Launch>,
}

impl Report {
    /// Adds an event.
    pub fn add(&mut self, event: &Event) {
        match event {
            Event::Started(started) => {
                self.resumed += usize::from(started.resumed_at.is_some());
                self.started = Some(started.as_ref().clone());
                self.end = None;
            }
            Event::Step(done) => {
                let StepDone { step, loss, lr, gradient_norm, images_per_s, seconds, .. } = *done;
                self.steps.push(Point { step, loss, lr, gradient_norm, images_per_s, seconds });
            }
            Event::Evaluated(evaluated) => self.evaluations.push(evaluated.clone()),
            Event::Golden(golden) => self.golden = Some(golden.as_ref().clone()),
            Event::Device(device) => self.device = Some(device.as_ref().clone()),
            Event::Cost(cost) => self.cost = Some(cost.as_ref().clone()),
            Event::Memory(_) | Event::Checkpointed { .. } | Event::Verdict(_) => {}
            Event::Interrupted { .. } | Event::Failed { .. } | Event::Result(_) => self.end = Some(event.clone()),
        }
    }

    /// The page; with links to others, it is one of the server.
    ///
    /// # Errors
    /// A template that cannot be rendered.
    pub fn page(&self, source: &Source<'_>, links: Vec<Link>) -> Result<String, minijinja::Error> {
        let mut subtitle = vec![self.subtitle()];
        if !source.description.is_empty() {
            subtitle.insert(0, source.description.to_owned());
        }
        let mut sections: Vec<Section> =
            curves::charts(&self.steps, &self.evaluations, self.started.as_ref()).iter().map(Chart::section).collect();
        sections.extend(self.evaluation_section());
        sections.extend(self.golden.as_ref().map(before::golden));
        sections.extend(self.device.as_ref().map(before::device));
        if let Some(cost) = &self.cost {
            sections.push(before::cost(cost, self.started.as_ref().map(|started| started.steps))?);
        }
        sections.extend(pictures::sections(source.pictures));
        let mut tables = self.tables();
        tables.extend(provenance(source.reference));
        let command = source.launch.map(Launch::command);
        let page = Page {
            title: self.started.as_ref().map_or("run".to_owned(), |started| started.recipe.clone()),
            subtitle,
            served: !links.is_empty(),
            links,
            verdict: self.verdict(),
            sections,
            tables,
            details: command
                .iter()
                .map(|command| ("Command".to_owned(), command.as_str()))
                .chain([("Resolved recipe".to_owned(), source.yaml)])
                .collect(),
        };
        page.render()
    }

    fn end(&self) -> RunEnd<'_> {
        self.end.as_ref().and_then(RunEnd::of).unwrap_or(RunEnd::Open)
    }

    fn subtitle(&self) -> String {
        let Some(started) = &self.started else { return "nothing has happened yet".to_owned() };
        let Started { parameters, data, seed, .. } = started;
        format!("{} parameters on {data}, seed {seed}", grouped(*parameters))
    }

    fn verdict(&self) -> Verdict {
        let done = self.steps.last().map_or(0, |point| point.step);
        let total = self.started.as_ref().map_or(0, |started| started.steps);
        let (class, short, mut lines) = match self.end() {
            RunEnd::Open => ("", format!("running: step {done} of {total}"), vec![]),
            RunEnd::Interrupted(step) => ("", format!("interrupted after step {step} of {total}"), vec![]),
            RunEnd::Failed(step, message) => ("missed", format!("failed after step {step}"), vec![message.to_owned()]),
            RunEnd::Finished(result) => verdict_of(result),
        };
        if let Some(baseline) = self.started.as_ref().and_then(|started| started.linear_baseline) {
            lines.push(format!("A linear classifier reaches {} on the same data.", Unit::Share.format(baseline)));
        }
        for Baseline { answer, score } in self.started.iter().flat_map(|started| &started.baselines) {
            let value = score.metric.unit().format(score.value);
            lines.push(format!("On the same data, {answer} reaches {} {value}.", score.metric));
        }
        if let Some(started) = &self.started {
            lines.push(match started.golden {
                GoldenVerdict::Pass => "The training step agrees with its golden tensors.".to_owned(),
                GoldenVerdict::Baseline => {
                    "The training step agrees with a baseline that zoo recorded itself: it has not changed since \
                     then. It was not compared with a reference framework."
                        .to_owned()
                }
                GoldenVerdict::Fail => "The training step does not agree with its golden tensors.".to_owned(),
                GoldenVerdict::Absent => "The training step was not compared with golden tensors.".to_owned(),
            });
        }
        Verdict { class, short, lines }
    }

    fn evaluation_section(&self) -> Option<Section> {
        let first = self.evaluations.first()?;
        let with_loss = self.evaluations.iter().any(|evaluated| evaluated.loss.is_some());
        let mut columns = vec!["steps", "epochs"];
        columns.extend(with_loss.then_some("held-out loss"));
        columns.extend(first.scores.iter().map(|score| score.metric.name()));
        let mut grid =
            Grid::new("Results of each evaluation on held-out samples", columns.into_iter().map(|c| (c, true)));
        for Evaluated { step, epoch, loss, scores, .. } in &self.evaluations {
            let mut row: Vec<Cell> = vec![step.to_string().into(), format!("{epoch:.2}").into()];
            row.extend(with_loss.then(|| loss.map(|loss| format!("{loss:.4}")).unwrap_or_default().into()));
            // With the metrics of the first evaluation, because the log of a run may have been modified.
            row.extend(first.scores.iter().map(|column| {
                let score = scores.iter().find(|score| score.metric == column.metric);
                score.map(|score| score.metric.unit().format(score.value)).unwrap_or_default().into()
            }));
            grid.rows.push(row);
        }
        let (id, title) = ("evaluations".to_owned(), "Evaluations".to_owned());
        Some(Section { id, title, grids: vec![grid], ..Section::default() })
    }

    fn tables(&self) -> Vec<Facts> {
        let Some(started) = &self.started else { return Vec::new() };
        let environment = &started.environment;
        let mut training = vec![
            ("batch", started.batch.to_string()),
            ("steps", format!("{} ({} epochs of {})", started.steps, started.epochs, started.steps_per_epoch)),
            ("training samples", grouped(started.train_samples as u64)),
            ("held-out samples", grouped(started.val_samples as u64)),
            ("classes", started.classes.to_string()),
        ];
        if let Some(target) = &started.target {
            let unit = target.metric.unit();
            let spread = target.sigma.map(|s| format!(" ± {}", unit.format(s))).unwrap_or_default();
            let source = target.of.as_ref().map(|of| format!(" ({of})")).unwrap_or_default();
            let value = unit.format(target.value);
            training.push(("target", format!("{} {value}{spread}{source}", target.metric)));
        }
        if let Some(speed) = self.median_speed() {
            training.push(("speed", format!("{} images/s (median)", Unit::Plain.format(speed))));
        }
        if let RunEnd::Finished(result) = self.end() {
            training.push(("time", duration(result.seconds)));
        }
        if self.resumed > 0 {
            let times = if self.resumed == 1 { "once".to_owned() } else { format!("{} times", self.resumed) };
            training.push(("resumed", times));
        }
        let mut machine = vec![("zoo", environment.zoo.clone()), ("platform", environment.platform.clone())];
        machine.extend(environment.cpu.clone().map(|cpu| ("processor", cpu)));
        machine.push(("vector instructions", environment.cpu_features.join(", ")));
        machine.push(("threads", environment.threads.to_string()));
        machine.push(("kernels", environment.kernels.clone()));
        machine.push(("arithmetic", started.device.clone()));
        machine.extend(environment.revision.clone().map(|revision| ("git revision", revision)));
        vec![Facts { title: "Training", rows: training }, Facts { title: "Environment", rows: machine }]
    }

    fn median_speed(&self) -> Option<f64> {
        let mut speeds: Vec<f64> = self.steps.iter().map(|point| point.images_per_s).collect();
        speeds.sort_by(f64::total_cmp);
        speeds.get(speeds.len() / 2).copied()
    }
}

impl<'a> FromIterator<&'a Event> for Report {
    fn from_iter<I: IntoIterator<Item = &'a Event>>(events: I) -> Self {
        let mut report = Self::default();
        events.into_iter().for_each(|event| report.add(event));
        report
    }
}

/// The sources of a recipe.
fn provenance(reference: &Reference) -> Option<Facts> {
    let known = [("paper", &reference.paper), ("code", &reference.code)];
    let rows: Vec<_> = known.into_iter().filter_map(|(name, text)| Some((name, text.clone()?))).collect();
    (!rows.is_empty()).then_some(Facts { title: "Source of the recipe", rows })
}

fn verdict_of(result: &RunResult) -> (&'static str, String, Vec<String>) {
    let reached = |metric: Metric, value: Option<f64>| value.map_or("nothing".to_owned(), |v| metric.unit().format(v));
    let (metric, achieved) = (result.metric, reached(result.metric, result.achieved));
    match (result.target, result.met) {
        (Some(target), Some(met)) => {
            let target = metric.unit().format(target);
            let (class, word) = if met { ("met", "target met") } else { ("missed", "target missed") };
            let also = result.also.iter().map(|Reached { metric, target, achieved, met }| {
                let word = if *met { "met" } else { "missed" };
                let (achieved, target) = (reached(*metric, *achieved), metric.unit().format(*target));
                format!("Also: {metric} {achieved}, target {target}, {word}.")
            });
            (class, format!("{word}: {metric} {achieved}, target {target}"), also.collect())
        }
        _ => ("", format!("finished: {metric} {achieved}"), vec!["The recipe has no target for these data.".into()]),
    }
}

#[cfg(test)]
mod tests;

//! Tables of trainings: each row is trained, unless its run folder already has the result.

use super::clock::verdict;
use crate::Failure;
use crate::console::{Console, DIM, HEADING, paint};
use crate::context::Context;
use crate::interrupt::{Interrupt, Stopping};
use crate::memory::MemoryArgs;
use crate::numbers::percent;
use crate::progress::{Bar, Progress};
use crate::simulated::Simulated;
use crate::table::{Table, fitted};
use crate::training_data;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tracing::info;
use zoo_datasets::{files, hash::fnv1a64};
use zoo_engine::{EngineError, Options, Step};
use zoo_graph::Bytes;
use zoo_npu::Work;
use zoo_npu::study::{Study, Trained, Training, TrainingRow, TrainingTable, Verdict};
use zoo_recipe::BuildOptions;
use zoo_recipe::{ConfigPath, Recipe, schema::Metric};
use zoo_train::{
    Event, GoldenVerdict, HOST, Job, ListenError, Listener, Outcome, RunFiles, RunFolder, RunResult, TrainError,
    Trainer, memory,
};

/// The result of a finished run, in its folder.
const RESULT: &str = "result.json";
/// Size limit, larger than any result.
const LONGEST: u64 = 1 << 24;
/// The event log of a run.
const EVENTS: &str = "events.jsonl";

/// Trains every row that has no result yet, if requested; `None` if it was interrupted.
///
/// # Errors
/// Data that are missing, or files that cannot be written. A row that the device refuses is an outcome.
pub(super) fn run(
    study: &Study,
    train: bool,
    out: &Path,
    memory: MemoryArgs,
    context: &Context,
) -> Result<Option<Vec<Trained>>, Failure> {
    let mut trained = Vec::new();
    if study.trainings.is_empty() {
        return Ok(Some(trained));
    }
    let interrupt = train.then(|| Interrupt::install(&context.progress, Stopping::Training));
    let runs = Runs { study, cancel: interrupt.as_ref().map(Interrupt::arm), out, memory, context };
    for table in &study.trainings {
        let mut first = None;
        for row in &table.rows {
            let device = row.device.as_deref().unwrap_or(&study.device);
            let Some(training) = runs.perform(table, row, device)? else { return Ok(None) };
            let outcome = row.judge(table, device, training, first);
            first = first.or(Some((outcome.published, outcome.score)));
            trained.push(outcome);
        }
    }
    Ok(Some(trained))
}

/// A training that can begin or be looked up.
struct Prepared {
    recipe: Recipe,
    overridden: Vec<ConfigPath>,
    simulated: Option<Simulated>,
    /// Its folder, whose name depends on its settings.
    folder: PathBuf,
}

/// The trainings of a study.
struct Runs<'a> {
    study: &'a Study,
    /// Set if a training is to stop; absent if no training may begin.
    cancel: Option<&'a AtomicBool>,
    out: &'a Path,
    memory: MemoryArgs,
    context: &'a Context,
}

impl Runs<'_> {
    /// Trains a row, or reads its result; `None` if it was interrupted.
    fn perform(&self, table: &TrainingTable, row: &TrainingRow, device: &str) -> Result<Option<Training>, Failure> {
        let mut prepared = match self.prepare(table, row, device) {
            Ok(prepared) => prepared,
            Err(refused @ (Failure::Graph(_) | Failure::Npu(_))) => {
                return Ok(Some(Training::Refused(refused.to_string())));
            }
            Err(Failure::Recipe(errors)) => {
                let reason = errors.to_string().lines().next().map(str::to_owned);
                return Ok(Some(Training::Missing(reason)));
            }
            Err(other) => return Err(other),
        };
        if let Some(done) = finished(&prepared.folder)? {
            return Ok(Some(done));
        }
        let model = prepared.recipe.resolve()?;
        if let Some(simulated) = &prepared.simulated {
            // If the device refuses the step, this is reported before any data are needed.
            let graph = zoo_recipe::build(&prepared.recipe, &model, &BuildOptions::train(prepared.recipe.train.batch))?;
            if let Err(EngineError::Graph(refused)) =
                Step::simulated(graph, Options::of(&prepared.recipe), &simulated.arithmetic)
            {
                return Ok(Some(Training::Refused(refused.to_string())));
            }
        }
        let Some(cancel) = self.cancel else { return Ok(Some(Training::Missing(None))) };
        let sets = training_data::open(&mut prepared.recipe, &prepared.overridden, None)?;
        let job = Job {
            recipe: &prepared.recipe,
            model: &model,
            data: &sets,
            linear_baseline: None,
            baselines: &[],
            golden: GoldenVerdict::Absent,
            device: prepared.simulated.as_ref().map(Simulated::device),
        };
        let needed = Bytes(memory::forecast(job)?.peak);
        let what = format!("the training of `{}`", row.what);
        self.memory.expect(&what, needed, |_| "--no-train shows only rows that are already trained".to_owned())?;
        let mut trainer = Trainer::new(job)?;
        trainer.initialise()?;
        info!("{}: {} ({device}), in {}", table.title, row.what, prepared.folder.display());
        let (folder, files) = if prepared.folder.join(EVENTS).is_file() {
            let folder = RunFolder::reopen(&prepared.folder)?;
            let files = folder.resume(&mut trainer)?.files;
            (folder, files)
        } else {
            let folder = RunFolder::create(&prepared.folder, &prepared.recipe)?;
            let files = folder.begin()?;
            (folder, files)
        };
        let mut listener = Follow { files, progress: &self.context.progress, what: &row.what, bar: None };
        match trainer.run(&folder.checkpoints(), &mut listener, cancel) {
            Ok(Outcome::Interrupted { .. }) => Ok(None),
            Ok(Outcome::Finished(result)) => Ok(Some(ended(&result, folder.path())?)),
            // A training that diverged is a result.
            Err(
                TrainError::LossNotFinite { .. } | TrainError::NoLabels { .. } | TrainError::VariableNotFinite { .. },
            ) => {
                let metric = prepared.recipe.metric();
                let curve = curve(folder.path(), metric)?;
                Ok(Some(Training::Ended { metric, score: metric.worst(), skipped_steps: 0, curve }))
            }
            Err(other) => Err(other.into()),
        }
    }

    /// The recipe of a row, its device, and the folder of its run.
    fn prepare(&self, table: &TrainingTable, row: &TrainingRow, device: &str) -> Result<Prepared, Failure> {
        let sets: Vec<String> = self.study.set.iter().chain(&table.set).chain(&row.set).cloned().collect();
        let loaded = self.context.catalog()?.load(&self.study.recipe, Some(&table.profile), &sets)?;
        let mut recipe = loaded.recipe;
        let simulated = Simulated::find(Some(device), Work::Train, &mut recipe, self.context)?;
        let yaml = recipe.to_yaml();
        let yaml = yaml.map_err(|error| Failure::Usage(format!("this recipe cannot be written: {error}")))?;
        let arithmetic = simulated.as_ref().map(|simulated| &simulated.arithmetic);
        let depends_on = format!("{yaml}{arithmetic:?}{}", env!("CARGO_PKG_VERSION"));
        let name = format!("{}-{:08x}", slug(&row.what), fnv1a64(depends_on.as_bytes()) as u32);
        Ok(Prepared { recipe, overridden: loaded.overridden, simulated, folder: self.out.join(name) })
    }
}

/// A name for a folder.
fn slug(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let words: String = text.chars().map(plain).collect();
    words.split('-').filter(|word| !word.is_empty()).take(6).collect::<Vec<_>>().join("-")
}

/// The result of a finished run.
fn finished(folder: &Path) -> Result<Option<Training>, Failure> {
    let path = folder.join(RESULT);
    if !path.is_file() {
        return Ok(None);
    }
    let unreadable = |source| Failure::Unreadable { path: path.clone(), source };
    let text = files::read(&path, LONGEST).map_err(unreadable)?;
    let result: RunResult = serde_json::from_slice(&text).map_err(|error| unreadable(error.into()))?;
    Ok(Some(ended(&result, folder)?))
}

fn ended(result: &RunResult, folder: &Path) -> Result<Training, Failure> {
    Ok(Training::Ended {
        metric: result.metric,
        score: result.achieved.filter(|_| result.fault().is_none()).unwrap_or_else(|| result.metric.worst()),
        skipped_steps: result.skipped_steps,
        curve: curve(folder, result.metric)?,
    })
}

/// Intermediate scores from the run's log.
fn curve(folder: &Path, metric: Metric) -> Result<Vec<(u64, f64)>, Failure> {
    let events = RunFolder::events(folder)?;
    let evaluated = events.iter().filter_map(|event| match event {
        Event::Evaluated(evaluated) => Some((evaluated.step, evaluated.score(metric)?)),
        _ => None,
    });
    Ok(evaluated.collect())
}

/// Passes events to the files of the run, and updates a progress bar.
struct Follow<'a> {
    files: RunFiles,
    progress: &'a Progress,
    what: &'a str,
    bar: Option<Bar>,
}

impl Listener for Follow<'_> {
    fn hear(&mut self, event: &Event) -> Result<(), ListenError> {
        self.files.hear(event)?;
        match event {
            Event::Started(started) => self.bar = Some(self.progress.bar(started.steps)),
            Event::Step(done) => {
                if let Some(bar) = &self.bar {
                    bar.position(done.step);
                    bar.message(format!("{}: loss {:.3}", self.what, done.loss));
                }
            }
            Event::Evaluated(evaluated) => {
                let scores: Vec<String> = evaluated.scores.iter().map(ToString::to_string).collect();
                info!("{}: epoch {:.1}  {}", self.what, evaluated.epoch, scores.join(", "));
            }
            Event::Golden(_)
            | Event::Device(_)
            | Event::Cost(_)
            | Event::Memory(_)
            | Event::Checkpointed { .. }
            | Event::Verdict(_) => {}
            Event::Interrupted { .. } | Event::Failed { .. } | Event::Result(_) => self.bar = None,
        }
        Ok(())
    }
}

/// Prints the tables.
pub(super) fn print(study: &Study, trained: &[Trained], out: &mut Console) -> Result<(), Failure> {
    for table in &study.trainings {
        writeln!(out, "\n{}", paint(HEADING, &table.title))?;
        if let Some(note) = &table.note {
            writeln!(out, "{}", paint(DIM, fitted(note)))?;
        }
        let mut rows = Table::new(["", "on", ">published", ">trained", "", ">skipped", "", ""]);
        for row in trained.iter().filter(|row| row.table == table.title) {
            let shown = |value| row.metric.map_or_else(|| percent(value), |metric| metric.format(value));
            let published = row.published.map(shown);
            let published = published.or(row.published_outcome.map(|outcome| outcome.word().to_owned()));
            let score = match (row.score, &row.error) {
                (Some(score), _) => shown(score),
                (None, Some(_)) if row.verdict != Verdict::Open => "error".to_owned(),
                (None, _) => "not trained".to_owned(),
            };
            let note = row.because.clone().or_else(|| row.error.clone()).unwrap_or_default();
            rows.row([
                (&row.what).into(),
                if row.device == HOST { "fp32".into() } else { (&row.device).into() },
                published.unwrap_or_default().into(),
                score.into(),
                row.metric.map(Metric::name).unwrap_or_default().into(),
                row.skipped_steps.map(|steps| steps.to_string()).unwrap_or_default().into(),
                verdict(row.verdict),
                crate::table::Cell::styled(note.replace('\n', " "), DIM),
            ]);
        }
        write!(out, "{rows}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_folders_that_say_what_they_are() {
        assert_eq!(slug("loss scale 2^12, with clipping"), "loss-scale-2-12-with-clipping");
        assert_eq!(slug("fp32"), "fp32");
    }
}

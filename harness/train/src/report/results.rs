//! Results of runs, compared with published results and with other frameworks on the same data, as a Markdown page.

use statrs::statistics::{Data, OrderStatistics};
use std::fmt::Write;
use zoo_pages::counted;
use zoo_recipe::schema::Metric;

use crate::{
    HOST, RunsError,
    convergence::training_changes,
    elsewhere::Elsewhere,
    event::{Event, GoldenCheck, GoldenVerdict, RunResult, Started},
    record::{RunEnd, RunRecord},
};

/// A finished run.
struct Finished<'a> {
    record: &'a RunRecord,
    started: &'a Started,
    result: &'a RunResult,
    value: f64,
}

/// Trainings that only differ in their seeds.
struct Row {
    who: String,
    values: Vec<f64>,
    seconds: Vec<f64>,
    seeds: Vec<u64>,
}

/// The page, with a section per training that covers several seeds, devices and frameworks, below a note.
///
/// # Errors
/// Runs that have not finished, or that have no value.
pub fn results(records: &[RunRecord], elsewhere: &[Elsewhere], note: Option<&str>) -> Result<String, RunsError> {
    let runs = records.iter().map(finished).collect::<Result<Vec<_>, _>>()?;
    let mut trainings: Vec<Vec<&Finished<'_>>> = Vec::new();
    for run in &runs {
        match trainings.iter_mut().find(|training| is_one_training(training[0].record, run.record)) {
            Some(training) => training.push(run),
            None => trainings.push(vec![run]),
        }
    }
    let mut page = HEAD.to_owned();
    if let Some(note) = note {
        page.extend(["\n", note, "\n"]);
    }
    for training in &trainings {
        section(training, elsewhere, &mut page);
    }
    Ok(page)
}

const HEAD: &str = "\
# Results

<!-- Made by `zoo report RUNS --against RECORDS --markdown FILE --note NOTE`. -->

One section per training: what zoo reaches, beside the target of the recipe with its source, and beside recorded
trainings of other frameworks with as many steps and held-out samples. Values are means over seeds, and sigma is their
standard deviation. The time is the median over seeds, without evaluations. Times of busy or different machines do not
compare.
";

fn finished(record: &RunRecord) -> Result<Finished<'_>, RunsError> {
    let (Some(started), RunEnd::Finished(result)) = (record.started(), record.end()) else {
        let folder = record.folder.display();
        return Err(RunsError::Unfit(format!("{folder} is not finished: only finished runs have results")));
    };
    let no_value = || format!("{}: the last evaluation has no {}", record.folder.display(), result.metric);
    let value = result.achieved.ok_or_else(|| RunsError::Unfit(no_value()))?;
    Ok(Finished { record, started, result, value })
}

/// The time of a training without its evaluations, in seconds.
pub(super) fn training_seconds(events: &[Event], whole: f64) -> f64 {
    let (mut before, mut evaluations) = (0.0, 0.0);
    for event in events {
        match event {
            Event::Step(step) => before = step.seconds,
            Event::Evaluated(evaluated) => {
                evaluations += evaluated.seconds - before;
                before = evaluated.seconds;
            }
            _ => {}
        }
    }
    whole - evaluations
}

/// Whether two runs only differ in seed and device.
fn is_one_training(first: &RunRecord, other: &RunRecord) -> bool {
    training_changes(first, other).iter().all(|change| change.path == "device")
}

fn section(training: &[&Finished<'_>], elsewhere: &[Elsewhere], page: &mut String) {
    let Finished { record, started, result, .. } = training[0];
    let (metric, recipe) = (result.metric, &record.recipe);
    let mut rows: Vec<Row> = Vec::new();
    for other in elsewhere.iter().filter(|other| other.is_training_of(started, metric)) {
        add(&mut rows, other.by.clone(), other.value, other.seconds, other.seed);
    }
    for run in training {
        let who = match run.started.device.as_str() {
            HOST => "zoo".to_owned(),
            device => format!("zoo, arithmetic of {device}"),
        };
        let seconds = training_seconds(&run.record.events, run.result.seconds);
        add(&mut rows, who, run.value, seconds, run.started.seed);
    }
    let golden = record.events.iter().find_map(|event| match event {
        Event::Golden(golden) => Some(golden.as_ref()),
        _ => None,
    });
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "\n## {}\n\n{}Data: {}; {} samples to train on, {} held out. {}, {}{}.\n{}\n\n| | {metric} | sigma | time | \
         seeds |\n\
         | --- | --- | --- | --- | --- |\n",
        recipe.name,
        recipe.description.as_ref().map_or_else(String::new, |description| format!("{description}.\n")),
        started.data,
        started.train_samples,
        started.val_samples,
        counted(result.epochs, "epoch"),
        counted(result.steps, "step"),
        golden.map_or_else(String::new, changed),
        golden.map_or("The golden was not checked.".to_owned(), proven),
    );
    if let Some(target) = &recipe.target {
        let of = target.of.as_deref().unwrap_or("the recipe's target");
        let _ = writeln!(page, "| {of} | {} | | | |", metric.format(target.value));
    }
    for row in rows {
        let _ = writeln!(page, "{}", row.written(metric));
    }
}

fn add(rows: &mut Vec<Row>, who: String, value: f64, seconds: f64, seed: u64) {
    let place = rows.iter().position(|row| row.who == who).unwrap_or_else(|| {
        rows.push(Row { who, values: Vec::new(), seconds: Vec::new(), seeds: Vec::new() });
        rows.len() - 1
    });
    rows[place].values.push(value);
    rows[place].seconds.push(seconds);
    rows[place].seeds.push(seed);
}

impl Row {
    fn written(&self, metric: Metric) -> String {
        let n = self.values.len() as f64;
        let centre = self.values.iter().sum::<f64>() / n;
        let squares: f64 = self.values.iter().map(|value| (value - centre).powi(2)).sum();
        let sigma = match self.values.len() {
            1 => String::new(),
            _ => metric.format_difference((squares / (n - 1.0)).sqrt()),
        };
        let seeds = self.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let seconds = Data::new(self.seconds.clone()).median();
        // As precise as the deviation.
        let centre = metric.format_difference(centre);
        format!("| {} | {centre} | {sigma} | {seconds:.0} s | {seeds} |", self.who)
    }
}

/// The changes of a run to its recipe, for the end of a sentence.
fn changed(golden: &GoldenCheck) -> String {
    let kept = |change: &&String| !change.starts_with("train.seed") && !change.starts_with("engine.");
    let changes: Vec<&str> = golden.changes.iter().filter(kept).map(String::as_str).collect();
    if changes.is_empty() { String::new() } else { format!(" (changed from the recipe: {})", changes.join(", ")) }
}

/// The result of the golden check before the run, as a sentence.
fn proven(golden: &GoldenCheck) -> String {
    let worst = golden.stages.iter().filter_map(|stage| stage.worst.as_ref()?.ratio).fold(0.0, f64::max);
    let verdict = match golden.verdict {
        GoldenVerdict::Pass => "passed",
        GoldenVerdict::Baseline => "passed against a baseline of zoo",
        GoldenVerdict::Fail => "failed",
        GoldenVerdict::Absent => return "There is no golden.".to_owned(),
    };
    format!("Golden {verdict} in {}, at most {worst:.1} times its floor.", golden.dtype)
}

//! `zoo run`: prove the step, train to the target, evaluate, say whether it was met.

pub(super) mod data;
mod forebode;
mod proof;
mod rehearse;
pub(super) mod screen;

use super::{Context, SCHEMA_VERSION, simulated::Simulated};
use crate::catalog::Catalog;
use crate::ci::{Case, Fault, JunitArgs, Outcome as Judged, Suite};
use crate::cli::{Change, Format};
use crate::console::{BAD, GOOD, paint};
use crate::interrupt::Interrupt;
use crate::numbers::{Seconds, percent};
use crate::{Exit, Failure};
use screen::Screen;
use serde::Serialize;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing::info;
use zoo_npu::Work;
use zoo_recipe::{Loaded, schema::Metric};
use zoo_train::{
    Event, GoldenVerdict, Job, ListenError, Listener, Outcome, RunFiles, RunFolder, RunResult, Trainer, metrics,
};

/// Prove the training step, train to the target, evaluate, and say whether it was met.
///
/// Trains the recipe's `mini` profile unless told otherwise: built-in data, minutes on a CPU. Before that the recipe as written is
/// checked against its golden with the kernels that will train. The run folder gets checkpoints, TensorBoard events, a log
/// of JSON lines and report.html. Ctrl-C leaves a checkpoint.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo run resnet50
  zoo run resnet50 --data ../cifar10 --set train.epochs=3
  zoo run resnet50 --profile full --data /data/imagenet --out runs/imagenet
  zoo run resnet50 --junit run.xml                   a test case per golden stage and target, for CI
  zoo run resnet50 --resume                          goes on with the last run that was interrupted
  zoo run resnet50 --set train.seed=1 --format json | jq 'select(.event == \"result\")'")]
pub struct Args {
    /// Name of a recipe, or path of its file
    #[arg(value_name = "RECIPE")]
    recipe: String,
    #[command(flatten)]
    change: Change,
    /// Train on the data in this folder: CIFAR-10 binaries, train/CLASS/* with val/CLASS/*, or CLASS/*; images with gts for
    /// text; folders of frames (DAVIS, VOT) for tracking
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Folder of the run; runs/RECIPE-PROFILE-NUMBER by default
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with an interrupted run, bit for bit as if it had not been: the one in --out, or the last of this recipe
    #[arg(long)]
    resume: bool,
    /// Threads; the results do not depend on it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Compute with the arithmetic of this device: the name of a file in recipes/devices, or host
    #[arg(long, value_name = "DEV|host")]
    device: Option<String>,
    /// Do not check the golden first
    #[arg(long)]
    no_check: bool,
    #[command(flatten)]
    junit: JunitArgs,
}

/// The last line of a run that was not begun because its golden check failed.
#[derive(Serialize)]
struct NotBegun {
    event: &'static str,
    schema_version: u32,
    metric: Metric,
    target: Option<f64>,
    achieved: Option<f64>,
    met: Option<bool>,
    epochs: u64,
    seconds: f64,
    golden: GoldenVerdict,
}

/// Where runs go.
const RUNS: &str = "runs";

/// Trains; missed if golden or target are.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let end = train(args, context);
    if let Some(file) = &args.junit.junit {
        context.ci.write_junit("run", file, &end)?;
    }
    end
}

fn train(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let interrupt = Interrupt::install(&context.progress);
    let catalog = context.catalog()?;
    let (profile, mut loaded) = context.load_to_train(&catalog, &args.recipe, &args.change)?;
    if let Some(threads) = args.threads {
        loaded.recipe.engine.threads = Some(usize::from(threads));
    }
    super::use_threads(loaded.recipe.engine.threads)?;
    // First all that can be refused at once, then what takes its time.
    let mut recipe = loaded.recipe.clone();
    let sets = data::open(&mut recipe, &loaded.overridden, args.data.as_deref())?;
    let model = recipe.resolve()?;
    let simulated = Simulated::find(args.device.as_deref(), Work::Train, &mut recipe, context)?;
    if let Some(warning) = forebode::relu_on_logits(&recipe, &model) {
        context.progress.line(&warning.to_string());
    }
    if let Some(out) = args.out.as_ref().filter(|_| !args.resume) {
        RunFolder::expect_vacant(out)?;
    }
    let golden = prove(args, &catalog, &loaded, context)?;
    if golden == GoldenVerdict::Fail {
        return not_begun(&loaded, context);
    }
    if let Some(simulated) = simulated.as_ref().filter(|_| !args.no_check && !args.resume) {
        rehearse::rehearse(&args.recipe, &recipe, simulated, &catalog, context)?;
    }
    let baseline = if args.resume { None } else { data::linear_baseline(&recipe, &sets, &context.progress)? };
    let device = simulated.as_ref().map(Simulated::device);
    let job =
        Job { recipe: &recipe, model: &model, data: &sets, linear_baseline: baseline, baselines: &[], golden, device };
    let baselines = data::trivial_answers(job, &context.progress)?;
    data::announce(&recipe, &sets, baseline, &baselines);
    let job = Job { baselines: &baselines, ..job };
    let mut trainer = Trainer::new(job)?;
    let stem = format!("{}-{profile}", recipe.name);
    let (folder, files) = if args.resume {
        let path = match &args.out {
            Some(out) => out.clone(),
            None => last_run(&stem)?,
        };
        let folder = RunFolder::reopen(path)?;
        let resumed = folder.resume(&mut trainer)?;
        info!("going on with {} after step {}", folder.path().display(), resumed.step);
        (folder, resumed.files)
    } else {
        let path = args.out.clone().unwrap_or_else(|| next_run(&stem));
        let folder = RunFolder::create(path, &recipe)?;
        let files = folder.begin()?;
        info!("run folder {}", folder.path().display());
        (folder, files)
    };
    let json = context.format == Format::Json;
    let screen = Screen::new(&context.progress, json.then_some(&mut context.out));
    let outcome = trainer.run(&folder.checkpoints(), &mut Both { files, screen }, interrupt.arm())?;
    match outcome {
        Outcome::Interrupted { step } => {
            let out = folder.path().display();
            info!("interrupted after step {step}; to go on: zoo run {} --resume --out {out}", args.recipe);
            Ok(Exit::Interrupted)
        }
        Outcome::Finished(result) => {
            context.ci.record(targets(&format!("{} {profile}", recipe.name), &result));
            finished(&result, folder.path(), context)
        }
    }
}

/// The files of the run folder first, then the screen.
struct Both<'a> {
    files: RunFiles,
    screen: Screen<'a>,
}

impl Listener for Both<'_> {
    fn hear(&mut self, event: &Event) -> Result<(), ListenError> {
        self.files.hear(event)?;
        self.screen.hear(event)
    }
}

/// The verdict of the golden check, unless it is not wanted.
fn prove(args: &Args, catalog: &Catalog, loaded: &Loaded, context: &mut Context) -> Result<GoldenVerdict, Failure> {
    if args.no_check {
        info!("golden: not checked (--no-check)");
        return Ok(GoldenVerdict::Absent);
    }
    let profile = args.change.profile.as_deref();
    proof::prove(&args.recipe, profile, loaded, catalog, context)
}

/// The failed check has been reported; says that nothing was trained.
fn not_begun(loaded: &Loaded, context: &mut Context) -> Result<Exit, Failure> {
    let target = loaded.recipe.target.as_ref();
    match context.format {
        Format::Json => context.out.json(&NotBegun {
            event: "result",
            schema_version: SCHEMA_VERSION,
            metric: target.map_or(Metric::of(loaded.recipe.data.source.kind())[0], |target| target.metric),
            target: target.map(|target| target.value),
            achieved: None,
            met: target.map(|_| false),
            epochs: 0,
            seconds: 0.0,
            golden: GoldenVerdict::Fail,
        })?,
        Format::Text => {
            let refused = paint(BAD, "not trained");
            writeln!(context.out, "{refused}: the step is not the golden's (--no-check trains all the same)")?;
        }
    }
    Ok(Exit::Missed)
}

/// A case per metric that the target names.
fn targets(name: &str, result: &RunResult) -> Suite {
    let first = result.target.map(|target| (result.metric, target, result.achieved));
    let also = result.also.iter().map(|goal| (goal.metric, goal.target, goal.achieved));
    let mut cases: Vec<Case> = Vec::new();
    for (metric, target, achieved) in first.into_iter().chain(also) {
        let fault = || Fault {
            message: format!("{} {}, target {}", metrics::name(metric), percent(achieved), percent(target)),
            first: true,
            ..Fault::default()
        };
        let outcome = if achieved >= target { Judged::Pass } else { Judged::Fail(fault()) };
        cases.push(Case { name: format!("target {}", metrics::name(metric)), outcome });
    }
    if cases.is_empty() {
        let why = "the recipe names no target for these data".to_owned();
        cases.push(Case { name: "target".to_owned(), outcome: Judged::Absent(why) });
    }
    Suite { name: name.to_owned(), cases, time: Duration::try_from_secs_f64(result.seconds).unwrap_or_default() }
}

/// The verdict; JSON has had it as the last event.
fn finished(result: &RunResult, folder: &Path, context: &mut Context) -> Result<Exit, Failure> {
    let missed = result.met == Some(false);
    if context.format == Format::Text {
        let linear = result.linear_baseline.map(|b| format!("a linear classifier: {}", percent(b)));
        let beside = |metric: Metric| {
            let trivial = result.baselines.iter().filter(|baseline| baseline.score.metric == metric);
            let trivial = trivial.map(|baseline| format!("{}: {}", baseline.answer, percent(baseline.score.value)));
            let all: Vec<String> =
                linear.clone().filter(|_| metric == Metric::Top1).into_iter().chain(trivial).collect();
            if all.is_empty() { String::new() } else { format!(" ({})", all.join(", ")) }
        };
        let verdict = |target: f64, met: bool| {
            let word = if met { paint(GOOD, "met") } else { paint(BAD, "missed") };
            format!(", target {}: {word}", percent(target))
        };
        let time = Seconds(result.seconds);
        let first = match result.target {
            Some(target) => verdict(target, result.achieved >= target),
            None => ", no target".to_owned(),
        };
        let (metric, achieved) = (metrics::name(result.metric), percent(result.achieved));
        writeln!(context.out, "{metric} {achieved}{}{first}", beside(result.metric))?;
        for goal in &result.also {
            let (metric, achieved) = (metrics::name(goal.metric), percent(goal.achieved));
            writeln!(context.out, "{metric} {achieved}{}{}", beside(goal.metric), verdict(goal.target, goal.met))?;
        }
        if result.skipped_steps > 0 {
            writeln!(context.out, "{} steps updated nothing", result.skipped_steps)?;
        }
        writeln!(context.out, "{} epochs in {time}, golden {}", result.epochs, proof::word(result.golden))?;
        writeln!(context.out, "{}", folder.join("report.html").display())?;
    }
    Ok(if missed { Exit::Missed } else { Exit::Pass })
}

/// The first folder `runs/STEM-NUMBER` that is free.
fn next_run(stem: &str) -> PathBuf {
    let number = numbered_runs(stem).into_iter().max().unwrap_or(0) + 1;
    Path::new(RUNS).join(format!("{stem}-{number}"))
}

/// The latest folder `runs/STEM-NUMBER`.
fn last_run(stem: &str) -> Result<PathBuf, Failure> {
    let number = numbered_runs(stem).into_iter().max();
    let number = number.ok_or_else(|| Failure::Usage(format!("nothing to resume: there is no {RUNS}/{stem}-*")))?;
    Ok(Path::new(RUNS).join(format!("{stem}-{number}")))
}

fn numbered_runs(stem: &str) -> Vec<u64> {
    let entries = fs::read_dir(RUNS).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_prefix(stem)?.strip_prefix('-')?.parse().ok()
    };
    entries.filter_map(number).collect()
}

//! `zoo run`: prove the step, train, evaluate, and judge the result against the target.

mod args;
mod before;
mod folder;
mod golden;
mod memory;
mod plan;
mod ranks;
mod rehearse;
mod screen;
mod stuck;
mod warnings;

pub use args::Args;

use crate::ci::{Case, Fault, Outcome as Judged, Suite};
use crate::console::{BAD, GOOD, HEADING, paint};
use crate::context::{self, Context, FULL, SCHEMA_VERSION};
use crate::convergence;
use crate::interrupt::{Interrupt, Stopping};
use crate::memory::MemoryArgs;
use crate::numbers::{Seconds, counted, percent};
use crate::options::Format;
use crate::output;
use crate::simulated::Simulated;
use crate::training_data;
use crate::{Exit, Failure};
use golden::Proof;
use plan::Plan;
use screen::Screen;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use stuck::Stuck;
use tracing::{debug, info};
use zoo_npu::Work;
use zoo_recipe::{Loaded, Recipe, schema::Metric};
use zoo_tasks::{Baseline, Sight};
use zoo_train::convergence::Rules;
use zoo_train::{
    CheckpointStore, Event, GoldenVerdict, HOST, Job, ListenError, Listener, Outcome, RunFiles, RunFolder, RunResult,
    TrainError, Trainer,
};

/// Trains; [`Exit::Missed`] if the golden or the target is missed.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    context.join()?;
    output::judged("run", &args.junit, context, |context| {
        Plan::new(args, context).and_then(|plan| carry_out(&plan, args.memory, context))
    })
}

/// Opens the data, proves the step, trains once or with several seeds. Cheap checks come first.
fn carry_out(plan: &Plan, limit: MemoryArgs, context: &mut Context) -> Result<Exit, Failure> {
    let interrupt = Interrupt::install(&context.progress, Stopping::Training);
    let (launch, loaded) = (&plan.launch, &plan.loaded);
    context::use_threads(loaded.recipe.engine.threads)?;
    let mut recipe = loaded.recipe.clone();
    let spinner = context.progress.spinner();
    spinner.message("opening the data");
    // The first process creates or unpacks shared files.
    let open = || training_data::open(&mut recipe, &loaded.overridden, launch.data.as_deref());
    let sets = ranks::first_before_others(&context.ranks, open)?;
    drop(spinner);
    training_data::expect_divided(&sets)?;
    training_data::warn_of_absent_classes(&sets);
    let model = recipe.resolve()?;
    let simulated = Simulated::find(launch.device.as_deref(), Work::Train, &mut recipe, context)?;
    if let Some(warning) = warnings::relu_on_logits(&recipe, &model) {
        context.progress.line(&warning.to_string());
        context.ci.diagnostic(&warning);
    }
    let device = simulated.as_ref().map(Simulated::device);
    let golden = GoldenVerdict::Absent;
    let job =
        Job { recipe: &recipe, model: &model, data: &sets, linear_baseline: None, baselines: &[], golden, device };
    // Memory is not forecast for several processes on one machine.
    let memory = match context.ranks.size() {
        1 => Some(memory::expect(job, limit, context)?),
        _ => None,
    };
    let first = context.ranks.is_first();
    let proof = if first { prove(plan, limit, context)? } else { Proof::absent() };
    let Proof { verdict: golden, event: proven } = ranks::same_verdict(&context.ranks, proof)?;
    if golden == GoldenVerdict::Fail {
        return not_begun(loaded, context);
    }
    // The log of a resumed run already contains these results.
    let anew = first && begins_anew(plan)?;
    let rehearsed = match simulated.as_ref().filter(|_| !launch.no_check && anew) {
        Some(simulated) => rehearse::rehearse(&launch.recipe, &recipe, simulated, limit, context)?,
        None => None,
    };
    let cost = if first { price(&recipe, context) } else { None };
    if let Some(cost) = cost.as_ref().filter(|_| context.format == Format::Json) {
        context.out.json(cost)?;
    }
    let baseline = if anew { training_data::linear_baseline(&recipe, &sets, limit, &context.progress)? } else { None };
    let job = Job { linear_baseline: baseline, golden, ..job };
    let baselines = if first { training_data::trivial_answers(job, &context.progress)? } else { Vec::new() };
    training_data::announce(&recipe, &sets, baseline, &baselines);
    let job = Job { baselines: &baselines, ..job };
    let begun = [memory, proven, rehearsed, cost].into_iter().flatten().collect();
    let series = Series { plan, begun, cancel: interrupt.arm() };
    match plan.seeds().as_slice() {
        [seed] => series.once(job, *seed, context),
        seeds => series.repeat(job, seeds, context),
    }
}

/// Whether the training begins with its first step. This includes runs that were killed before their first
/// checkpoint.
fn begins_anew(plan: &Plan) -> Result<bool, Failure> {
    let Some(folder) = &plan.resumed else { return Ok(true) };
    Ok(CheckpointStore::of_run(folder).is_empty().map_err(TrainError::from)?)
}

/// The predicted cost of a step of this run on its device; `None` if it cannot be predicted, which does not prevent the
/// training.
fn price(recipe: &Recipe, context: &Context) -> Option<Event> {
    let spinner = context.progress.spinner();
    spinner.message(format!("{}: predicting a step on {}", recipe.name, recipe.npu.device));
    let device = context.devices().ok()?.load(&recipe.npu.device);
    match device.and_then(|device| Ok((zoo_npu::profile(recipe, &device, Work::Train)?, device))) {
        Ok((profile, device)) => Some(Event::Cost(Box::new(before::cost(&profile, &device.name)))),
        Err(error) => {
            debug!("no price: {error}");
            None
        }
    }
}

/// Trainings of one recipe with different seeds, one after the other.
struct Series<'a> {
    plan: &'a Plan,
    /// Results obtained before the training.
    begun: Vec<Event>,
    cancel: &'a AtomicBool,
}

impl Series<'_> {
    /// Trains with one seed.
    fn once(&self, job: Job<'_>, seed: u64, context: &mut Context) -> Result<Exit, Failure> {
        let path = self.plan.folder(seed);
        let Some(result) = self.train(job, &path, context)? else { return Ok(Exit::Interrupted) };
        context.ci.record(targets(self.plan.title(), &result));
        finished(&result, &path, context)
    }

    /// Trains with each of the seeds, and judges the runs together.
    fn repeat(&self, job: Job<'_>, seeds: &[u64], context: &mut Context) -> Result<Exit, Failure> {
        let title = self.plan.title();
        let (mut folders, mut failed) = (Vec::new(), false);
        for seed in seeds {
            let mut recipe = job.recipe.clone();
            recipe.train.seed = *seed;
            let path = self.plan.folder(*seed);
            folders.push(path.clone());
            match self.train(Job { recipe: &recipe, ..job }, &path, context) {
                Ok(Some(result)) => {
                    context.ci.record(targets(format!("{title} seed {seed}"), &result));
                    if context.format == Format::Text {
                        writeln!(context.out, "{}", paint(HEADING, format!("seed {seed}")))?;
                    }
                    failed |= finished(&result, &path, context)? != Exit::Pass;
                }
                Ok(None) => return Ok(Exit::Interrupted),
                // A training that diverged is a result, which its log contains.
                Err(
                    failure @ Failure::Train(
                        TrainError::LossNotFinite { .. }
                        | TrainError::NoLabels { .. }
                        | TrainError::VariableNotFinite { .. },
                    ),
                ) if context.ranks.size() == 1 => {
                    context.progress.error(&format!("seed {seed}: {failure}"));
                    context.ci.record(diverging(format!("{title} seed {seed}"), &failure));
                    failed = true;
                }
                Err(other) => return Err(other),
            }
        }
        if !context.ranks.is_first() {
            return Ok(Exit::Pass);
        }
        if job.recipe.target.is_none() {
            info!("no target to judge the runs by");
            return Ok(if failed { Exit::Missed } else { Exit::Pass });
        }
        convergence::judge(&folders, &Rules::default(), convergence::Form::LastLine, context)
    }

    /// Trains once, in the folder at `path`; `None` if it was interrupted.
    fn train(&self, job: Job<'_>, path: &Path, context: &mut Context) -> Result<Option<RunResult>, Failure> {
        let mut trainer = Trainer::across(job, context.ranks.clone())?;
        if !context.ranks.is_first() {
            return ranks::follow(&mut trainer, self.cancel);
        }
        let (folder, mut files, before) = if self.plan.resumed.is_some() {
            let folder = RunFolder::reopen(path)?;
            let resumed = folder.resume(&mut trainer)?;
            info!("resuming {} after step {}", path.display(), resumed.step);
            (folder, resumed.files, RunFolder::events(path)?)
        } else {
            trainer.initialise()?;
            let folder = RunFolder::create(path, job.recipe)?;
            folder.keep_launch(&self.plan.launch(job.recipe.train.seed))?;
            let mut files = folder.begin()?;
            files.show_graph(trainer.session().step().graph()).map_err(TrainError::from)?;
            info!("run folder {}", path.display());
            (folder, files, Vec::new())
        };
        for event in &self.begun {
            files.hear(event).map_err(TrainError::from)?;
        }
        let json = context.format == Format::Json;
        let stuck = Stuck::watch(job.recipe);
        let mut screen = Screen::new(&context.progress, json.then_some(&mut context.out), stuck);
        screen.recall(&before);
        match trainer.run(&folder.checkpoints(), &mut Both { files, screen }, self.cancel)? {
            Outcome::Interrupted { step } => {
                let command = resume_command(path, context.ranks.size());
                info!("interrupted after step {step}; to resume: {command}");
                Ok(None)
            }
            Outcome::Finished(result) => {
                if let Some(peak) = zoo_train::memory::peak() {
                    debug!("memory: {peak} at the peak");
                }
                Ok(Some(result))
            }
        }
    }
}

/// The shell command that resumes the run in a folder.
fn resume_command(folder: &Path, ranks: usize) -> String {
    let folder = zoo_train::quoted(&folder.display().to_string());
    let launcher = if ranks > 1 { format!("mpirun -n {ranks} ") } else { String::new() };
    format!("{launcher}zoo run --resume {folder}")
}

/// Passes events to the run folder first and then to the screen.
struct Both<'a> {
    files: RunFiles,
    screen: Screen<'a>,
}

impl Listener for Both<'_> {
    fn hear(&mut self, event: &Event) -> Result<(), ListenError> {
        self.files.hear(event)?;
        self.screen.hear(event)
    }

    fn see(&mut self, sight: &Sight<'_>) {
        self.files.see(sight);
        self.screen.see(sight);
    }
}

/// Runs the golden check, unless it is disabled.
fn prove(plan: &Plan, limit: MemoryArgs, context: &mut Context) -> Result<Proof, Failure> {
    if plan.launch.no_check {
        info!("golden: not checked (--no-check)");
        return Ok(Proof::absent());
    }
    // `full` is the recipe as written.
    let profile = plan.launch.profile.as_deref().filter(|profile| *profile != FULL);
    golden::prove(&plan.launch.recipe, profile, &plan.loaded, limit, context)
}

/// The failed check has been reported; prints that nothing was trained.
fn not_begun(loaded: &Loaded, context: &mut Context) -> Result<Exit, Failure> {
    let target = loaded.recipe.target.as_ref();
    match context.format {
        Format::Json => context.out.json(&Event::Result(RunResult {
            schema_version: SCHEMA_VERSION,
            metric: loaded.recipe.metric(),
            target: target.map(|target| target.value),
            achieved: None,
            met: target.map(|_| false),
            also: Vec::new(),
            epochs: 0,
            steps: 0,
            seconds: 0.0,
            linear_baseline: None,
            baselines: Vec::new(),
            golden: GoldenVerdict::Fail,
            device: HOST.to_owned(),
            skipped_steps: 0,
            not_finite: Vec::new(),
        }))?,
        Format::Text => {
            let refused = paint(BAD, "not trained");
            writeln!(
                context.out,
                "{refused}: the step does not agree with the golden (use --no-check to train \
                                   anyway)"
            )?;
        }
    }
    Ok(Exit::Missed)
}

/// A value of the last evaluation as text.
fn reached(result: &RunResult, metric: Metric, achieved: Option<f64>) -> String {
    match achieved {
        Some(achieved) => metric.format(achieved),
        None if result.not_finite.contains(&metric) => "not finite".to_owned(),
        None => "not measured".to_owned(),
    }
}

/// The metrics of the target with their targets, and what was achieved.
fn goals(result: &RunResult) -> impl Iterator<Item = (Metric, f64, Option<f64>)> + '_ {
    let first = result.target.map(|target| (result.metric, target, result.achieved));
    first.into_iter().chain(result.also.iter().map(|goal| (goal.metric, goal.target, goal.achieved)))
}

/// A case per metric of the target.
fn targets(name: String, result: &RunResult) -> Suite {
    let mut cases: Vec<Case> = Vec::new();
    for (metric, target, achieved) in goals(result) {
        let fault = || Fault {
            message: format!("{metric} {}, target {}", reached(result, metric, achieved), metric.format(target)),
            first: true,
            ..Fault::default()
        };
        let met = achieved.is_some_and(|achieved| metric.reaches(achieved, target));
        let outcome = if met { Judged::Pass } else { Judged::Fail(fault()) };
        cases.push(Case { name: format!("target {metric}"), outcome });
    }
    if let Some(message) = result.fault() {
        let fault = Fault { message, first: cases.is_empty(), ..Fault::default() };
        cases.push(Case { name: "scores".to_owned(), outcome: Judged::Fail(fault) });
    }
    if cases.is_empty() {
        let why = "the recipe has no target for these data".to_owned();
        cases.push(Case { name: "target".to_owned(), outcome: Judged::Absent(why) });
    }
    Suite { name, cases, time: Duration::try_from_secs_f64(result.seconds).unwrap_or_default() }
}

/// The suite of a training that diverged.
fn diverging(name: String, failure: &Failure) -> Suite {
    let fault = Fault { message: failure.to_string(), first: true, ..Fault::default() };
    let case = Case { name: "target".to_owned(), outcome: Judged::Fail(fault) };
    Suite { name, cases: vec![case], time: Duration::ZERO }
}

/// Prints the verdict; in JSON it is the last event.
fn finished(result: &RunResult, folder: &Path, context: &mut Context) -> Result<Exit, Failure> {
    if !context.ranks.is_first() {
        return Ok(Exit::Pass);
    }
    let fault = result.fault();
    let missed = result.met == Some(false) || fault.is_some();
    if context.format == Format::Text {
        let linear = result.linear_baseline.map(|b| format!("a linear classifier: {}", percent(b)));
        let beside = |metric: Metric| {
            let trivial = result.baselines.iter().filter(|baseline| baseline.score.metric == metric);
            let trivial = trivial.map(|Baseline { answer, score }| format!("{answer}: {}", metric.format(score.value)));
            let all: Vec<String> =
                linear.clone().filter(|_| metric == Metric::Top1).into_iter().chain(trivial).collect();
            if all.is_empty() { String::new() } else { format!(" ({})", all.join(", ")) }
        };
        let mut line = |metric: Metric, achieved: Option<f64>, verdict: &str| {
            writeln!(context.out, "{metric} {}{}, {verdict}", reached(result, metric, achieved), beside(metric))
        };
        if result.target.is_none() {
            line(result.metric, result.achieved, "no target")?;
        }
        for (metric, target, achieved) in goals(result) {
            let met = achieved.is_some_and(|achieved| metric.reaches(achieved, target));
            let word = if met { paint(GOOD, "met") } else { paint(BAD, "missed") };
            line(metric, achieved, &format!("target {}: {word}", metric.format(target)))?;
        }
        if result.skipped_steps > 0 {
            writeln!(context.out, "{} steps updated nothing", result.skipped_steps)?;
        }
        let (epochs, golden) = (counted(result.epochs, "epoch"), golden::word(result.golden));
        writeln!(context.out, "{epochs} in {}, golden {golden}", Seconds(result.seconds))?;
        writeln!(context.out, "{}", folder.join("report.html").display())?;
    }
    if let Some(fault) = fault {
        context.progress.error(&fault);
    }
    Ok(if missed { Exit::Missed } else { Exit::Pass })
}

//! `zoo eval`: evaluate a checkpoint on held-out data.

mod pictures;
mod prompt;

use crate::complete;
use crate::console::{BAD, Console, GOOD, paint};
use crate::context::Context;
use crate::evaluating::Evaluating;
use crate::interrupt::{Interrupt, Stopping};
use crate::memory::MemoryArgs;
use crate::simulated::Simulated;
use crate::trained::{Trained, TrainedArgs, Usual, expect_fit, network};
use crate::training_data;
use crate::{Exit, Failure};
use pictures::Pictures;
use prompt::PromptArgs;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use tracing::info;
use zoo_npu::Work;
use zoo_recipe::{
    Recipe, ResolvedModel,
    schema::{Goal, Metric, Score, Target},
};
use zoo_tasks::{Baseline, DataSets, Evaluation, Sight, Watch};
use zoo_train::checkpoint::DataIdentity;
use zoo_train::event::unusable;
use zoo_train::prepared::Predictions;
use zoo_train::weights::{Naming, Weights};
use zoo_train::{GoldenVerdict, Job, SimulatedDevice, TrainError, evaluate, memory};

/// Evaluate a checkpoint on the held-out data.
///
/// A run is evaluated as it was trained: on its own data, with its profile, overrides and device, unless options change
/// them. A PyTorch state_dict is evaluated on the data of the recipe, by default with the profile `mini`, which is also
/// the default of `zoo run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo eval runs/resnet50-mini-1
  zoo eval resnet50 --checkpoint runs/resnet50-mini-1/checkpoints/step-00000500.safetensors
  zoo eval resnet50 --profile full --data /data/imagenet --checkpoint resnet50.pth
  zoo eval runs/cifar10 --data /data/other               use other data than the run
  zoo eval runs/resnet50-mini-1 --draw pictures          write images and a table of their classes
  zoo eval runs/db_resnet-mini-1 --draw pictures         draw images with the detected text
  zoo eval runs/siammask-mini-1 --draw pictures          draw frames with mask and box
  zoo eval db_resnet --predictions found                 score the outputs of another program
  zoo eval runs/gpt_shakespeare-full-1 --prompt \"ROMEO:\"   generate text")]
pub struct Args {
    #[command(flatten)]
    trained: TrainedArgs,
    /// Simulate the arithmetic of this device: the name of a file in recipes/devices, or host; by default the one of
    /// the training
    #[arg(long, value_name = "DEV|host", add = complete::devices_or_host())]
    device: Option<String>,
    /// Evaluate on the data in this folder or file instead of those of the run
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Draw predictions and ground truth to this folder; of single images, index.tsv tells what was found in each
    #[arg(long, value_name = "DIR")]
    draw: Option<PathBuf>,
    /// Number of images or sequences to draw
    #[arg(long, value_name = "N", default_value_t = 20, requires = "draw")]
    drawn: usize,
    /// Score what another program found in the held-out samples, which `zoo data make` writes: a folder with OUTPUT.npy
    /// for each output of the network, one row per sample
    #[arg(long, value_name = "DIR", conflicts_with_all = ["checkpoint", "device", "prompt"])]
    predictions: Option<PathBuf>,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    memory: MemoryArgs,
}

#[derive(Serialize)]
struct Report {
    recipe: String,
    /// The run of the weights, if its folder is known.
    run: Option<PathBuf>,
    /// The file of the weights, or the folder of the predictions.
    checkpoint: PathBuf,
    /// The entry of the file, if it holds more than the weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<String>,
    /// The evaluated data.
    data: String,
    /// Whether the weights were trained with it; null for weights of other programs.
    own_data: Option<bool>,
    /// The device.
    device: String,
    /// Steps of training of the weights; null if another program trained them.
    step: Option<u64>,
    samples: u64,
    /// Mean cross entropy; only for classifiers.
    loss: Option<f64>,
    /// Whether loss and scores are finite; JSON has no other numbers, so those that are not are null.
    finite: bool,
    scores: BTreeMap<&'static str, f64>,
    metric: Metric,
    target: Option<f64>,
    achieved: Option<f64>,
    met: Option<bool>,
    /// The scores of trivial answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    baselines: Vec<Baseline>,
    /// The drawings and their folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    drawn: Option<PathBuf>,
}

/// Evaluates; missed if there is a target and it is missed.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let interrupt = Interrupt::install(&context.progress, Stopping::Evaluation);
    let trained = args.trained.load(Usual::Trained, context)?;
    let mut recipe = trained.loaded.recipe.clone();
    if let Some(folder) = &args.predictions {
        let sets = open(&trained, args.data.as_deref(), &mut recipe)?;
        let model = recipe.resolve()?;
        let job = job(&recipe, &model, &sets, None);
        let judged = Judged { checkpoint: folder.clone(), ..Judged::default() };
        let mut score = |watch: Watch<'_>| Predictions::read(job, folder)?.score(job, watch);
        return judge(args, job, judged, &mut score, &interrupt, context);
    }
    let checkpoint = trained.expect_checkpoint()?;
    let sets = open(&trained, args.data.as_deref(), &mut recipe)?;
    let weights = Weights::read(checkpoint, args.trained.entry(), &network(&recipe)?, &Naming::default())?;
    let own_data = weights.origin.as_ref().map(|origin| origin.data == DataIdentity::new(&sets));
    let model = recipe.resolve()?;
    if weights.origin.as_ref().is_some_and(|origin| origin.recipe != recipe.name) {
        expect_fit(&weights.fit)?;
    }
    expect_own_data(args, &trained, &weights, &sets)?;
    expect_fit(&weights.fit)?;
    let device = args.device.as_deref().or(weights.origin.as_ref().map(|origin| origin.device.as_str()));
    let simulated = Simulated::find(device, Work::Eval, &mut recipe, context)?;
    let job = job(&recipe, &model, &sets, simulated.as_ref().map(Simulated::device));
    let needed = memory::evaluation(job)?;
    args.memory.expect("this evaluation", needed, |_| "use a smaller batch: --set train.batch=N".to_owned())?;
    if let Some(text) = &args.prompt.prompt {
        let done = prompt::run(&args.prompt, text, job, &weights, interrupt.arm(), context)?;
        return Ok(if done { Exit::Pass } else { Exit::Interrupted });
    }
    let judged = Judged {
        run: trained.run.map(|run| run.folder),
        checkpoint: weights.file.clone(),
        entry: weights.fit.entry.clone(),
        own_data,
        step: weights.origin.as_ref().map(|origin| origin.step),
    };
    let mut score = |watch: Watch<'_>| evaluate(job, &weights, watch.cancel, watch.witness);
    judge(args, job, judged, &mut score, &interrupt, context)
}

fn job<'a>(
    recipe: &'a Recipe,
    model: &'a ResolvedModel,
    data: &'a DataSets,
    device: Option<SimulatedDevice<'a>>,
) -> Job<'a> {
    let golden = GoldenVerdict::Absent;
    Job { recipe, model, data, linear_baseline: None, baselines: &[], golden, device }
}

/// What is evaluated.
#[derive(Default)]
struct Judged {
    run: Option<PathBuf>,
    checkpoint: PathBuf,
    entry: Option<String>,
    own_data: Option<bool>,
    step: Option<u64>,
}

/// An evaluation of a job.
type Evaluate<'a> = dyn FnMut(Watch<'_>) -> Result<Option<Evaluation>, TrainError> + 'a;

fn judge(
    args: &Args,
    job: Job<'_>,
    judged: Judged,
    score: &mut Evaluate<'_>,
    interrupt: &Interrupt,
    context: &mut Context,
) -> Result<Exit, Failure> {
    let Job { recipe, data: sets, .. } = job;
    let mut pictures = match &args.draw {
        Some(folder) => Some(Pictures::new(folder, args.drawn, sets.samples.undrawn())?),
        None => None,
    };
    let spinner = context.progress.spinner();
    spinner.message(format!("evaluating {} {}", sets.samples.val_len(), sets.samples.noun()));
    let mut watch = Evaluating::new(&context.progress);
    let mut see = |sight: &Sight<'_>| {
        watch.see(sight);
        pictures.iter_mut().for_each(|pictures| pictures.see(sight));
    };
    let Some(evaluation) = score(Watch { cancel: interrupt.arm(), witness: &mut see })? else {
        return Ok(Exit::Interrupted);
    };
    drop((spinner, watch));
    interrupt.disarm();
    if let Some(pictures) = pictures {
        pictures.finish()?;
    }
    if interrupt.is_requested() {
        return Ok(Exit::Interrupted);
    }
    let baselines = training_data::trivial_answers(job, &context.progress)?;
    let target = recipe.target.as_ref();
    let metric = recipe.metric();
    let achieved = evaluation.score(metric).filter(|value| value.is_finite());
    let reached =
        |Goal { metric, value }: Goal| evaluation.score(metric).is_some_and(|achieved| metric.reaches(achieved, value));
    let lost = evaluation.not_finite();
    let report = Report {
        recipe: recipe.name.clone(),
        run: judged.run,
        checkpoint: judged.checkpoint,
        entry: judged.entry,
        data: sets.description.clone(),
        own_data: judged.own_data,
        device: job.device_name().to_owned(),
        step: judged.step,
        samples: evaluation.samples,
        loss: evaluation.loss,
        finite: lost.is_empty(),
        scores: evaluation.scores.iter().map(|score| (score.metric.name(), score.value)).collect(),
        metric,
        target: target.map(|target| target.value),
        achieved,
        met: target.map(|target| target.goals().all(reached)),
        baselines,
        drawn: args.draw.clone(),
    };
    for Goal { metric, .. } in target.into_iter().flat_map(Target::goals) {
        if evaluation.score(metric).is_none() {
            info!("not measured, and so not reached: {metric}");
        }
    }
    context.show(&report, |out| print(&report, &evaluation.scores, sets.samples.noun(), target, out))?;
    if !lost.is_empty() {
        context.progress.error(&unusable(&lost));
    }
    Ok(if report.met == Some(false) || !report.finite { Exit::Missed } else { Exit::Pass })
}

/// Opens the data in `given`, or else those of the run, or else those of the recipe.
fn open(trained: &Trained, given: Option<&Path>, recipe: &mut Recipe) -> Result<DataSets, Failure> {
    match (given, &trained.run) {
        // The settings from the data of the run are already in the recipe.
        (None, Some(_)) => Ok(zoo_tasks::open(recipe, None)?),
        _ => training_data::open(recipe, &trained.loaded.overridden, given),
    }
}

/// Whether an override names the data.
fn names_data(trained: &Trained) -> bool {
    trained.loaded.overridden.iter().any(|path| path.as_str().starts_with("data"))
}

/// Refuses data other than those of the training, unless requested.
fn expect_own_data(args: &Args, trained: &Trained, weights: &Weights, sets: &DataSets) -> Result<(), Failure> {
    let (now, Some(origin)) = (DataIdentity::new(sets), &weights.origin) else { return Ok(()) };
    if origin.data == now {
        return Ok(());
    }
    let (file, description, before) = (weights.file.display(), &sets.description, &origin.data);
    let (own, recipe) = (&origin.recipe, &trained.loaded.recipe.name);
    let by = if own == recipe { String::new() } else { format!(" by the recipe `{own}`, not by `{recipe}`,") };
    let differ = format!("{file} was trained{by} on {before}; {description}: {now}");
    if args.data.is_some() || names_data(trained) {
        info!("other data than in the training: {differ}");
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "other data than in the training: {differ}\nChoose the data to evaluate on: --data DIR"
    )))
}

fn print(
    report: &Report,
    scores: &[Score],
    noun: &str,
    target: Option<&Target>,
    out: &mut Console,
) -> Result<(), Failure> {
    let mut parts: Vec<String> = scores.iter().map(ToString::to_string).collect();
    parts.extend(report.loss.map(|loss| format!("cross entropy {loss:.4}")));
    if parts.is_empty() {
        parts.push("nothing to judge by".to_owned());
    }
    let step = report.step.map(|step| format!(", step {step}")).unwrap_or_default();
    let (scores, samples, data) = (parts.join(", "), report.samples, &report.data);
    writeln!(out, "{scores} on {samples} {noun} of {data}{step}")?;
    for Baseline { answer, score } in &report.baselines {
        writeln!(out, "{answer}: {score}")?;
    }
    if let (Some(target), Some(met)) = (target, report.met) {
        let word = if met { paint(GOOD, "met") } else { paint(BAD, "missed") };
        let goals: Vec<String> = target.goals().map(|goal| goal.to_string()).collect();
        writeln!(out, "target {}: {word}", goals.join(" and "))?;
    }
    if let Some(folder) = &report.drawn {
        writeln!(out, "pictures in {}", folder.display())?;
    }
    Ok(())
}

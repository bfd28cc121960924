//! `zoo eval`: a checkpoint on the held-out data.

mod pictures;

use super::{
    Context, SCHEMA_VERSION,
    run::{data, screen::Evaluating},
    simulated::Simulated,
};
use crate::cli::{Change, Format};
use crate::console::{BAD, GOOD, paint};
use crate::interrupt::Interrupt;
use crate::memory::MemoryArgs;
use crate::{Exit, Failure};
use pictures::Pictures;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use zoo_npu::Work;
use zoo_recipe::schema::{Goal, Metric, Score};
use zoo_tasks::{Baseline, Sight};
use zoo_train::{GoldenVerdict, Job, Weights, evaluate, memory};

/// Evaluate a checkpoint on the held-out data.
///
/// Uses the recipe's `mini` profile unless told otherwise, as `zoo run` does.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo eval resnet50 --checkpoint runs/resnet50-mini-1
  zoo eval resnet50 --checkpoint runs/resnet50-mini-1/checkpoints/step-00000500.safetensors
  zoo eval resnet50 --profile full --data /data/imagenet --checkpoint runs/imagenet
  zoo eval resnet50 --profile full --data /data/imagenet --checkpoint resnet50.pth       what PyTorch has trained
  zoo eval db_resnet --checkpoint runs/db_resnet-mini-1 --draw pictures          images with the text that was found
  zoo eval siammask --checkpoint runs/siammask-mini-1 --draw pictures            frames with mask and box, and animations")]
pub struct Args {
    /// Name of a recipe, or path of its file
    #[arg(value_name = "RECIPE")]
    recipe: String,
    #[command(flatten)]
    change: Change,
    /// A checkpoint, the folder of a run (its newest checkpoint), or a state_dict: .safetensors, .pth, .pt
    #[arg(long, value_name = "FILE")]
    checkpoint: PathBuf,
    /// Compute with the arithmetic of this device: the name of a file in recipes/devices, or host
    #[arg(long, value_name = "DEV|host")]
    device: Option<String>,
    /// Evaluate on the data in this folder
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Draw what was found, beside what there is to find, into this folder: text in images, targets in videos
    #[arg(long, value_name = "DIR")]
    draw: Option<PathBuf>,
    /// Images or sequences that are drawn
    #[arg(long, value_name = "N", default_value_t = 20, requires = "draw")]
    drawn: usize,
    #[command(flatten)]
    memory: MemoryArgs,
}

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    recipe: String,
    /// Steps that the weights were trained for; null where another program trained them.
    step: Option<u64>,
    samples: u64,
    /// Mean cross entropy; of classifiers only.
    loss: Option<f64>,
    scores: BTreeMap<&'static str, f64>,
    metric: Metric,
    target: Option<f64>,
    achieved: Option<f64>,
    met: Option<bool>,
    /// What trivial answers reach.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    baselines: Vec<Baseline>,
    /// What was drawn, and where.
    #[serde(skip_serializing_if = "Option::is_none")]
    drawn: Option<PathBuf>,
}

/// Evaluates; missed if there is a target and it is.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let interrupt = Interrupt::install(&context.progress);
    let catalog = context.catalog()?;
    let (_, loaded) = context.load_to_train(&catalog, &args.recipe, &args.change)?;
    let mut recipe = loaded.recipe;
    let weights = Weights::read(&args.checkpoint, None)?;
    let sets = data::open(&mut recipe, &loaded.overridden, args.data.as_deref())?;
    let model = recipe.resolve()?;
    let simulated = Simulated::find(args.device.as_deref(), Work::Eval, &mut recipe, context)?;
    let job = Job {
        recipe: &recipe,
        model: &model,
        data: &sets,
        linear_baseline: None,
        baselines: &[],
        golden: GoldenVerdict::Absent,
        device: simulated.as_ref().map(Simulated::device),
    };
    let needed = memory::evaluation(job)?;
    args.memory.expect("this evaluation", needed, |_| "--set train.batch=N takes fewer images at a time".to_owned())?;
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
    let Some(evaluation) = evaluate(job, &weights, interrupt.arm(), &mut see)? else {
        return Ok(Exit::Interrupted);
    };
    drop((spinner, watch));
    if let Some(pictures) = pictures {
        pictures.finish()?;
    }
    let baselines = data::trivial_answers(job, &context.progress)?;
    let target = recipe.target.as_ref();
    let metric = recipe.metric();
    let achieved = evaluation.score(metric);
    let reached =
        |Goal { metric, value }: Goal| evaluation.score(metric).is_some_and(|achieved| metric.reaches(achieved, value));
    let report = Report {
        schema_version: SCHEMA_VERSION,
        recipe: recipe.name.clone(),
        step: weights.step,
        samples: evaluation.samples,
        loss: evaluation.loss,
        scores: evaluation.scores.iter().map(|score| (score.metric.name(), score.value)).collect(),
        metric,
        target: target.map(|target| target.value),
        achieved,
        met: target.map(|target| target.goals().all(reached)),
        baselines,
        drawn: args.draw.clone(),
    };
    match context.format {
        Format::Json => context.out.json(&report)?,
        Format::Text => print(&report, &evaluation.scores, sets.samples.noun(), target, context)?,
    }
    Ok(if report.met == Some(false) { Exit::Missed } else { Exit::Pass })
}

fn print(
    report: &Report,
    scores: &[Score],
    noun: &str,
    target: Option<&zoo_recipe::schema::Target>,
    context: &mut Context,
) -> Result<(), Failure> {
    let mut parts: Vec<String> = scores.iter().map(ToString::to_string).collect();
    parts.extend(report.loss.map(|loss| format!("cross entropy {loss:.4}")));
    if parts.is_empty() {
        parts.push("nothing to judge by".to_owned());
    }
    let step = report.step.map(|step| format!(", step {step}")).unwrap_or_default();
    writeln!(context.out, "{} on {} {noun}{step}", parts.join(", "), report.samples)?;
    for Baseline { answer, score } in &report.baselines {
        writeln!(context.out, "{answer}: {score}")?;
    }
    if let (Some(target), Some(met)) = (target, report.met) {
        let word = if met { paint(GOOD, "met") } else { paint(BAD, "missed") };
        let goals: Vec<String> = target.goals().map(|goal| goal.to_string()).collect();
        writeln!(context.out, "target {}: {word}", goals.join(" and "))?;
    }
    if let Some(folder) = &report.drawn {
        writeln!(context.out, "pictures in {}", folder.display())?;
    }
    Ok(())
}

//! `zoo eval`: a checkpoint on the held-out data.

use super::{Context, SCHEMA_VERSION, run::data, simulated::Simulated};
use crate::cli::{Change, Format};
use crate::console::{BAD, GOOD, paint};
use crate::interrupt::Interrupt;
use crate::numbers::percent;
use crate::{Exit, Failure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use zoo_npu::Work;
use zoo_recipe::schema::Metric;
use zoo_train::{Checkpoint, CheckpointStore, GoldenVerdict, Job, evaluate, metrics};

/// Evaluate a checkpoint on the held-out data.
///
/// Uses the recipe's `mini` profile unless told otherwise, as `zoo run` does.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo eval resnet50 --checkpoint runs/resnet50-mini-1
  zoo eval resnet50 --checkpoint runs/resnet50-mini-1/checkpoints/step-00000500.safetensors
  zoo eval resnet50 --profile full --data /data/imagenet --checkpoint runs/imagenet")]
pub struct Args {
    /// Name of a recipe, or path of its file
    #[arg(value_name = "RECIPE")]
    recipe: String,
    #[command(flatten)]
    change: Change,
    /// A checkpoint, or the folder of a run: its newest checkpoint
    #[arg(long, value_name = "FILE")]
    checkpoint: PathBuf,
    /// Compute with the arithmetic of this device: the name of a file in recipes/devices, or host
    #[arg(long, value_name = "DEV|host")]
    device: Option<String>,
    /// Evaluate on the data in this folder
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    recipe: String,
    /// Steps that the checkpoint was trained for.
    step: u64,
    samples: u64,
    /// Mean cross entropy.
    loss: f64,
    scores: BTreeMap<&'static str, f64>,
    metric: Metric,
    target: Option<f64>,
    achieved: Option<f64>,
    met: Option<bool>,
}

/// Evaluates; missed if there is a target and it is.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let interrupt = Interrupt::install(&context.progress);
    let catalog = context.catalog()?;
    let (_, loaded) = context.load_to_train(&catalog, &args.recipe, &args.change)?;
    let mut recipe = loaded.recipe;
    let checkpoint = read(&args.checkpoint)?;
    let sets = data::open(&mut recipe, &loaded.overridden, args.data.as_deref())?;
    let model = recipe.resolve()?;
    let simulated = Simulated::find(args.device.as_deref(), Work::Eval, &mut recipe, context)?;
    let job = Job {
        recipe: &recipe,
        model: &model,
        data: &sets,
        linear_baseline: None,
        golden: GoldenVerdict::Absent,
        device: simulated.as_ref().map(Simulated::device),
    };
    let spinner = context.progress.spinner();
    spinner.message(format!("evaluating {} images", sets.val.len()));
    let Some(evaluation) = evaluate(job, &checkpoint, interrupt.arm())? else { return Ok(Exit::Interrupted) };
    drop(spinner);
    let target = recipe.target.as_ref();
    let metric = target.map_or(Metric::Top1, |target| target.metric);
    let achieved = evaluation.score(metric);
    let report = Report {
        schema_version: SCHEMA_VERSION,
        recipe: recipe.name.clone(),
        step: checkpoint.progress.step,
        samples: evaluation.samples,
        loss: evaluation.loss,
        scores: evaluation.scores.iter().map(|score| (metrics::name(score.metric), score.value)).collect(),
        metric,
        target: target.map(|target| target.value),
        achieved,
        met: target.zip(achieved).map(|(target, achieved)| achieved >= target.value),
    };
    match context.format {
        Format::Json => context.out.json(&report)?,
        Format::Text => print(&report, context)?,
    }
    Ok(if report.met == Some(false) { Exit::Missed } else { Exit::Pass })
}

fn read(path: &std::path::Path) -> Result<Checkpoint, Failure> {
    if !path.is_dir() {
        return Ok(Checkpoint::load(path)?);
    }
    let folder = [path.join("checkpoints"), path.to_owned()].into_iter().find(|folder| folder.is_dir());
    let found = CheckpointStore::new(folder.unwrap_or_else(|| path.to_owned())).latest()?;
    let found = found.ok_or_else(|| Failure::NoCheckpoint { folder: path.to_owned() })?;
    Ok(found.checkpoint)
}

fn print(report: &Report, context: &mut Context) -> Result<(), Failure> {
    let scores: Vec<String> = report.scores.iter().map(|(name, value)| format!("{name} {}", percent(*value))).collect();
    let (samples, loss) = (report.samples, report.loss);
    writeln!(context.out, "{}, cross entropy {loss:.4} on {samples} images, step {}", scores.join(", "), report.step)?;
    if let (Some(target), Some(met)) = (report.target, report.met) {
        let word = if met { paint(GOOD, "met") } else { paint(BAD, "missed") };
        writeln!(context.out, "target {} {}: {word}", metrics::name(report.metric), percent(target))?;
    }
    Ok(())
}

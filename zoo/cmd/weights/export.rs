//! `zoo weights export`: a run's weights for PyTorch.

use super::network;
use crate::cli::{Format, RecipeArgs};
use crate::cmd::{Context, SCHEMA_VERSION, expect_apart};
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoo_train::TrainError;
use zoo_train::weights::{Fit, Naming, StateDict, Weights};

/// Write a run's weights for PyTorch.
///
/// Parameters and running statistics under their state_dict names, with num_batches_tracked, so that
/// `module.load_state_dict(...)` takes them. Where a moving average of the weights is kept, it is what is written, as it is
/// what is evaluated.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo weights export resnet50 --profile mini --checkpoint runs/resnet50-mini-1 --out resnet50.pth
  zoo weights export resnet50 --checkpoint runs/imagenet --out resnet50.safetensors

In Python:
  model.load_state_dict(torch.load(\"resnet50.pth\"))
  model.load_state_dict(safetensors.torch.load_file(\"resnet50.safetensors\"))")]
pub struct Args {
    #[command(flatten)]
    recipe: RecipeArgs,
    /// A checkpoint, the folder of a run (its newest checkpoint), or a state_dict
    #[arg(long, value_name = "FILE")]
    checkpoint: PathBuf,
    /// The file to write: safetensors, or for torch.load if it ends in .pth or .pt
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    recipe: &'a str,
    checkpoint: &'a Path,
    step: Option<u64>,
    tensors: usize,
    out: &'a Path,
}

/// Writes the file.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let catalog = context.catalog()?;
    let recipe = context.load(&catalog, &args.recipe.recipe, &args.recipe.change)?.recipe;
    let graph = network(&recipe)?;
    let weights = Weights::read(&args.checkpoint, None)?;
    expect_apart([weights.file.as_path(), &args.out])?;
    let naming = Naming::default();
    let fit = Fit::new(&graph, &weights, &naming);
    if !fit.is_enough() {
        return Err(TrainError::Misfit(Box::new(fit)).into());
    }
    let state = StateDict::new(&graph, &weights, &naming).with_counters(&graph, weights.step.unwrap_or_default());
    let state = state.map_err(TrainError::from)?;
    state.save(&args.out)?;
    let tensors = state.tensors().len();
    let (recipe, checkpoint, step) = (recipe.name.as_str(), weights.file.as_path(), weights.step);
    match context.format {
        Format::Json => {
            let schema_version = SCHEMA_VERSION;
            context.out.json(&Report { schema_version, recipe, checkpoint, step, tensors, out: &args.out })?;
        }
        Format::Text => {
            writeln!(context.out, "{}: {tensors} tensors of {}", args.out.display(), checkpoint.display())?;
        }
    }
    Ok(Exit::Pass)
}

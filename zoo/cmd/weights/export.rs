//! `zoo weights export`: write the weights of a run for PyTorch or MindSpore.

use crate::context::Context;
use crate::output;
use crate::output::expect_apart;
use crate::trained::{TrainedArgs, Usual, network, read, state_file, state_for};
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Write the weights of a run for PyTorch or MindSpore.
///
/// Writes parameters and running statistics under their state_dict names, with num_batches_tracked, so that
/// `module.load_state_dict(...)` accepts them; as .ckpt, under the names of MindSpore's cells. If the training keeps a
/// moving average of the weights, the average is written, because it is what `zoo eval` evaluates.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo weights export runs/resnet50-mini-1 --out resnet50.pth
  zoo weights export resnet50 --checkpoint resnet50.pth --out resnet50.safetensors
  zoo weights export runs/resnet50-mini-1 --out resnet50.ckpt

In Python:
  model.load_state_dict(torch.load(\"resnet50.pth\"))
  model.load_state_dict(safetensors.torch.load_file(\"resnet50.safetensors\"))
  mindspore.load_param_into_net(network, mindspore.load_checkpoint(\"resnet50.ckpt\"))")]
pub struct Args {
    #[command(flatten)]
    trained: TrainedArgs,
    /// File to write: .safetensors, .pth or .pt for torch.load, or .ckpt for MindSpore
    #[arg(short, long, value_name = "FILE", value_parser = state_file)]
    out: PathBuf,
}

#[derive(Serialize)]
struct Report<'a> {
    recipe: &'a str,
    checkpoint: &'a Path,
    step: Option<u64>,
    tensors: usize,
    out: &'a Path,
}

/// Writes the file.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let trained = args.trained.load(Usual::AsWritten, context)?;
    let recipe = &trained.loaded.recipe;
    let graph = network(recipe)?;
    let weights = read(trained.expect_checkpoint()?, args.trained.entry(), &graph)?;
    let step = weights.origin.as_ref().map(|origin| origin.step);
    expect_apart([weights.file.as_path(), &args.out])?;
    let state = state_for(&args.out, &weights, &graph, Some(step.unwrap_or_default()))?;
    output::expect_folder(&args.out)?;
    state.save(&args.out)?;
    let tensors = state.tensors().len();
    let (recipe, checkpoint) = (recipe.name.as_str(), weights.file.as_path());
    context.show(&Report { recipe, checkpoint, step, tensors, out: &args.out }, |out| {
        Ok(writeln!(out, "{}: {tensors} tensors of {}", args.out.display(), checkpoint.display())?)
    })
}

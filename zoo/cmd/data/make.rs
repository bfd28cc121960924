//! `zoo data make`: what a training reads, as files.

use crate::context::Context;
use crate::options::RecipeArgs;
use crate::{Exit, Failure, output, training_data};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoo_train::prepared::{self, Prepared};
use zoo_train::{GoldenVerdict, Job, Trainer};

/// Write what a training reads as files for programs without zoo.
///
/// The folder gets `train/INPUT.npy`, for each input of the step the samples of all steps in their order, prepared and
/// varied as `zoo run` reads them; `held_out/INPUT.npy`, what the network reads in an evaluation, and `label.npy` where
/// nothing else is judged; `weights.pth`, the initial weights; and, when it is complete, `data.json`. `np.load` with
/// `mmap_mode="r"` reads an array without loading it. Programs of `zoo emit` train on the folder with `--data`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo data make db_resnet --profile mini -o scenes
  zoo data make db_resnet --profile mini --set train.seed=1 -o scenes-1
  zoo data make gpt2 --profile mini --steps 20 -o sentences      the first steps only")]
pub struct Args {
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Use the data in this folder or file instead of those of the recipe
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Write the samples of the first steps only
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Folder to write; it must not exist or be empty
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(Serialize)]
struct Report<'a> {
    out: &'a Path,
    #[serde(flatten)]
    prepared: &'a Prepared,
}

/// Writes the folder.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let loaded = context.load(&args.recipe.recipe, &args.recipe.change)?;
    let mut recipe = loaded.recipe;
    let spinner = context.progress.spinner();
    spinner.message(format!("{}: opening the data", recipe.name));
    let sets = training_data::open(&mut recipe, &loaded.overridden, args.data.as_deref())?;
    training_data::expect_divided(&sets)?;
    let model = recipe.resolve()?;
    let job = Job {
        recipe: &recipe,
        model: &model,
        data: &sets,
        linear_baseline: None,
        baselines: &[],
        golden: GoldenVerdict::Absent,
        device: None,
    };
    let mut trainer = Trainer::new(job)?;
    drop(spinner);
    output::expect_empty(&args.out)?;
    let mut watch = context.progress.counted("steps");
    let steps = args.steps.unwrap_or(u64::MAX);
    let prepared = prepared::write(&mut trainer, &args.out, steps, &mut |done, of| watch(done as usize, of as usize))?;
    drop(watch);
    context.show(&Report { out: &args.out, prepared: &prepared }, |out| {
        let Prepared { data, written, batch, held_out, not_held_out, .. } = &prepared;
        let held_out = match not_held_out {
            Some(reason) => format!("no held-out samples: {reason}"),
            None => format!("{held_out} held-out samples"),
        };
        let out_folder = args.out.display();
        Ok(writeln!(out, "{out_folder}: {written} steps of {batch} samples, {held_out}, of {data}")?)
    })
}

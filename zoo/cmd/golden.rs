//! `zoo golden`: make goldens, hand out what they begin with, and compare dumps.

mod diff;
mod export;
mod inputs;

use super::{Context, SCHEMA_VERSION};
use crate::cli::{Format, RecipeArgs};
use crate::memory::{MemoryArgs, beyond_now};
use crate::{Exit, Failure};
use clap::Subcommand;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use tracing::info;
use zoo_golden::record::{RecordOptions, files, record};

/// The verbs of goldens.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Record a golden from the engine's own step
    Record(Args),
    /// Write the weights and inputs that a golden's step begins with
    Inputs(inputs::Args),
    /// Write the step in f64 as a recording: for msprobe, or as named tensors
    Export(export::Args),
    /// Compare two dumps of a step: which operator's error is its own?
    Diff(diff::Args),
}

/// Record a golden from the engine's own step.
///
/// The truth is the engine's run in f64, the noise floors are those of its f32 run. Such a golden guards against
/// regressions and proves nothing about a reference framework: golden/export makes goldens from PyTorch.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo golden record resnet50 --out before         writes before.json and before.safetensors
  zoo golden record my_net --batch 2 --salt x --out golden/my_net/step
  zoo check resnet50 --golden before.json         later, or with other kernels")]
pub struct Args {
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Where to write: STEM.json and STEM.safetensors
    #[arg(short, long, alias = "output", value_name = "STEM")]
    out: PathBuf,
    /// Images per step
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: u32,
    /// Learning rate of the three steps; the recipe's highest by default
    #[arg(long, value_name = "LR")]
    learning_rate: Option<f64>,
    /// Salt of the names that weights and inputs are hashed from; another salt gives other values
    #[arg(long, value_name = "TEXT", default_value = "")]
    salt: String,
    /// Sampled values to store of each tensor
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    samples: u32,
    /// Replace an existing golden
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    memory: MemoryArgs,
}

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    recipe: String,
    files: [PathBuf; 2],
}

/// Does what is asked for.
pub(super) fn run(command: &Command, context: &mut Context) -> Result<Exit, Failure> {
    match command {
        Command::Record(args) => make(args, context),
        Command::Inputs(args) => inputs::run(args, context),
        Command::Export(args) => export::run(args, context),
        Command::Diff(args) => diff::run(args, context),
    }
}

/// Records and says where.
fn make(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let catalog = context.catalog()?;
    let recipe = context.load(&catalog, &args.recipe.recipe, &args.recipe.change)?.recipe;
    let learning_rate = args.learning_rate.unwrap_or_else(|| recipe.schedule.peak_lr());
    if !(learning_rate.is_finite() && learning_rate >= 0.0) {
        return Err(Failure::Usage(format!("--learning-rate {learning_rate}: a learning rate is at least 0")));
    }
    if let Some(there) = files(&args.out).iter().find(|file| file.exists() && !args.force) {
        let there = there.display();
        return Err(Failure::Usage(format!("{there} is there already: --force replaces it, -o STEM writes elsewhere")));
    }
    let (batch, samples) = (args.batch as usize, args.samples as usize);
    let options = RecordOptions { batch, learning_rate, salt: args.salt.clone(), samples };
    let needed = beyond_now(zoo_golden::record::memory(&recipe, &options)?);
    args.memory.expect("this golden", needed, |_| format!("--batch takes fewer than {batch} images"))?;
    record(&recipe, &options, &args.out, &mut context.progress.foreseen(&recipe.name))?;
    let files = files(&args.out);
    match context.format {
        Format::Json => {
            context.out.json(&Report { schema_version: SCHEMA_VERSION, recipe: recipe.name, files })?;
        }
        Format::Text => {
            for file in &files {
                writeln!(context.out, "{}", file.display())?;
            }
            if recipe.golden.is_none() {
                match files[0].strip_prefix("golden") {
                    Ok(manifest) => info!(
                        "to check against this baseline, add `golden: {{manifest: {}}}` to the recipe",
                        manifest.display()
                    ),
                    Err(_) => info!(
                        "to check against this baseline: zoo check {} --golden {}",
                        args.recipe.recipe,
                        files[0].display()
                    ),
                }
            }
        }
    }
    Ok(Exit::Pass)
}

//! `zoo golden`: record goldens, export their inputs and reference values, and compare dumps.

mod diff;
mod export;
mod inputs;

use crate::context::Context;
use crate::memory::{MemoryArgs, beyond_now};
use crate::options::RecipeArgs;
use crate::{Exit, Failure};
use clap::Subcommand;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use tracing::info;
use zoo_golden::record::{RecordOptions, files, record};

/// The subcommands of `zoo golden`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Record a baseline: a golden from zoo's own step
    Record(Args),
    /// Write the weights and inputs from which the step of a golden starts
    Inputs(inputs::Args),
    /// Write the reference step (f64) for msprobe, or as named tensors
    Export(export::Args),
    /// Compare two dumps of a step and find the first operator at fault
    Diff(diff::Args),
}

/// Record a baseline: a golden from zoo's own step.
///
/// The reference values come from a step in f64, the noise floors from the same step in f32. A baseline detects
/// regressions, but it does not prove that the recipe agrees with a reference framework. To make goldens with PyTorch,
/// use golden/export.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo golden record resnet50 --out before         write before.json and before.safetensors
  zoo golden record my_net --batch 2 --salt x --out golden/my_net/step
  zoo check resnet50 --golden before.json         later, or with other kernels")]
pub struct Args {
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Files to write: STEM.json and STEM.safetensors
    #[arg(short, long, alias = "output", value_name = "STEM")]
    out: PathBuf,
    /// Images per step
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: u32,
    /// Learning rate of the three steps; by default the highest of the recipe's schedule
    #[arg(long, value_name = "LR")]
    learning_rate: Option<f64>,
    /// Prefix of the names from which weights and inputs are generated; another salt gives other values
    #[arg(long, value_name = "TEXT", default_value = "")]
    salt: String,
    /// Number of samples to store of each tensor
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
    recipe: String,
    files: [PathBuf; 2],
}

/// Runs the subcommand.
pub(super) fn run(command: &Command, context: &mut Context) -> Result<Exit, Failure> {
    match command {
        Command::Record(args) => make(args, context),
        Command::Inputs(args) => inputs::run(args, context),
        Command::Export(args) => export::run(args, context),
        Command::Diff(args) => diff::run(args, context),
    }
}

/// Records the golden and prints the path.
fn make(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let recipe = context.load(&args.recipe.recipe, &args.recipe.change)?.recipe;
    let learning_rate = args.learning_rate.unwrap_or_else(|| recipe.schedule.peak_lr());
    if !(learning_rate.is_finite() && learning_rate >= 0.0) {
        return Err(Failure::Usage(format!("--learning-rate {learning_rate}: must be at least 0")));
    }
    if let Some(there) = files(&args.out).iter().find(|file| file.exists() && !args.force) {
        let there = there.display();
        return Err(Failure::Usage(format!(
            "{there} already exists: --force replaces it, --out STEM writes elsewhere"
        )));
    }
    let (batch, samples) = (args.batch as usize, args.samples as usize);
    let options = RecordOptions { batch, learning_rate, salt: args.salt.clone(), samples };
    let needed = beyond_now(zoo_golden::record::memory(&recipe, &options)?);
    args.memory.expect("this golden", needed, |_| format!("use a --batch smaller than {batch}"))?;
    record(&recipe, &options, &args.out, &mut context.progress.foreseen(&recipe.name))?;
    let files = files(&args.out);
    let report = Report { recipe: recipe.name, files };
    context.show(&report, |out| {
        for file in &report.files {
            writeln!(out, "{}", file.display())?;
        }
        if recipe.golden.is_none() {
            let manifest = &report.files[0];
            let how = match manifest.strip_prefix("golden") {
                Ok(inner) => format!(", add `golden: {{manifest: {}}}` to the recipe", inner.display()),
                Err(_) => format!(": zoo check {} --golden {}", args.recipe.recipe, manifest.display()),
            };
            info!("to check against this baseline{how}");
        }
        Ok(())
    })
}

//! `zoo emit`: write a recipe as a program for another framework.

use crate::console::Console;
use crate::context::Context;
use crate::options::RecipeArgs;
use crate::output;
use crate::{Exit, Failure};
use clap::ValueEnum;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoo_recipe::emit;

/// Write a recipe as a program for another framework.
///
/// The folder gets `model.py`, the network as a careful author would write it, with the names of the state_dict;
/// `train.py`, its training on a CPU, a GPU or an NPU, in PyTorch alone or with others by torchrun; `recipe.yaml`, the
/// recipe with all values; `emitted.json`, what was written from what; and `README.md`. In MindSpore, `weights.py` reads
/// and writes weights by their names in the state_dict. The program does not need zoo. `python -m zoo_golden prove DIR` proves that it is the recipe. What the framework cannot express
/// is refused with its line, and nothing is written.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo emit resnet50 --to pytorch -o my_resnet50
  zoo emit resnet50 --to mindspore -o my_resnet50
  zoo emit gpt2 --to pytorch --profile mini -o small_gpt2
  zoo emit siammask --to pytorch --no-data -o my_siammask     without a training loop
  zoo emit vit_b_16 --to pytorch --set model.classes=10 -o my_vit")]
pub struct Args {
    #[command(flatten)]
    recipe: RecipeArgs,
    /// The framework
    #[arg(long, value_enum, value_name = "FRAMEWORK")]
    to: Framework,
    /// Write rules.py, the loss, the optimizer and the learning rates for a loop of your own, in place of train.py
    #[arg(long)]
    no_data: bool,
    /// Folder to write; it must not exist or be empty
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
}

/// Frameworks that programs are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Framework {
    /// PyTorch 2.4 or later.
    #[value(name = "pytorch")]
    PyTorch,
    /// MindSpore 2.7 or later.
    #[value(name = "mindspore")]
    MindSpore,
}

#[derive(Serialize)]
struct Report<'a> {
    recipe: &'a str,
    to: Framework,
    out: &'a Path,
    /// By name, the lines of each file.
    files: Vec<(&'static str, usize)>,
}

/// Writes the program.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let recipe = context.load(&args.recipe.recipe, &args.recipe.change)?.recipe;
    let change = &args.recipe.change;
    let origin = emit::Origin {
        recipe: &args.recipe.recipe,
        profile: change.profile.as_deref(),
        sets: &change.sets,
        rules_alone: args.no_data,
        version: env!("CARGO_PKG_VERSION"),
        hash: zoo_datasets::hash::fnv1a64,
    };
    let dialect = match args.to {
        Framework::PyTorch => emit::Dialect::PyTorch,
        Framework::MindSpore => emit::Dialect::MindSpore,
    };
    let files = emit::program(dialect, &recipe, &recipe.resolve()?, origin)?;
    output::write_folder(&args.out, &files, context)?;
    let files = files.iter().map(|(name, text)| (*name, text.lines().count())).collect();
    let report = Report { recipe: &recipe.name, to: args.to, out: &args.out, files };
    context.show(&report, |out| print(&report, out))?;
    Ok(Exit::Pass)
}

fn print(report: &Report<'_>, out: &mut Console) -> Result<(), Failure> {
    writeln!(out, "{}", report.out.display())?;
    for (name, lines) in &report.files {
        writeln!(out, "  {name:<14}{lines:>5} lines")?;
    }
    Ok(())
}

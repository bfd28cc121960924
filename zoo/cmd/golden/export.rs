//! `zoo golden export`: write the reference step as a recording.

use crate::context::Context;
use crate::options::RecipeArgs;
use crate::proof;
use crate::{Exit, Failure};
use clap::ValueEnum;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoo_golden::reference;

/// Write the reference step (f64) as a recording, for `msprobe compare` or as named tensors.
///
/// zoo computes the step in f64 under the conditions of the golden, because a golden stores only samples of each
/// tensor. `zoo check RECIPE --dtype f64` proves that this step agrees with the golden. `msprobe compare` accepts the
/// recording as its golden side, so no GPU is needed to make one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo golden export resnet18 -o reference --as msprobe
  zoo golden export resnet18 -o reference --as named
  zoo judge resnet18 reference                          passes

With msprobe:
  msprobe compare -tp on_npu/step0/rank0/dump.json -gp reference/dump.json -o compared")]
pub struct Args {
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Folder to write to; created if missing
    #[arg(short, long, alias = "output", value_name = "DIR")]
    out: PathBuf,
    /// What is written
    #[arg(long = "as", value_enum, value_name = "FORMAT", default_value_t = Form::Msprobe)]
    form: Form,
    /// Use this golden instead of the one that the recipe names
    #[arg(long, value_name = "FILE.json")]
    golden: Option<PathBuf>,
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// dump.json with a .pt file per tensor, rounded to f32
    Msprobe,
    /// A folder of .npy files in f64, by the golden's keys
    Named,
}

#[derive(Serialize)]
struct Report<'a> {
    recipe: &'a str,
    tensors: usize,
    out: &'a Path,
}

/// Writes the folder.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let loaded = context.load(&args.recipe.recipe, &args.recipe.change)?;
    let (golden, _) = proof::golden(&loaded, args.golden.as_deref(), context)?;
    let form = match args.form {
        Form::Msprobe => reference::Form::Msprobe,
        Form::Named => reference::Form::Named,
    };
    let tensors = reference::write(&loaded.recipe, &golden, form, &args.out)?;
    let report = Report { recipe: &loaded.recipe.name, tensors, out: &args.out };
    context.show(&report, |out| Ok(writeln!(out, "{}: {tensors} tensors", args.out.display())?))
}

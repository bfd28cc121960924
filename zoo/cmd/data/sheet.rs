//! `zoo data sheet`: a contact sheet of images.

use super::selection::Selection;
use crate::context::Context;
use crate::output;
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use zoo_datasets::image::write_png;

/// Write a contact sheet of the first images as PNG.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo data sheet resnet50 --profile mini
  zoo data sheet resnet50 --profile mini --held-out --out held-out.png
  zoo data sheet resnet50 --data ../cifar10 --rows 4 --columns 10")]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// File to write; by default RECIPE.png
    #[arg(short, long, alias = "output", value_name = "FILE.png")]
    out: Option<PathBuf>,
    /// Number of rows
    #[arg(long, value_name = "N", default_value_t = 10)]
    rows: usize,
    /// Number of columns
    #[arg(long, value_name = "N", default_value_t = 20)]
    columns: usize,
    /// Show held-out images instead of training images
    #[arg(long)]
    held_out: bool,
}

#[derive(Serialize)]
struct Report {
    file: PathBuf,
    images: usize,
}

/// Writes the sheet and prints the path.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let (recipe, sets) = args.selection.open(context)?;
    let file = args.out.clone().unwrap_or_else(|| format!("{}.png", recipe.name).into());
    let spinner = context.progress.spinner();
    spinner.message(format!("{}: drawing samples", recipe.name));
    let (sheet, images) = sets.samples.sheet(args.held_out, args.rows, args.columns)?;
    output::expect_folder(&file)?;
    write_png(&sheet, &file)?;
    drop(spinner);
    let report = Report { file, images };
    let text = format!("{}: {images} images of {}", report.file.display(), sets.description);
    context.show(&report, |out| Ok(writeln!(out, "{text}")?))
}

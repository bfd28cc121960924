//! `zoo data make`: a look at the images.

use super::Selection;
use crate::cli::Format;
use crate::cmd::{Context, SCHEMA_VERSION};
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use zoo_datasets::drawing::{draw_target, draw_text, strip};
use zoo_datasets::{DataError, Image, contact_sheet, image::write_png};
use zoo_input::Samples;

/// Write a contact sheet of the first images as PNG.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo data make resnet50 --profile mini
  zoo data make resnet50 --profile mini --held-out -o held-out.png
  zoo data make resnet50 --data ../cifar10 --rows 4 --columns 10")]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// The file to write; RECIPE.png by default
    #[arg(short, long, value_name = "FILE.png")]
    output: Option<PathBuf>,
    /// Images from top to bottom
    #[arg(long, value_name = "N", default_value_t = 10)]
    rows: usize,
    /// Images from left to right
    #[arg(long, value_name = "N", default_value_t = 20)]
    columns: usize,
    /// Show the held-out images instead of those for training
    #[arg(long)]
    held_out: bool,
}

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    file: PathBuf,
    images: usize,
}

/// Writes the sheet and says where.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let (recipe, sets) = args.selection.open(context)?;
    let file = args.output.clone().unwrap_or_else(|| format!("{}.png", recipe.name).into());
    let cells = args.rows.saturating_mul(args.columns);
    let spinner = context.progress.spinner();
    spinner.message(format!("{}: drawing samples", recipe.name));
    let (sheet, images) = match &sets.samples {
        Samples::Images { train, val } => {
            let set = if args.held_out { val } else { train };
            (contact_sheet(set.as_ref(), args.rows, args.columns)?, set.len().min(cells))
        }
        Samples::Text { train, val } => {
            let set = if args.held_out { val } else { train };
            let shown = |index| set.load(index).map(|(image, regions)| draw_text(&image, &regions, &[]));
            in_rows(args, set.len().min(cells), shown)?
        }
        Samples::Videos { train, val, .. } => {
            let set = if args.held_out { val } else { train };
            // The middle frame of each.
            let shown = |index: usize| set.frame(index, set.frames(index) / 2).map(|frame| draw_target(&frame));
            in_rows(args, set.len().min(cells), shown)?
        }
    };
    write_png(&sheet, &file)?;
    drop(spinner);
    match context.format {
        Format::Json => context.out.json(&Report { schema_version: SCHEMA_VERSION, file, images })?,
        Format::Text => writeln!(context.out, "{}: {images} images of {}", file.display(), sets.description)?,
    }
    Ok(Exit::Pass)
}

/// Pictures with what is known about them, in the rows and columns that are asked for.
fn in_rows(
    args: &Args,
    images: usize,
    shown: impl Fn(usize) -> Result<Image, DataError>,
) -> Result<(Image, usize), DataError> {
    const MOST: usize = 10_000;
    if !(1..=MOST).contains(&args.rows.saturating_mul(args.columns)) || images == 0 {
        return Err(DataError::Config(format!("a sheet of {} x {} out of {images} images", args.rows, args.columns)));
    }
    let drawn = (0..images).map(shown).collect::<Result<Vec<Image>, _>>()?;
    Ok((strip(&drawn, args.columns), images))
}

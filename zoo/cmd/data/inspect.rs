//! `zoo data inspect`: contents of a data set, and its broken files.

use super::selection::Selection;
use crate::console::{BAD, Console, DIM, HEADING, paint};
use crate::context::Context;
use crate::numbers::grouped;
use crate::table::{Cell, Table};
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use zoo_tasks::{DataSets, Inspection, Pixels};

/// Count samples and classes, compute pixel statistics, list broken files.
///
/// Reads every image. Exits with 3 if one of them cannot be read.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo data inspect resnet50 --profile mini
  zoo data inspect resnet50 --data ../cifar10
  zoo data inspect resnet50 --data photos --set data.on_error=skip   do not stop at broken files
  zoo data inspect resnet50 --data photos --format json | jq '.splits[].broken'")]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
}

#[derive(Serialize)]
struct Report {
    description: String,
    /// Unexpected or unreadable entries skipped when the folder was listed.
    skipped: usize,
    splits: Vec<Inspection>,
}

/// Reads everything and reports.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let (_, sets) = args.selection.open(context)?;
    let mut splits = Vec::new();
    for (part, (name, samples)) in sets.samples.parts().into_iter().enumerate() {
        let bar = context.progress.bar(samples as u64);
        bar.message(name);
        splits.push(sets.samples.inspect(part, &|| bar.advance()));
    }
    let DataSets { samples, description, skipped } = sets;
    let report = Report { description, skipped, splits };
    context.show(&report, |out| print(&report, samples.classes(), out))?;
    let whole = report.splits.iter().all(|split| split.broken.is_empty());
    Ok(if whole { Exit::Pass } else { Exit::Missing })
}

/// Classes and broken files that are listed.
const LISTED: usize = 10;

fn print(report: &Report, classes: &[String], out: &mut Console) -> Result<(), Failure> {
    writeln!(out, "{}\n", paint(HEADING, &report.description))?;
    let known = report.splits.first().map(|split| split.columns.as_slice()).unwrap_or_default();
    let known: Vec<String> = known.iter().map(|(name, _)| format!(">{name}")).collect();
    let columns = ["split", ">samples"].into_iter().chain(known.iter().map(String::as_str));
    let mut table = Table::new(columns.chain(["size", "mean", "std", ">broken"]));
    let channels = |values: [f64; 3]| values.map(|v| format!("{v:.3}")).join(" ");
    for split in &report.splits {
        let mut row: Vec<Cell> = vec![split.name.into(), grouped(split.samples as u64).into()];
        row.extend(split.columns.iter().map(|(_, values)| range(*values, grouped).into()));
        row.extend(match &split.pixels {
            Some(Pixels { width, height, mean, std }) => {
                let side = |side: &Option<(usize, usize)>| range(*side, |n| n.to_string());
                let size = format!("{}x{}", side(width), side(height));
                [size.into(), channels(*mean).into(), channels(*std).into()]
            }
            None => ["-".into(), "-".into(), "-".into()],
        });
        row.push(split.broken.len().into());
        table.row(row);
    }
    write!(out, "{table}")?;
    if !classes.is_empty() {
        let names: Vec<&str> = classes.iter().take(LISTED).map(String::as_str).collect();
        let more = if classes.len() > LISTED { ", ..." } else { "" };
        writeln!(out, "\nclasses: {}{more}", names.join(", "))?;
    }
    if report.skipped > 0 {
        writeln!(out, "{} entries left out", report.skipped)?;
    }
    for split in report.splits.iter().filter(|split| !split.broken.is_empty()) {
        writeln!(out, "\n{} in {}:", paint(BAD, "broken"), split.name)?;
        for broken in split.broken.iter().take(LISTED) {
            writeln!(out, "  {broken}")?;
        }
        if split.broken.len() > LISTED {
            writeln!(out, "  {}", paint(DIM, format!("... and {} more", split.broken.len() - LISTED)))?;
        }
    }
    Ok(())
}

/// `low..high`; a single value if both are equal, `-` if there is none.
fn range<T: PartialEq>(range: Option<(T, T)>, shown: impl Fn(T) -> String) -> String {
    match range {
        Some((low, high)) if low == high => shown(low),
        Some((low, high)) => format!("{}..{}", shown(low), shown(high)),
        None => "-".to_owned(),
    }
}

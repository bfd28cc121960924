//! `zoo score`: compare predictions with published throughput.

use crate::catalog::Catalog;
use crate::console::{BAD, Console, DIM, paint};
use crate::context::Context;
use crate::numbers::percent;
use crate::table::{Cell, Table, fitted};
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoo_datasets::files;
use zoo_npu::score::{self, Errors, Group, Summary, summary};
use zoo_npu::{Comparison, Row, Scored, Throughput};
use zoo_recipe::Document;

/// Predict every row of throughput files and compare with the published throughput.
///
/// Rows that were used to fit a device or host file are counted separately. So are doubtful rows, with the reason. Rows
/// whose network has no recipe are skipped. The files of recipes/throughput are built in; without arguments, all of
/// them are scored.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo score                                 all files of recipes/throughput
  zoo score published
  zoo score my_measurements.yaml
  zoo score --format json | jq .held_out")]
pub struct Args {
    /// Throughput files, or names of files in recipes/throughput
    #[arg(value_name = "FILE|NAME")]
    files: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    rows: Vec<Scored>,
    #[serde(flatten)]
    summary: Summary,
}

/// Errors of rows above this are highlighted.
const LARGE: f64 = 0.35;

/// Predicts all rows and prints the comparison.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let catalog = context.catalog()?;
    let paths: Vec<PathBuf> = if args.files.is_empty() {
        score::list(catalog.dirs()).into_iter().map(|(_, path)| path).collect()
    } else {
        args.files.iter().map(|given| find(given, catalog)).collect::<Result<_, Failure>>()?
    };
    let mut rows = Vec::new();
    for path in &paths {
        files::open(path).map_err(|source| Failure::Unreadable { path: path.clone(), source })?;
        let file: Document<Throughput> = Document::read(path)?;
        let wrong = |(i, _): (usize, &Row)| file.error_at(&format!("rows[{i}]"), "a row needs either `ms` or `ips`");
        let wrong: Vec<_> =
            file.value.rows.iter().enumerate().filter(|(_, row)| row.published().is_none()).map(wrong).collect();
        if !wrong.is_empty() {
            return Err(file.errors(wrong).into());
        }
        rows.extend(file.value.rows);
    }
    let devices = context.devices()?;
    let bar = context.progress.bar(rows.len() as u64);
    let scored = rows.iter().enumerate().map(|(i, row)| {
        bar.position(i as u64);
        bar.message(row.id.clone());
        Ok(score::score(row, catalog.library(), &devices)?)
    });
    let rows = scored.collect::<Result<Vec<_>, Failure>>()?;
    drop(bar);
    let report = Report { summary: summary(&rows), rows };
    context.show(&report, |out| print(&report, out))
}

/// Finds a throughput file by path, by a path below a folder of recipes (`recipes/throughput/NAME.yaml` from any
/// folder), or by its name alone.
fn find(given: &Path, catalog: &Catalog) -> Result<PathBuf, Failure> {
    if given.exists() {
        return Ok(given.to_owned());
    }
    let inner = given
        .strip_prefix("recipes")
        .map_or_else(|_| Path::new("throughput").join(given).with_extension("yaml"), Path::to_owned);
    let found = catalog.dirs().iter().map(|folder| folder.join(&inner)).find(|path| path.is_file());
    match found {
        None if given.extension().is_none() && given.components().count() == 1 => {
            let known: Vec<String> = score::list(catalog.dirs()).into_iter().map(|(name, _)| name).collect();
            let (name, known) = (given.display(), known.join(", "));
            Err(Failure::Usage(format!("there is no throughput file `{name}`; known: {known}")))
        }
        found => Ok(found.unwrap_or_else(|| given.to_owned())),
    }
}

fn print(report: &Report, out: &mut Console) -> Result<(), Failure> {
    let mut table = Table::new(["row", ">published", ">simulated", "", ">error", "waits for", ""]);
    for row in &report.rows {
        match row {
            Scored::Simulated(row) => table.row(cells(row)),
            Scored::Skipped { id, skipped } => {
                let nothing = || Cell::from("");
                let why = Cell::styled(format!("skipped: {skipped}"), DIM);
                table.row([id.into(), nothing(), nothing(), nothing(), nothing(), nothing(), why]);
            }
        }
    }
    write!(out, "{table}")?;
    let summary = &report.summary;
    for (title, groups) in [("family", &summary.families), ("device", &summary.devices)] {
        write!(out, "\n{}", groups_table(title, groups))?;
    }
    let mut table = Table::new(["absolute error", ">rows", ">mean", ">median", ">worst"]);
    let kinds = [("held out", summary.held_out), ("fitted", summary.fitted), ("doubtful", summary.doubtful)];
    for (name, errors) in kinds {
        let [rows, mean, median, worst] = figures(errors);
        table.row([name.into(), rows, mean, median, worst]);
    }
    write!(out, "\n{table}")?;
    let simulated = report.rows.iter().filter(|row| matches!(row, Scored::Simulated(_))).count();
    writeln!(out, "{} of {simulated} rows wait for their input", summary.waits_for_input)?;
    for row in &report.rows {
        if let Scored::Simulated(Comparison { id, doubtful: true, note: Some(note), .. }) = row {
            writeln!(out, "{}", paint(DIM, fitted(&format!("  {id}: {note}"))))?;
        }
    }
    Ok(())
}

fn cells(row: &Comparison) -> [Cell; 7] {
    let text = signed(row.error);
    let within = row.range.is_some_and(|[low, high]| (low..=high).contains(&row.simulated));
    let notes = [(row.fitted, "fitted"), (row.doubtful, "doubtful"), (within, "within the range")];
    let notes: Vec<&str> = notes.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
    let published = match row.range {
        Some([low, high]) => format!("{}-{}", number(low), number(high)),
        None => number(row.published),
    };
    [
        (&row.id).into(),
        published.into(),
        number(row.simulated).into(),
        row.unit.into(),
        if row.error.abs() > LARGE { Cell::styled(text, BAD) } else { text.into() },
        row.limit.name().into(),
        Cell::styled(notes.join(", "), DIM),
    ]
}

/// The errors of rows that were not used for fitting, by group.
fn groups_table(title: &str, groups: &[Group]) -> Table {
    let mut table = Table::new([title, ">held out", ">mean", ">median", ">worst", ">fitted", ">doubtful"]);
    for group in groups {
        let [rows, mean, median, worst] = figures(group.held_out);
        table.row([(&group.name).into(), rows, mean, median, worst, group.fitted.into(), group.doubtful.into()]);
    }
    table
}

/// Rows, mean, median and worst.
fn figures(errors: Option<Errors>) -> [Cell; 4] {
    let Some(errors) = errors else { return [0usize.into(), "".into(), "".into(), "".into()] };
    [errors.rows.into(), percent(errors.mean).into(), percent(errors.median).into(), percent(errors.worst).into()]
}

fn signed(error: f64) -> String {
    format!("{:+.1} %", 100.0 * error)
}

fn number(value: f64) -> String {
    if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

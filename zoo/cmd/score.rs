//! `zoo score`: published throughput against the clock's.

use super::{Context, SCHEMA_VERSION};
use crate::catalog::Catalog;
use crate::cli::Format;
use crate::console::{BAD, DIM, paint};
use crate::table::{Align, Cell, Table};
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoo_datasets::files;
use zoo_npu::score::{Summary, summary};
use zoo_npu::{NpuError, Row, Scored, Throughput, Work};
use zoo_recipe::Document;

/// Simulate every row of a throughput file and compare with what was published.
///
/// Rows that the device file names as fitted are counted apart, and so are doubtful ones, with the reason. A row whose
/// network has no recipe is skipped. The files of recipes/throughput are built in: `published` and `further` name them
/// anywhere.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo score published
  zoo score my_measurements.yaml
  zoo score further --format json | jq .mape_not_fitted")]
pub struct Args {
    /// A throughput file, or the name of one in the folder throughput beside the recipes
    #[arg(value_name = "FILE|NAME")]
    file: PathBuf,
}

#[derive(Serialize)]
struct Report {
    schema_version: u32,
    rows: Vec<Scored>,
    #[serde(flatten)]
    summary: Summary,
}

/// An error of a row above this is worth a look.
const LARGE: f64 = 0.35;

/// Simulates and prints.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let catalog = context.catalog()?;
    let path = find(&args.file, &catalog);
    files::open(&path).map_err(|source| Failure::Unreadable { path: path.clone(), source })?;
    let file: Document<Throughput> = Document::read(&path)?;
    let bar = context.progress.bar(file.value.rows.len() as u64);
    let rows = file.value.rows.iter().enumerate().map(|(i, row)| {
        bar.position(i as u64);
        bar.message(row.id.clone());
        if row.ms.is_some() == row.ips.is_some() {
            let error = file.error_at(&format!("rows[{i}]"), "a row has one of `ms` and `ips`");
            return Err(file.errors(vec![error]).into());
        }
        score(row, &catalog, context)
    });
    let rows = rows.collect::<Result<Vec<_>, Failure>>()?;
    drop(bar);
    let report = Report { schema_version: SCHEMA_VERSION, summary: summary(&rows), rows };
    match context.format {
        Format::Json => context.out.json(&report)?,
        Format::Text => print(&report, context)?,
    }
    Ok(Exit::Pass)
}

/// The file that is named: as a path, as one below a folder of recipes (`recipes/throughput/NAME.yaml` from anywhere),
/// or by its name alone.
fn find(given: &Path, catalog: &Catalog) -> PathBuf {
    if given.exists() {
        return given.to_owned();
    }
    let inner = given
        .strip_prefix("recipes")
        .map_or_else(|_| Path::new("throughput").join(given).with_extension("yaml"), Path::to_owned);
    let found = catalog.dirs().iter().map(|folder| folder.join(&inner)).find(|path| path.is_file());
    found.unwrap_or_else(|| given.to_owned())
}

/// One row.
fn score(row: &Row, catalog: &Catalog, context: &Context) -> Result<Scored, Failure> {
    let id = row.id.clone();
    let device = match context.devices()?.load(&row.device) {
        Ok(device) => device,
        Err(NpuError::UnknownDevice { .. }) => return Ok(Scored::Skipped { id, skipped: "no device".into() }),
        Err(error) => return Err(error.into()),
    };
    if !catalog.library().list().iter().any(|(name, _)| *name == row.network) {
        return Ok(Scored::Skipped { id, skipped: "no recipe".into() });
    }
    let stack = row.stack(&device);
    let sets: Vec<String> = stack.iter().flat_map(|stack| &stack.set).chain(&row.set).cloned().collect();
    let mut recipe = catalog.load(&row.network, None, &sets)?.recipe;
    recipe.npu.precision = row.precision.of_recipe();
    recipe.npu.devices = row.devices;
    recipe.train.batch = row.batch;
    for shape in recipe.model.inputs.values_mut() {
        shape.set_side(row.input);
    }
    let profile = match zoo_npu::profile(&recipe, &device, Work::Train) {
        Ok(profile) => profile,
        Err(NpuError::Graph(error)) => return Ok(Scored::Skipped { id, skipped: error.to_string() }),
        Err(error @ NpuError::Memory { .. }) => return Ok(Scored::Skipped { id, skipped: error.to_string() }),
        Err(error) => return Err(error.into()),
    };
    let (unit, published, simulated) = match (row.ms, row.ips) {
        (Some(ms), _) => ("ms", ms, profile.step.ms()),
        (None, ips) => ("ips", ips.unwrap_or(f64::NAN), profile.images_per_s),
    };
    Ok(Scored::Simulated {
        id,
        unit,
        published,
        simulated,
        error: simulated / published - 1.0,
        fitted: device.is_fitted_to(&row.id),
        doubtful: row.doubtful,
        limit: profile.limit.name(),
        stack: stack.map(|stack| stack.name.clone()),
        note: row.note.clone(),
    })
}

fn print(report: &Report, context: &mut Context) -> Result<(), Failure> {
    let mut table = Table::new([
        ("row", Align::Left),
        ("published", Align::Right),
        ("simulated", Align::Right),
        ("", Align::Left),
        ("error", Align::Right),
        ("waits for", Align::Left),
        ("", Align::Left),
    ]);
    for row in &report.rows {
        match row {
            Scored::Simulated { id, unit, published, simulated, error, fitted, doubtful, limit, .. } => {
                let text = signed(*error);
                let notes = [(*fitted, "fitted"), (*doubtful, "doubtful")];
                let notes: Vec<&str> = notes.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
                table.row([
                    id.into(),
                    number(*published).into(),
                    number(*simulated).into(),
                    (*unit).into(),
                    if error.abs() > LARGE { Cell::styled(text, BAD) } else { text.into() },
                    (*limit).into(),
                    Cell::styled(notes.join(", "), DIM),
                ]);
            }
            Scored::Skipped { id, skipped } => {
                let nothing = || Cell::from("");
                let why = Cell::styled(format!("skipped: {skipped}"), DIM);
                table.row([id.into(), nothing(), nothing(), nothing(), nothing(), nothing(), why]);
            }
        }
    }
    let out = &mut context.out;
    write!(out, "{table}")?;
    let mean = |value: Option<f64>| value.map_or("no rows".to_owned(), |value| format!("{:.1} %", 100.0 * value));
    let summary = &report.summary;
    writeln!(out, "\nmean absolute error {}", mean(summary.mape))?;
    writeln!(
        out,
        "  not fitted        {}, at worst {}",
        mean(summary.mape_not_fitted),
        mean(summary.worst_not_fitted)
    )?;
    writeln!(out, "  fitted            {}", mean(summary.mape_fitted))?;
    let apart = mean(summary.mape_doubtful);
    writeln!(out, "{}", paint(DIM, format!("  doubtful, apart   {apart}")))?;
    for row in &report.rows {
        if let Scored::Simulated { id, doubtful: true, note: Some(note), .. } = row {
            writeln!(out, "{}", paint(DIM, format!("    {id}: {note}")))?;
        }
    }
    Ok(())
}

fn signed(error: f64) -> String {
    format!("{:+.1} %", 100.0 * error)
}

fn number(value: f64) -> String {
    if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

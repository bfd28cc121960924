//! `zoo study`: published series of measurements, replayed.

use super::{Context, SCHEMA_VERSION};
use crate::catalog::Catalog;
use crate::cli::Format;
use crate::console::{BAD, DIM, GOOD, HEADING, WARN, paint};
use crate::table::{Align, Cell, Table};
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use zoo_npu::study::{self, Direction, Outcome, Study, StudyRow, Verdict};
use zoo_npu::{Device, Work};

/// Replay a published series of measurements: each row's options simulated, beside what was published.
///
/// Ratios are against the first row of each table. A ratio agrees if it points in the published direction and differs by
/// no more than a quarter; where it does not, the study says why.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo study                        which there are
  zoo study alexnet-options
  zoo study resnet50-cann --format json | jq '.rows[] | [.what, .simulated_ms]'")]
pub struct Args {
    /// Name of a study; without it, all are listed
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    study: &'a str,
    source: &'a str,
    rows: &'a [Outcome],
}

#[derive(Serialize)]
struct List {
    schema_version: u32,
    studies: Vec<Listed>,
}

#[derive(Serialize)]
struct Listed {
    name: String,
    description: String,
}

/// Replays and prints.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let catalog = context.catalog()?;
    let known = study::list(catalog.dirs());
    let Some(name) = &args.name else { return list(&known, context) };
    let Some((_, path)) = known.iter().find(|(known, _)| known == name) else {
        let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
        return Err(Failure::Usage(format!("there is no study `{name}`; known: {}", names.join(", "))));
    };
    let study = study::read(path)?;
    let device = context.devices()?.load(&study.device)?;
    let mut outcomes = Vec::new();
    for table in &study.tables {
        let mut first = None;
        for row in &table.rows {
            let outcome = row.judge(&table.title, simulate(&study, row, &device, &catalog), first);
            first = first.or(Some((outcome.published_ms, outcome.simulated_ms)));
            outcomes.push(outcome);
        }
    }
    match context.format {
        Format::Json => {
            let (study, source) = (study.name.as_str(), study.source.as_str());
            context.out.json(&Report { schema_version: SCHEMA_VERSION, study, source, rows: &outcomes })?;
        }
        Format::Text => print(&study, &outcomes, context)?,
    }
    Ok(Exit::Pass)
}

/// Milliseconds per step of a row, or why there are none.
fn simulate(study: &Study, row: &StudyRow, device: &Device, catalog: &Catalog) -> Result<f64, String> {
    if row.not_modelled.is_some() {
        return Err("not simulated".to_owned());
    }
    if !catalog.library().list().iter().any(|(name, _)| *name == study.recipe) {
        return Err(format!("there is no recipe `{}`", study.recipe));
    }
    let sets: Vec<String> = study.set.iter().chain(&row.set).cloned().collect();
    let loaded = catalog.load(&study.recipe, None, &sets).map_err(|error| error.to_string())?;
    let mut recipe = loaded.recipe;
    recipe.train.batch = row.batch.unwrap_or(study.batch);
    recipe.npu.devices = row.devices.unwrap_or(study.devices);
    let profile = zoo_npu::profile(&recipe, device, Work::Train).map_err(|error| error.to_string())?;
    Ok(profile.step.ms())
}

fn list(known: &[(String, std::path::PathBuf)], context: &mut Context) -> Result<Exit, Failure> {
    let mut studies = Vec::new();
    for (name, path) in known {
        studies.push(Listed { name: name.clone(), description: study::read(path)?.description });
    }
    if context.format == Format::Json {
        context.out.json(&List { schema_version: SCHEMA_VERSION, studies })?;
        return Ok(Exit::Pass);
    }
    let mut table = Table::new([("study", Align::Left), ("description", Align::Left)]);
    for study in &studies {
        table.row([(&study.name).into(), (&study.description).into()]);
    }
    write!(context.out, "{table}")?;
    Ok(Exit::Pass)
}

fn print(study: &Study, outcomes: &[Outcome], context: &mut Context) -> Result<(), Failure> {
    let out = &mut context.out;
    writeln!(out, "{}  {}", paint(HEADING, &study.name), study.description)?;
    writeln!(out, "{}", paint(DIM, format!("{} on {}; {}", study.recipe, study.device, study.source)))?;
    for table in &study.tables {
        writeln!(out, "\n{}", paint(HEADING, &table.title))?;
        if let Some(note) = &table.note {
            writeln!(out, "{}", paint(DIM, note))?;
        }
        let mut rows = Table::new([
            ("", Align::Left),
            ("published ms", Align::Right),
            ("simulated ms", Align::Right),
            ("ratio", Align::Right),
            ("simulated", Align::Right),
            ("", Align::Left),
            ("", Align::Left),
        ]);
        for outcome in outcomes.iter().filter(|outcome| outcome.table == table.title) {
            rows.row(cells(outcome));
        }
        write!(out, "{rows}")?;
    }
    Ok(())
}

fn cells(outcome: &Outcome) -> [Cell; 7] {
    let number = |value: Option<f64>, decimals: usize| value.map(|v| format!("{v:.decimals$}")).unwrap_or_default();
    let simulated = match &outcome.error {
        Some(_) => "error".to_owned(),
        None => number(outcome.simulated_ms, 1),
    };
    let verdict = match outcome.verdict {
        Verdict::Agrees => Cell::styled("agrees", GOOD),
        Verdict::Explained => Cell::styled("explained", WARN),
        Verdict::Differs => Cell::styled("differs", BAD),
        Verdict::Open => Cell::styled("", DIM),
    };
    let published = match outcome.published_direction {
        Some(Direction::Slower) => "slower".to_owned(),
        Some(Direction::Faster) => "faster".to_owned(),
        None => number(outcome.published_ratio, 2),
    };
    let note = outcome.because.clone().or_else(|| outcome.error.clone()).unwrap_or_default();
    [
        (&outcome.what).into(),
        number(outcome.published_ms, 1).into(),
        simulated.into(),
        published.into(),
        number(outcome.simulated_ratio, 2).into(),
        verdict,
        Cell::styled(note.replace('\n', " "), DIM),
    ]
}

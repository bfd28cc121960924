//! `zoo study`: replay published series of measurements.

mod chart;
mod clock;
mod training;

use crate::complete;
use crate::console::{Console, DIM, HEADING, paint};
use crate::context::Context;
use crate::memory::MemoryArgs;
use crate::output;
use crate::table::{Table, fitted};
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoo_npu::study::{self, Outcome, Study, Trained};

/// Replay a published series of measurements, and compare each row with the published result.
///
/// A row agrees if its time is within 35 % of the published time, and if its ratio to the base (the first row of the
/// table) has the published direction and differs by at most a quarter. Ratios are of the time per image. If only a
/// direction is published, a row that meets it is marked as an illustration. For rows that differ, the study gives the
/// reason.
///
/// Rows that are trainings run one after the other, unless their run folder already has the result. Ctrl-C leaves a
/// checkpoint, and the next call resumes from there.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo study                        list all studies
  zoo study alexnet-options
  zoo study alexnet-precision      train AlexNet in each precision mode
  zoo study db-underflow --no-train --svg db.svg
  zoo study resnet50-cann --format json | jq '.rows[] | [.what, .simulated_ms]'")]
pub struct Args {
    /// Name of a study; without it, all studies are listed
    #[arg(value_name = "NAME", add = complete::studies())]
    name: Option<String>,
    /// Folder for the runs of the study's trainings; by default runs/study-NAME
    #[arg(short, long, value_name = "DIR", requires = "name")]
    out: Option<PathBuf>,
    /// Do not train; show existing results
    #[arg(long, requires = "name")]
    no_train: bool,
    /// Draw a chart of the trainings to this file; by default NAME.svg in the folder of the runs
    #[arg(long, value_name = "FILE", requires = "name")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    memory: MemoryArgs,
}

#[derive(Serialize)]
struct Report<'a> {
    study: &'a str,
    source: &'a str,
    rows: &'a [Outcome],
    trainings: &'a [Trained],
}

#[derive(Serialize)]
struct List {
    studies: Vec<Listed>,
}

#[derive(Serialize)]
struct Listed {
    name: String,
    description: String,
    /// Number of trainings.
    trainings: usize,
}

/// Replays the study and prints the results.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let known = study::list(context.catalog()?.dirs());
    let Some(name) = &args.name else { return list(&known, context) };
    let Some((_, path)) = known.iter().find(|(known, _)| known == name) else {
        let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
        return Err(Failure::Usage(format!("there is no study `{name}`; known: {}", names.join(", "))));
    };
    let study = study::read(path)?;
    let outcomes = if study.tables.is_empty() { Vec::new() } else { clock::run(&study, context)? };
    let out = args.out.clone().unwrap_or_else(|| Path::new("runs").join(format!("study-{name}")));
    let Some(trained) = training::run(&study, !args.no_train, &out, args.memory, context)? else {
        return Ok(Exit::Interrupted);
    };
    let report = Report { study: &study.name, source: &study.source, rows: &outcomes, trainings: &trained };
    context.show(&report, |out| print(&study, &outcomes, &trained, out))?;
    let measured = trained.iter().any(|row| row.score.is_some());
    if let Some(path) = args.svg.clone().or_else(|| measured.then(|| out.join(format!("{name}.svg")))) {
        output::write_beside(&path, &chart::svg(&study, &trained), context)?;
    }
    Ok(Exit::Pass)
}

fn list(known: &[(String, PathBuf)], context: &mut Context) -> Result<Exit, Failure> {
    let mut studies = Vec::new();
    for (name, path) in known {
        let study = study::read(path)?;
        let trainings = study.trainings.iter().map(|table| table.rows.len()).sum();
        studies.push(Listed { name: name.clone(), description: study.description, trainings });
    }
    let mut table = Table::new(["study", "description"]);
    for study in &studies {
        table.row([(&study.name).into(), (&study.description).into()]);
    }
    context.show(&List { studies }, |out| Ok(write!(out, "{table}")?))
}

fn print(study: &Study, outcomes: &[Outcome], trained: &[Trained], out: &mut Console) -> Result<(), Failure> {
    writeln!(out, "{}  {}", paint(HEADING, &study.name), study.description)?;
    writeln!(out, "{}", paint(DIM, fitted(&format!("{} on {}; {}", study.recipe, study.device, study.source))))?;
    clock::print(study, outcomes, out)?;
    training::print(study, trained, out)
}

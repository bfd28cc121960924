//! `zoo check --mutants`: plants known mistakes, each of which must be detected.

use crate::Failure;
use crate::console::{BAD, Console, GOOD, HEADING, WARN, paint};
use crate::context::Context;
use crate::proof::report;
use crate::table::{Cell, Table};
use serde::Serialize;
use std::io::Write;
use zoo_golden::{
    self as golden,
    mutants::{Outcome, Planting},
};

/// The results of all mutants.
#[derive(Serialize)]
struct Report<'a> {
    recipe: &'a str,
    planted: usize,
    caught: usize,
    mutants: &'a [Outcome],
    /// The check without a fault, if it fails. Then nothing is planted.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_fault: Option<&'a golden::Report>,
}

/// Prints the results; `sets` are the values of `--set`. Returns whether every mutant was caught, in a recipe that
/// passes without one.
pub(super) fn print(
    recipe: &str,
    planting: &Planting,
    sets: &[String],
    context: &mut Context,
) -> Result<bool, Failure> {
    let (mutants, without_fault): (&[Outcome], _) = match planting {
        Planting::Unsound(failed) => (&[], Some(&**failed)),
        Planting::Outcomes(outcomes) => (outcomes, None),
    };
    let (planted, caught) = (mutants.len(), mutants.iter().filter(|outcome| outcome.caught.is_some()).count());
    let report = Report { recipe, planted, caught, mutants, without_fault };
    context.show(&report, |out| match without_fault {
        Some(failed) => unsound(recipe, failed, sets, out),
        None => table(&report, out),
    })?;
    Ok(without_fault.is_none() && caught == planted)
}

/// Prints the check of a recipe that fails without a fault.
fn unsound(recipe: &str, failed: &golden::Report, sets: &[String], out: &mut Console) -> Result<(), Failure> {
    report::print(failed, sets, out)?;
    let verdict = paint(BAD, "fails without a planted fault");
    writeln!(out, "{recipe} {verdict}, so a failure would say nothing about planted ones: none was planted")?;
    Ok(())
}

/// Prints the table of mutants.
fn table(report: &Report<'_>, out: &mut Console) -> Result<(), Failure> {
    let Report { recipe, planted, caught, mutants, .. } = *report;
    let columns = ["planted fault", "expected in", "caught in", "first at"];
    let mut table = Table::new(columns);
    for outcome in mutants {
        let found = match outcome.caught {
            Some(stage) if stage == outcome.expected => Cell::styled(stage, GOOD),
            Some(stage) => Cell::styled(stage, WARN),
            None => Cell::styled("missed", BAD),
        };
        let tensor = outcome.tensor.as_deref().unwrap_or_default();
        table.row([outcome.name.into(), outcome.expected.into(), found, tensor.into()]);
    }
    let style = if caught == planted { GOOD } else { BAD };
    writeln!(out, "{}  {planted} faults planted, judged in f64\n", paint(HEADING, recipe))?;
    writeln!(out, "{table}")?;
    writeln!(out, "{recipe}: {}", paint(style, format!("{caught} of {planted} caught")))?;
    Ok(())
}

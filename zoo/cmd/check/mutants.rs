//! `zoo check --mutants`: plants known mistakes, each of which must be detected.

use crate::Failure;
use crate::console::{BAD, GOOD, HEADING, WARN, paint};
use crate::context::{Context, SCHEMA_VERSION};
use crate::options::Format;
use crate::proof::report;
use crate::table::{Align, Cell, Table};
use serde::Serialize;
use std::io::Write;
use zoo_golden::{
    self as golden,
    mutants::{Outcome, Planting},
};

/// The results of all mutants.
#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
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
    match planting {
        Planting::Unsound(failed) => unsound(recipe, failed, sets, context).map(|()| false),
        Planting::Outcomes(outcomes) => table(recipe, outcomes, context),
    }
}

/// Prints the check of a recipe that fails without a fault.
fn unsound(recipe: &str, failed: &golden::Report, sets: &[String], context: &mut Context) -> Result<(), Failure> {
    if context.format == Format::Json {
        let (planted, caught, without_fault) = (0, 0, Some(failed));
        let schema_version = SCHEMA_VERSION;
        context.out.json(&Report { schema_version, recipe, planted, caught, mutants: &[], without_fault })?;
        return Ok(());
    }
    report::print(failed, sets, &mut context.out)?;
    let verdict = paint(BAD, "fails without a planted fault");
    writeln!(context.out, "{recipe} {verdict}, so a failure would say nothing about planted ones: none was planted")?;
    Ok(())
}

/// Prints the table of mutants.
fn table(recipe: &str, mutants: &[Outcome], context: &mut Context) -> Result<bool, Failure> {
    let caught = mutants.iter().filter(|outcome| outcome.caught.is_some()).count();
    let planted = mutants.len();
    if context.format == Format::Json {
        let (schema_version, without_fault) = (SCHEMA_VERSION, None);
        context.out.json(&Report { schema_version, recipe, planted, caught, mutants, without_fault })?;
        return Ok(caught == planted);
    }
    let columns = [
        ("planted fault", Align::Left),
        ("expected in", Align::Left),
        ("caught in", Align::Left),
        ("first at", Align::Left),
    ];
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
    writeln!(context.out, "{}  {planted} faults planted, judged in f64\n", paint(HEADING, recipe))?;
    writeln!(context.out, "{table}")?;
    writeln!(context.out, "{recipe}: {}", paint(style, format!("{caught} of {planted} caught")))?;
    Ok(caught == planted)
}

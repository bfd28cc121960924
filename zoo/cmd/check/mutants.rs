//! `zoo check --mutants`: plants known mistakes, each of which must be detected.

use crate::Failure;
use crate::cli::Format;
use crate::cmd::{Context, SCHEMA_VERSION};
use crate::console::{BAD, GOOD, HEADING, WARN, paint};
use crate::table::{Align, Cell, Table};
use serde::Serialize;
use std::io::Write;
use zoo_golden::mutants::Outcome;

/// The results of all mutants.
#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    recipe: &'a str,
    planted: usize,
    caught: usize,
    mutants: &'a [Outcome],
}

/// Prints the table. Returns whether every mutant was caught.
pub(super) fn print(recipe: &str, outcomes: &[Outcome], context: &mut Context) -> Result<bool, Failure> {
    let caught = outcomes.iter().filter(|outcome| outcome.caught.is_some()).count();
    let planted = outcomes.len();
    if context.format == Format::Json {
        context.out.json(&Report { schema_version: SCHEMA_VERSION, recipe, planted, caught, mutants: outcomes })?;
        return Ok(caught == planted);
    }
    let columns = [
        ("planted fault", Align::Left),
        ("expected in", Align::Left),
        ("caught in", Align::Left),
        ("first at", Align::Left),
    ];
    let mut table = Table::new(columns);
    for outcome in outcomes {
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

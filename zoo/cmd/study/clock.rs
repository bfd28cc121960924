//! Tables of predicted and published step times.

use crate::Failure;
use crate::catalog::Catalog;
use crate::console::{Console, DIM, GOOD, HEADING, WARN, paint};
use crate::context::Context;
use crate::table::{Cell, Table, fitted};
use std::io::Write;
use zoo_npu::study::{Direction, First, Outcome, Study, StudyRow, Verdict};
use zoo_npu::{Device, Work};

/// Simulates every row.
pub(super) fn run(study: &Study, context: &Context) -> Result<Vec<Outcome>, Failure> {
    let catalog = context.catalog()?;
    let device = context.devices()?.load(&study.device)?;
    let mut outcomes = Vec::new();
    for table in &study.tables {
        let mut first = None;
        for row in &table.rows {
            let images = row.images(study);
            let outcome = row.judge(&table.title, simulate(study, row, &device, catalog), images, first);
            first = first.or(Some(First::new(&outcome, images)));
            outcomes.push(outcome);
        }
    }
    Ok(outcomes)
}

/// Milliseconds per step of a row, or the reason why it cannot be predicted.
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
    recipe.train.batch = row.batch.or(study.batch).unwrap_or(recipe.train.batch);
    recipe.npu.devices = row.devices.unwrap_or(study.devices);
    let profile = zoo_npu::profile(&recipe, device, Work::Train).map_err(|error| error.to_string())?;
    Ok(profile.step.ms())
}

/// Prints the tables.
pub(super) fn print(study: &Study, outcomes: &[Outcome], out: &mut Console) -> Result<(), Failure> {
    for table in &study.tables {
        writeln!(out, "\n{}", paint(HEADING, &table.title))?;
        if let Some(note) = &table.note {
            writeln!(out, "{}", paint(DIM, fitted(note)))?;
        }
        let mut rows = Table::new(["", ">published ms", ">simulated ms", ">ratio", ">simulated", "", ""]);
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
    let verdict = verdict(outcome.verdict);
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

/// A verdict as a cell.
pub(super) fn verdict(verdict: Verdict) -> Cell {
    match verdict {
        Verdict::Agrees => Cell::styled("agrees", GOOD),
        Verdict::Differs => Cell::styled("differs", WARN),
        Verdict::Base => Cell::styled("base", DIM),
        Verdict::Illustrates => Cell::styled("illustrates", DIM),
        Verdict::Open => Cell::styled("", DIM),
    }
}

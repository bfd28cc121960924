//! The page with the list of all runs.

use super::{address::href, folders::Row};
use crate::{Failure, numbers::counted};
use std::path::Path;
use zoo_pages::{Cell, Grid, Page, Section, Verdict};
use zoo_train::{RunsError, report::ComparedRun};

/// The page.
pub(super) fn page(root: &Path, rows: &[Row]) -> Result<String, Failure> {
    let columns = [
        ("run", false),
        ("recipe", false),
        ("state", false),
        ("verdict", false),
        ("reached", true),
        ("target", true),
        ("steps", true),
        ("loss", true),
        ("time", true),
        ("golden", false),
    ];
    let mut grid = Grid::new("Runs, by folder", columns);
    for Row { name, run } in rows {
        let link = Cell { href: Some(href("/run", name)), tick: Some(name.clone()), ..Cell::from(name.as_str()) };
        grid.rows.push(match run {
            Ok(run) => std::iter::once(link).chain(cells(run)).collect(),
            Err(reason) => vec![Cell::from(name.as_str()), "".into(), Cell::classed(reason.as_str(), "faint")],
        });
    }
    let going = rows.iter().filter(|row| row.run.as_ref().is_ok_and(|run| run.state == "open")).count();
    let short = match (rows.len(), going) {
        (all, 0) => counted(all as u64, "run"),
        (all, going) => format!("{all} runs, {going} of them not finished"),
    };
    let title = format!("Runs in {}", root.display());
    let section = Section {
        id: "runs".into(),
        title: "All runs".into(),
        grids: vec![grid],
        compares: true,
        ..Section::default()
    };
    let verdict = Verdict { class: "", short, lines: Vec::new() };
    let page = Page { title, served: true, verdict, sections: vec![section], ..Page::default() };
    Ok(page.render().map_err(RunsError::from)?)
}

fn cells(run: &ComparedRun) -> [Cell; 9] {
    let [verdict, reached, target] = run.judged();
    let [loss, time] = run.cost();
    [
        run.recipe.as_str().into(),
        run.state.into(),
        verdict,
        reached,
        target,
        run.steps.to_string().into(),
        loss,
        time,
        run.golden.cell(),
    ]
}

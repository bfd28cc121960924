//! `zoo check --parallel`: proves a step that several ranks share.

use crate::Failure;
use crate::console::{BAD, Console, GOOD, HEADING, paint};
use crate::context::Context;
use crate::memory::{MemoryArgs, beyond_now};
use crate::options::Format;
use crate::proof::{
    cases::{self, Checked},
    report::verdict_line,
    split::{arithmetic, heading, name_of, print},
};
use crate::table::{Cell, Table};
use serde::Serialize;
use std::io::Write;
use std::time::Instant;
use zoo_golden::split::{
    PHASES, SplitOptions, SplitReport, check_split,
    mutants::{self, Found, SplitPlanting},
};
use zoo_recipe::{Loaded, Parallel};

/// What to prove.
pub(super) struct Wanted<'a> {
    pub parallel: &'a Parallel,
    pub options: SplitOptions,
    /// Whether to plant faults, which are judged in f64.
    pub mutants: bool,
    /// Values of `--set`.
    pub sets: &'a [String],
    pub memory: MemoryArgs,
}

/// What is known of a split.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Proven {
    Split(SplitReport),
    Planted(Planted),
}

/// Checks a split, and prints it for people; returns whether all ranks together compute the step of one device, and the
/// report for scripts.
pub(super) fn run(wanted: &Wanted<'_>, loaded: &Loaded, context: &mut Context) -> Result<(bool, Proven), Failure> {
    let (recipe, parallel, sets) = (&loaded.recipe, wanted.parallel, wanted.sets);
    let options = &wanted.options;
    let needed = beyond_now(zoo_golden::split::memory(recipe, parallel, options)?);
    let instead = "use a smaller --batch, or --set for a smaller network";
    wanted.memory.expect(&format!("the proof of {} {parallel}", recipe.name), needed, |_| instead.to_owned())?;
    if wanted.mutants {
        let planting = mutants::run(recipe, parallel, options, &mut context.progress.foreseen(&recipe.name))?;
        return planted(&recipe.name, parallel, planting, sets, context);
    }
    let mut progress = context.progress.named(PHASES, &recipe.name);
    let begun = Instant::now();
    let report = check_split(recipe, parallel, options, &mut progress)?;
    drop(progress);
    let (name, time) = (format!("{} {parallel}", recipe.name), begun.elapsed());
    context.ci.record(cases::suite(Checked { name, file: &loaded.path, sets, time }, &report.stages, None)?);
    if context.format == Format::Text {
        let out = &mut context.out;
        let ranks = format!("{} ranks in {}", report.ranks, arithmetic(report.dtype));
        writeln!(out, "{}  {ranks}, batch {}, against one device in f64\n", heading(&report), report.batch)?;
        print(&report, &[], sets, out)?;
        writeln!(out, "\n{}: {}", name_of(&report), verdict_line(&report.stages, report.verdict))?;
    }
    Ok((report.passed(), Proven::Split(report)))
}

/// The results of all planted faults.
#[derive(Serialize)]
pub(super) struct Planted {
    schema_version: u32,
    recipe: String,
    parallel: String,
    planted: usize,
    right: usize,
    faults: Vec<Found>,
    /// The check without a fault, if it fails. Then nothing is planted.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_fault: Option<Box<SplitReport>>,
}

/// Prints what planting the faults shows; returns whether every verdict is right.
fn planted(
    recipe: &str,
    parallel: &Parallel,
    planting: SplitPlanting,
    sets: &[String],
    context: &mut Context,
) -> Result<(bool, Proven), Failure> {
    let (faults, without_fault) = match planting {
        SplitPlanting::Unsound(failed) => (Vec::new(), Some(failed)),
        SplitPlanting::Found(faults) => (faults, None),
    };
    let (planted, right) = (faults.len(), faults.iter().filter(|fault| fault.is_right()).count());
    let (recipe, parallel) = (recipe.to_owned(), parallel.to_string());
    let report = Planted { schema_version: 1, recipe, parallel, planted, right, faults, without_fault };
    match (context.format, &report.without_fault) {
        (Format::Json, _) => {}
        (Format::Text, Some(failed)) => print(failed, &[], sets, &mut context.out)?,
        (Format::Text, None) => table(&report, &mut context.out)?,
    }
    Ok((report.without_fault.is_none() && right == planted, Proven::Planted(report)))
}

fn table(report: &Planted, out: &mut Console) -> Result<(), Failure> {
    let Planted { recipe, parallel, planted, right, faults, .. } = report;
    writeln!(out, "{}  {planted} faults planted, judged in f64\n", paint(HEADING, format!("{recipe} {parallel}")))?;
    let mut table = Table::new(["kind", "planted fault", "found in", "first at", "explained as"]);
    for fault in faults {
        let style = if fault.is_right() { GOOD } else { BAD };
        let [stage, tensor, explanation] = match &fault.found {
            Some(found) => [found.stage.to_string(), found.tensor.clone(), found.explanation.clone()],
            None => [if fault.harmless { "harmless" } else { "missed" }.to_owned(), String::new(), String::new()],
        };
        let cells = [fault.operator.into(), fault.fault.clone().into(), Cell::styled(stage, style)];
        table.row(cells.into_iter().chain([tensor.into(), explanation.into()]));
    }
    writeln!(out, "{table}")?;
    let style = if right == planted { GOOD } else { BAD };
    writeln!(out, "{recipe} {parallel}: {}", paint(style, format!("{right} of {planted} judged right")))?;
    Ok(())
}

//! Prints a golden check.

use crate::Failure;
use crate::console::{BAD, DIM, GOOD, HEADING, WARN, paint};
use crate::excerpt::excerpt;
use crate::numbers::{Ratio, Small};
use crate::table::{Cell, Table, fitted, fitted_after};
use anstyle::Style;
use std::fmt;
use std::io::Write;
use zoo_golden::conditions::Difference;
use zoo_golden::report::{Divergence, StageReport};
use zoo_golden::{Precision, Report, Verdict};

/// Failed tensors that are listed under the table.
const LISTED: usize = 8;

/// Prints stages, the first divergence, differing conditions and the verdict; `sets` are the values of `--set`.
pub fn print(report: &Report, sets: &[String], out: &mut impl Write) -> Result<(), Failure> {
    let arithmetic = match report.dtype {
        Precision::F32 => "f32 (kernels)",
        Precision::F64 => "f64 (recipe)",
    };
    writeln!(out, "{}  {arithmetic} against {}\n", paint(HEADING, &report.recipe), report.golden)?;
    write!(out, "{}", stages(&report.stages, [">compared", ">floor"], &[]))?;
    let fused: usize = report.stages.iter().map(|stage| stage.fused).sum();
    if fused > 0 {
        let note =
            format!("{fused} module outputs are inside fused operators; the unfused run of this check covers them");
        writeln!(out, "{}", paint(DIM, fitted(&note)))?;
    }
    decided_in_f64(&report.stages, out)?;
    for stage in report.stages.iter().filter(|stage| stage.verdict == Verdict::Fail) {
        failures(stage, out)?;
    }
    if let Some(divergence) = &report.first_divergence {
        first_divergence(divergence, sets, out)?;
    }
    conditions(&report.conditions_differ, out)?;
    writeln!(out, "\n{}: {}", report.recipe, verdict_line(&report.stages, report.verdict))?;
    if report.baseline {
        let note = "zoo recorded this golden itself: it is a baseline, which detects regressions. It does not prove \
                    agreement with a reference framework";
        writeln!(out, "{}", paint(WARN, fitted(note)))?;
    }
    Ok(())
}

/// Prints the stages that f32 exceeds and f64 decides.
pub fn decided_in_f64(stages: &[StageReport], out: &mut impl Write) -> Result<(), Failure> {
    for stage in stages {
        if let Some(item) = &stage.in_f32 {
            let note = format!(
                "{}: up to {} floors apart in f32 ({}), which rounding alone can cause here: judged in f64",
                stage.stage,
                Ratio(item.ratio),
                item.name
            );
            writeln!(out, "{}", paint(DIM, fitted(&note)))?;
        }
    }
    Ok(())
}

fn style(verdict: Verdict) -> Style {
    match verdict {
        Verdict::Pass => GOOD,
        Verdict::Fail => BAD,
        Verdict::Partial => WARN,
        Verdict::Absent => DIM,
    }
}

/// One row per stage; `counted` and `floor` are the headings of the number of comparisons and of the limit. `covered`
/// is how much of each stage was compared, or empty.
pub fn stages(stages: &[StageReport], [counted, floor]: [&str; 2], covered: &[String]) -> Table {
    let column = (!covered.is_empty()).then_some(">covered");
    let columns = ["stage", counted].into_iter().chain(column);
    let mut table = Table::new(columns.chain(["worst", ">error", floor, ">ratio", ">median", "verdict"]));
    for (n, stage) in stages.iter().enumerate() {
        let worst = stage.worst.as_ref();
        let number = |text: Option<String>| Cell::from(text.unwrap_or_default());
        let compared = if stage.verdict == Verdict::Absent { String::new() } else { stage.tensors.to_string() };
        let covered = covered.get(n).map(|covered| Cell::from(covered.clone()));
        let row = [stage.stage.into(), compared.into()].into_iter().chain(covered);
        table.row(row.chain([
            worst.map(|item| item.name.clone()).unwrap_or_default().into(),
            number(worst.map(|item| Small(item.error).to_string())),
            number(worst.map(|item| Small(item.floor).to_string())),
            number(worst.map(|item| Ratio(item.ratio).to_string())),
            number(stage.median_ratio.map(|median| Ratio(median).to_string())),
            Cell::styled(stage.verdict, style(stage.verdict)),
        ]));
    }
    table
}

/// Why a stage failed, with its name; `name` may be in colour.
pub fn summary(stage: &StageReport, name: impl fmt::Display) -> String {
    match (stage.failed.len(), median(stage)) {
        (0, Some(median)) => format!("{name} failed: {median}"),
        (failed, _) => format!("{failed} of {} failed in {name}", stage.tensors),
    }
}

/// The median of a stage, if it exceeds its limit.
fn median(stage: &StageReport) -> Option<String> {
    let (median, limit) = stage.median_ratio.zip(stage.median_limit)?;
    Some(format!("median {} x floor, the limit is {limit}", Ratio(median)))
}

/// The failures of a stage.
pub fn failures(stage: &StageReport, out: &mut impl Write) -> Result<(), Failure> {
    let summary = summary(stage, paint(BAD, stage.stage));
    if stage.failed.is_empty() {
        writeln!(out, "\n{summary}")?;
        return Ok(());
    }
    writeln!(out, "\n{summary}:")?;
    for item in stage.failed.iter().take(LISTED) {
        match &item.note {
            Some(note) => writeln!(out, "  {}: {note}", item.name)?,
            None => {
                let (error, ratio) = (Small(item.error), Ratio(item.ratio));
                writeln!(out, "  {}: error {error}, {ratio} x floor", item.name)?;
            }
        }
    }
    if stage.failed.len() > LISTED {
        writeln!(out, "  {}", paint(DIM, format!("... and {} more", stage.failed.len() - LISTED)))?;
    }
    if let Some(median) = median(stage) {
        writeln!(out, "  {}", paint(DIM, median))?;
    }
    if let Some(ratio) = stage.would_pass_at.filter(|ratio| ratio.is_finite()) {
        writeln!(out, "  {}", paint(DIM, format!("would pass with a limit of {} x floor", Ratio(ratio))))?;
    }
    Ok(())
}

const HINT: &str = "hint:";

/// The first divergence, with the line of the recipe and hints.
pub fn first_divergence(divergence: &Divergence, sets: &[String], out: &mut impl Write) -> Result<(), Failure> {
    writeln!(out, "\n{} {}: {}", paint(BAD, "first divergence in"), divergence.stage, divergence.tensor)?;
    if let Some(node) = &divergence.node {
        let reach = match divergence.local {
            Some(true) => ", local: everything it depends on is proven",
            Some(false) => ", propagated: something it depends on is wrong already",
            None => "",
        };
        writeln!(out, "  node {node}{reach}")?;
    }
    if let Some(line) = &divergence.line {
        writeln!(out, "{}", indented(&excerpt(line, sets)))?;
    }
    if divergence.local != Some(true) && !divergence.suspects.is_empty() {
        let text = format!("suspects, nearest first: {}", divergence.suspects.join(", "));
        writeln!(out, "  {}", fitted_after(&text, 4))?;
    }
    for hint in &divergence.hints {
        let text = fitted_after(&format!("{HINT} {hint}"), 4);
        writeln!(out, "  {}", text.replacen(HINT, &paint(WARN, HINT), 1))?;
    }
    Ok(())
}

/// Conditions in which recipe and golden differ.
pub fn conditions(differences: &[Difference], out: &mut impl Write) -> Result<(), Failure> {
    if differences.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", paint(HEADING, "recipe and golden differ in"))?;
    for difference in differences {
        let (path, recipe, golden, line) = (&difference.path, &difference.recipe, &difference.golden, &difference.line);
        writeln!(out, "  {path}: recipe {recipe}, golden {golden} ({line})")?;
        if let Some(because) = &difference.declared {
            writeln!(out, "    {}", paint(DIM, format!("declared: {because}")))?;
        }
    }
    Ok(())
}

/// The verdict, with the failed stages.
pub fn verdict_line(stages: &[StageReport], verdict: Verdict) -> String {
    let judged = stages.iter().filter(|stage| stage.verdict != Verdict::Absent).count();
    let failed: Vec<String> =
        stages.iter().filter(|s| s.verdict == Verdict::Fail).map(|s| s.stage.to_string()).collect();
    let verdict = paint(style(verdict), verdict);
    match failed.as_slice() {
        [] => format!("{verdict}, {judged} stages"),
        names => format!("{verdict} in {}", names.join(", ")),
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

//! The verdict on a recording, for people and for CI systems.

use crate::Failure;
use crate::ci::{Case, Fault, Outcome};
use crate::console::{BAD, Console, DIM, HEADING, WARN, paint};
use crate::numbers::{Small, counted};
use crate::proof::report;
use std::io::Write;
use zoo_golden::{
    Stage, Verdict,
    judge::{Coverage, JudgeReport, Proposal, StepsReport},
};

/// Number of names to list.
const LISTED: usize = 12;

/// The test case of the names of the recording.
pub(super) fn names_case(unmatched: &[String], allowed: bool, first: bool) -> Case {
    let outcome = match unmatched.is_empty() || allowed {
        true => Outcome::Pass,
        false => Outcome::Fail(Fault {
            message: format!(
                "{} of the recording that the step does not have",
                counted(unmatched.len() as u64, "name")
            ),
            details: unmatched.join("\n"),
            place: None,
            first,
        }),
    };
    Case { name: "names".to_owned(), outcome }
}

/// The test case of what the recording lacks.
pub(super) fn coverage_case(incomplete: &[&Coverage], accepted: bool, verdict: Verdict) -> Case {
    let lacking: Vec<String> = incomplete.iter().copied().map(lack).collect();
    let outcome = match (lacking.is_empty(), accepted) {
        (true, _) => Outcome::Pass,
        (false, true) => Outcome::Absent(format!("not recorded, and accepted: {}", lacking.join(", "))),
        (false, false) => Outcome::Fail(Fault {
            message: format!("not recorded: {}", lacking.join(", ")),
            details: incomplete.iter().flat_map(|coverage| &coverage.missing).cloned().collect::<Vec<_>>().join("\n"),
            place: None,
            first: verdict == Verdict::Partial,
        }),
    };
    Case { name: "coverage".to_owned(), outcome }
}

/// What a stage lacks: `38 % of backward`.
pub(super) fn lack(coverage: &Coverage) -> String {
    match coverage.percent() {
        0 => format!("all of {}", coverage.stage),
        percent => format!("{} % of {}", 100 - percent, coverage.stage),
    }
}

/// Prints the verdict on several steps.
pub(super) fn steps(reports: &StepsReport, sets: &[String], out: &mut Console) -> Result<(), Failure> {
    for step in &reports.steps {
        writeln!(out, "{}", paint(HEADING, format!("step {}", step.step)))?;
        report(step, sets, out)?;
        writeln!(out)?;
    }
    let count = reports.steps.len();
    let summary = match (reports.verdict, reports.first_failed_step) {
        (_, Some(step)) => format!("{} in step {step}, the first of {count} that fails", paint(BAD, "fail")),
        (Verdict::Partial, None) => format!("{} in some of {count} steps: see above", paint(WARN, "partial")),
        (verdict, None) => format!("{verdict}, {count} steps"),
    };
    writeln!(out, "{}: {summary}", reports.recipe)?;
    Ok(())
}

/// Prints the verdict on a step.
pub(super) fn report(report: &JudgeReport, sets: &[String], out: &mut Console) -> Result<(), Failure> {
    let (recipe, arithmetic) = (paint(HEADING, &report.recipe), &report.arithmetic);
    writeln!(out, "{recipe}  {} ({}) in {arithmetic} against {}\n", report.recording, report.format, report.golden)?;
    let covered: Vec<String> = report.coverage.iter().map(|coverage| format!("{} %", coverage.percent())).collect();
    write!(out, "{}", report::stages(&report.stages, [">compared", ">floor"], &covered))?;
    notes(report, out)?;
    for stage in report.stages.iter().filter(|stage| !stage.failed.is_empty() || stage.median_limit.is_some()) {
        report::failures(stage, out)?;
    }
    if let Some(divergence) = &report.first_divergence {
        report::first_divergence(divergence, sets, out)?;
    }
    missing(&report.incomplete().collect::<Vec<_>>(), report.coverage_accepted, out)?;
    unmatched(report, out)?;
    writeln!(out, "\n{}: {}", report.recipe, verdict(report))?;
    Ok(())
}

/// Lines under the table.
fn notes(report: &JudgeReport, out: &mut Console) -> Result<(), Failure> {
    if !report.end_to_end.is_empty() {
        let off = report
            .end_to_end
            .iter()
            .map(|item| format!("{} {}", item.name.replace("@root#0", "output"), Small(item.error)));
        writeln!(out, "off the golden: {}", off.collect::<Vec<_>>().join(", "))?;
    }
    for (added, count) in &report.wrappers {
        let names = counted(*count as u64, "name");
        writeln!(out, "{}", paint(DIM, format!("read without `{added}`, which a wrapper adds: {names}")))?;
    }
    let not_compared: Vec<String> = report.not_compared.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if !not_compared.is_empty() {
        writeln!(out, "{}", paint(DIM, format!("not compared: {}", not_compared.join(", "))))?;
    }
    if let [first, rest @ ..] = report.not_finite.as_slice() {
        let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
        writeln!(out, "{}", paint(WARN, format!("not finite, as the recording says: first {first}{more}")))?;
    }
    if report.statistics_only > 0 {
        let note = format!(
            "{}: only maximum, minimum, mean and norm are compared. They cannot detect elements that changed places, \
             or an error that leaves all four unchanged. Errors are inherited, because operands are not known",
            counted(report.statistics_only as u64, "tensor") + " by statistics only"
        );
        writeln!(out, "{}", paint(WARN, note))?;
    }
    Ok(())
}

/// What the recording lacks.
pub(super) fn missing(incomplete: &[&Coverage], accepted: bool, out: &mut Console) -> Result<(), Failure> {
    for coverage in incomplete.iter().filter(|coverage| coverage.recorded > 0) {
        let (count, stage) = (coverage.missing.len(), coverage.stage);
        writeln!(out, "\n{count} of {} missing in {stage}:", coverage.of)?;
        for name in coverage.missing.iter().take(LISTED) {
            writeln!(out, "  {name}: is missing from the recording")?;
        }
        more(coverage.missing.len(), out)?;
    }
    let stages: Vec<String> = incomplete.iter().map(|coverage| coverage.stage.to_string()).collect();
    if !stages.is_empty() && !accepted {
        let way = format!("--allow-missing={} accepts that these are not recorded", stages.join(","));
        writeln!(out, "\n{}", paint(DIM, way))?;
    }
    Ok(())
}

/// Names that the step does not have.
pub(super) fn names(unmatched: &[String], allowed: bool, out: &mut Console) -> Result<(), Failure> {
    if unmatched.is_empty() {
        return Ok(());
    }
    let how = if allowed { paint(DIM, "allowed") } else { paint(BAD, "not allowed") };
    let what = counted(unmatched.len() as u64, "name");
    writeln!(out, "\n{what} of the recording that the step does not have ({how}; names.yaml can map them):")?;
    for name in unmatched.iter().take(LISTED) {
        writeln!(out, "  {name}")?;
    }
    more(unmatched.len(), out)
}

/// The same, with a proposal.
fn unmatched(report: &JudgeReport, out: &mut Console) -> Result<(), Failure> {
    names(&report.unmatched, report.unmatched_allowed, out)?;
    let yaml = names_yaml(&report.proposal);
    if !report.proposal.is_empty() {
        let note = "proposed names.yaml, by kind, shape and order; not used here. Check it, then pass it with --names \
                    (--propose-names FILE writes it):";
        writeln!(out, "\n{note}")?;
        for line in yaml.lines().take(LISTED) {
            writeln!(out, "  {line}")?;
        }
        more(yaml.lines().count(), out)?;
    }
    Ok(())
}

/// A proposal as names.yaml.
pub(super) fn names_yaml(proposal: &Proposal) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut lines = Vec::new();
    for (key, map) in [("modules", &proposal.modules), ("names", &proposal.names)] {
        if !map.is_empty() {
            lines.push(format!("{key}:"));
            lines.extend(map.iter().map(|(theirs, ours)| format!("  {}: {}", quoted(theirs), quoted(ours))));
        }
    }
    lines.extend(proposal.ambiguous.iter().map(|name| format!("# ambiguous: {}", quoted(name))));
    lines.join("\n") + "\n"
}

fn more(count: usize, out: &mut Console) -> Result<(), Failure> {
    if count > LISTED {
        writeln!(out, "  {}", paint(DIM, format!("... and {} more", count - LISTED)))?;
    }
    Ok(())
}

/// The last line.
fn verdict(report: &JudgeReport) -> String {
    let fails = |stage: Stage| report.stages.iter().any(|of| of.stage == stage && of.verdict == Verdict::Fail);
    let failed = report.stages.iter().any(|stage| stage.verdict == Verdict::Fail);
    let differs = report.first_divergence.is_some();
    match report.verdict {
        Verdict::Fail if !failed => format!("{}: names that the step does not have", paint(BAD, "fail")),
        Verdict::Fail if !differs => {
            let lacking: Vec<String> = report.incomplete().filter(|c| fails(c.stage)).map(lack).collect();
            format!("{}: {} is missing", paint(BAD, "fail"), lacking.join(", "))
        }
        Verdict::Partial => {
            let lacking: Vec<String> = report.incomplete().map(lack).collect();
            let accepted = if report.coverage_accepted { ", which is accepted" } else { "" };
            format!(
                "{}: what is recorded passes; not recorded: {}{accepted}",
                paint(WARN, "partial"),
                lacking.join(", ")
            )
        }
        Verdict::Pass | Verdict::Fail | Verdict::Absent => report::verdict_line(&report.stages, report.verdict),
    }
}

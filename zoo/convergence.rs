//! The verdict on several runs of a recipe.

use crate::ci::{Case, Fault, Outcome, Suite};
use crate::console::{BAD, DIM, GOOD, HEADING, WARN, paint};
use crate::context::Context;
use crate::numbers::{Seconds, counted};
use crate::options::Format;
use crate::table::{Cell, Table};
use crate::{Exit, Failure};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use zoo_train::convergence::{self, Rules};
use zoo_train::event::{Convergence, ConvergenceVerdict, RunScore};
use zoo_train::{Event, RunRecord};

/// The form of the verdict in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A separate document.
    Report,
    /// The last event of a series of trainings.
    LastLine,
}

/// Judges the runs in these folders and prints the verdict.
///
/// # Errors
/// Runs that do not form a set, or that cannot be read.
pub fn judge(folders: &[PathBuf], rules: &Rules, form: Form, context: &mut Context) -> Result<Exit, Failure> {
    let records = folders.iter().map(|folder| RunRecord::read(folder)).collect::<Result<Vec<_>, _>>()?;
    let verdict = convergence::judge(&records, rules)?;
    context.ci.record(suite(&verdict));
    let passed = verdict.verdict == ConvergenceVerdict::Pass;
    match (context.format, form) {
        (Format::Text, Form::Report) => print(&verdict, &mut context.out)?,
        (Format::Text, Form::LastLine) => {
            writeln!(context.out)?;
            print(&verdict, &mut context.out)?;
        }
        (Format::Json, Form::Report) => context.out.json(&verdict)?,
        (Format::Json, Form::LastLine) => context.out.json(&Event::Verdict(Box::new(verdict)))?,
    }
    Ok(if passed { Exit::Pass } else { Exit::Missed })
}

fn suite(verdict: &Convergence) -> Suite {
    let fault = || Fault {
        message: format!("{}: {}{}", word(verdict.verdict), verdict.because, more(verdict)),
        details: figures(verdict).join("\n"),
        first: true,
        ..Fault::default()
    };
    let passed = verdict.verdict == ConvergenceVerdict::Pass;
    let outcome = if passed { Outcome::Pass } else { Outcome::Fail(fault()) };
    let seconds: f64 = verdict.runs.iter().filter_map(|run| run.seconds).sum();
    Suite {
        name: format!("{} {} runs", verdict.recipe, verdict.runs.len()),
        cases: vec![Case { name: format!("convergence {}", verdict.metric), outcome }],
        time: Duration::try_from_secs_f64(seconds).unwrap_or_default(),
    }
}

fn word(verdict: ConvergenceVerdict) -> &'static str {
    match verdict {
        ConvergenceVerdict::Pass => "pass",
        ConvergenceVerdict::Missed => "missed",
        ConvergenceVerdict::Inconclusive => "inconclusive",
    }
}

/// The number of further runs that are needed, if the verdict is still open.
fn more(verdict: &Convergence) -> String {
    match (verdict.verdict, verdict.more_runs) {
        (ConvergenceVerdict::Inconclusive, Some(1)) => ", 1 more run needed".to_owned(),
        (ConvergenceVerdict::Inconclusive, Some(more)) => format!(", {more} more runs needed"),
        (ConvergenceVerdict::Inconclusive, None) => {
            "; more runs would not settle it: use a wider margin, or more runs of the reference".to_owned()
        }
        _ => String::new(),
    }
}

/// Prints the runs, the test and the verdict.
fn print(verdict: &Convergence, out: &mut impl Write) -> Result<(), Failure> {
    let metric = verdict.metric;
    writeln!(out, "{}  {metric} of {}\n", paint(HEADING, &verdict.recipe), runs(verdict.runs.len()))?;
    let heading = format!(">{metric}");
    let mut table = Table::new(["run", ">seed", "golden", &heading, ">time", ""]);
    for run in &verdict.runs {
        let achieved = run.achieved.map(|value| metric.format(value)).unwrap_or_default();
        table.row([
            run.folder.display().into(),
            run.seed.into(),
            run.golden.name().into(),
            achieved.into(),
            run.seconds.map(|seconds| Seconds(seconds).to_string()).unwrap_or_default().into(),
            remark(run),
        ]);
    }
    writeln!(out, "{table}")?;
    for line in figures(verdict) {
        writeln!(out, "{line}")?;
    }
    let style = match verdict.verdict {
        ConvergenceVerdict::Pass => GOOD,
        ConvergenceVerdict::Missed => BAD,
        ConvergenceVerdict::Inconclusive => WARN,
    };
    let verdict_word = paint(style, word(verdict.verdict));
    writeln!(out, "\n{}: {verdict_word}, {}{}", verdict.recipe, verdict.because, more(verdict))?;
    Ok(())
}

fn remark(run: &RunScore) -> Cell {
    match &run.failed {
        Some(why) => Cell::styled(format!("failed {why}"), BAD),
        None if run.outlier => Cell::styled("outlier (Grubbs, 5 %), but counted", WARN),
        None => Cell::styled("", DIM),
    }
}

/// The figures on which the verdict is based, one per line.
fn figures(verdict: &Convergence) -> Vec<String> {
    let metric = verdict.metric;
    let mut lines = Vec::new();
    if let Some(mean) = verdict.mean {
        let spread =
            verdict.sigma.map(|sigma| format!(", sigma {}", metric.format_difference(sigma))).unwrap_or_default();
        let n = verdict.runs.iter().filter(|run| run.achieved.is_some()).count();
        lines.push(format!("runs       mean {}{spread}, n {n}", metric.format(mean)));
    }
    if let Some(reference) = &verdict.reference {
        let (mean, sigma) = (metric.format(reference.mean), metric.format_difference(reference.sigma));
        lines.push(format!("reference  mean {mean}, sigma {sigma}, n {}: {}", reference.runs, reference.source));
    }
    lines.push(format!("H0         {}", verdict.hypotheses.null));
    lines.push(format!("H1         {}", verdict.hypotheses.alternative));
    if let Some(test) = &verdict.test {
        let statistic = test.statistic.map_or("no spread".to_owned(), |t| format!("t {t:.2}"));
        let degrees = test.degrees_of_freedom;
        lines.push(format!(
            "test       {statistic}, {degrees} degrees of freedom, p {}, alpha {}",
            chance(test.p),
            verdict.alpha
        ));
    }
    if let Some(spread) = &verdict.spread {
        let (f, p) = (spread.statistic, chance(spread.p));
        lines.push(format!("spread     F {f:.2}, p {p}: the variance of these runs over that of the reference's"));
    }
    if let Some(power) = verdict.power {
        let n = runs(verdict.runs.len());
        lines.push(format!("power      {:.0} %: chance that {n} as good as the reference would pass", 100.0 * power));
    }
    for goal in &verdict.also {
        let mean = goal.mean.map_or("not measured".to_owned(), |mean| goal.metric.format(mean));
        let (name, met) = (goal.metric, if goal.met { "met" } else { "missed" });
        lines.push(format!("also       {name} mean {mean}, target {}: {met}", goal.metric.format(goal.target)));
    }
    lines
}

fn runs(n: usize) -> String {
    counted(n as u64, "run")
}

/// A probability with two significant digits.
fn chance(p: f64) -> String {
    if p < 0.001 { format!("{p:.1e}") } else { format!("{p:.3}") }
}

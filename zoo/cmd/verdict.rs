//! `zoo verdict`: test whether runs with different seeds converge as they should.

use super::Context;
use crate::ci::{Case, Fault, JunitArgs, Outcome, Suite};
use crate::cli::Format;
use crate::complete;
use crate::console::{BAD, DIM, GOOD, HEADING, WARN, paint};
use crate::numbers::{Seconds, counted};
use crate::table::{Align, Cell, Table};
use crate::{Exit, Failure};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use zoo_train::convergence::{self, Rules};
use zoo_train::elsewhere::Elsewhere;
use zoo_train::event::{Convergence, ConvergenceVerdict, RunScore};
use zoo_train::{Event, GoldenVerdict, RunRecord};

/// Test whether runs of one recipe with different seeds converge like the reference.
///
/// A one-sided test of non-inferiority (Student's t-test with pooled variance). H0: the mean of such runs is worse than
/// the mean of the reference by the margin or more. The reference is --against, or `target.reference` of the recipe;
/// without either, the mean is tested against the target itself. Every run counts: outliers are marked but never
/// dropped, and a failed run makes the set fail. The exit code is 0 for pass, and 1 for missed or inconclusive.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo verdict runs/resnet50-mini-1 runs/resnet50-mini-2 runs/resnet50-mini-3
  zoo verdict runs/seeds/*
  zoo verdict runs/seeds/* --margin 1% --alpha 0.01
  zoo verdict runs/seeds/* --against benches/real/records.jsonl --margin 0.3%
  zoo verdict runs/seeds/* --format json | jq '.verdict, .more_runs'")]
pub struct Args {
    /// Run folders
    #[arg(value_name = "RUN", add = complete::runs(), required = true)]
    runs: Vec<PathBuf>,
    /// How much worse the mean of the runs may be than the mean of the reference, as a fraction or with %; by default
    /// `target.margin` of the recipe
    #[arg(long, value_name = "BY", value_parser = difference)]
    margin: Option<f64>,
    /// Compare with trainings of another framework instead of `target.reference`: a file with one JSON object per line,
    /// as benches/real writes it
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Significance level: the probability that runs pass although they are worse than allowed
    #[arg(long, value_name = "P", default_value_t = 0.05, value_parser = level)]
    alpha: f64,
    #[command(flatten)]
    junit: JunitArgs,
}

/// Parses a difference of two values of a metric, optionally in percent.
fn difference(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
    let value = number.trim().parse::<f64>().map(|number| number * unit);
    value
        .ok()
        .filter(|difference| difference.is_finite() && *difference >= 0.0)
        .ok_or_else(|| "expected a number of at least 0, optionally with %".into())
}

/// Parses a level of significance.
fn level(text: &str) -> Result<f64, String> {
    let level = text.parse::<f64>().ok().filter(|level| *level > 0.0 && *level < 0.5);
    level.ok_or_else(|| "expected a probability above 0 and below 0.5".to_owned())
}

/// The form of the verdict in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A separate document.
    Report,
    /// The last event of a series of trainings.
    LastLine,
}

/// Judges; missed unless the runs pass.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let end = rules(args).and_then(|rules| judge(&args.runs, &rules, Form::Report, context));
    if let Some(file) = &args.junit.junit {
        context.ci.write_junit("verdict", file, &end)?;
    }
    end
}

fn rules(args: &Args) -> Result<Rules, Failure> {
    let against = args.against.as_deref().map(Elsewhere::read).transpose()?;
    Ok(Rules { alpha: args.alpha, margin: args.margin, against })
}

/// Judges the runs in these folders and prints the verdict.
///
/// # Errors
/// Runs that do not form a set, or that cannot be read.
pub(super) fn judge(folders: &[PathBuf], rules: &Rules, form: Form, context: &mut Context) -> Result<Exit, Failure> {
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
pub(super) fn print(verdict: &Convergence, out: &mut impl Write) -> Result<(), Failure> {
    let metric = verdict.metric;
    writeln!(out, "{}  {metric} of {}\n", paint(HEADING, &verdict.recipe), runs(verdict.runs.len()))?;
    let mut table = Table::new([
        ("run", Align::Left),
        ("seed", Align::Right),
        ("golden", Align::Left),
        (metric.name(), Align::Right),
        ("time", Align::Right),
        ("", Align::Left),
    ]);
    for run in &verdict.runs {
        let achieved = run.achieved.map(|value| metric.format(value)).unwrap_or_default();
        table.row([
            run.folder.display().into(),
            run.seed.into(),
            golden(run.golden).into(),
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

pub(super) fn golden(verdict: GoldenVerdict) -> &'static str {
    match verdict {
        GoldenVerdict::Pass => "pass",
        GoldenVerdict::Baseline => "baseline",
        GoldenVerdict::Fail => "fail",
        GoldenVerdict::Absent => "absent",
    }
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

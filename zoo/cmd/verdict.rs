//! `zoo verdict`: test whether runs with different seeds converge as they should.

use crate::complete;
use crate::context::Context;
use crate::convergence;
use crate::options::JunitArgs;
use crate::output;
use crate::{Exit, Failure};
use std::path::PathBuf;
use zoo_train::convergence::Rules;
use zoo_train::elsewhere::Elsewhere;

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

/// Judges; missed unless the runs pass.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let judge = |rules: Rules, context: &mut Context| {
        convergence::judge(&args.runs, &rules, convergence::Form::Report, context)
    };
    output::judged("verdict", &args.junit, context, |context| judge(rules(args)?, context))
}

fn rules(args: &Args) -> Result<Rules, Failure> {
    let against = args.against.as_deref().map(Elsewhere::read).transpose()?;
    Ok(Rules { alpha: args.alpha, margin: args.margin, against })
}

//! `zoo profile R --measured PATH`: the step as a profiler measured it, beside the predicted one.

use super::report::Report;
use crate::console::{Console, DIM, paint};
use crate::numbers::percent;
use crate::table::Table;
use crate::{Exit, Failure};
use std::io::Write;
use std::path::PathBuf;
use zoo_graph::Bytes;
use zoo_npu::{Device, Measured, Profile, Work};
use zoo_recipe::Recipe;

/// Lines and operators that are listed; `--format json` has all.
const LISTED: usize = 25;

/// Times of a step that is shorter than this, in ms, have a digit more.
const SHORT: f64 = 10.0;

/// A measured step.
#[derive(Debug, clap::Args)]
pub(super) struct MeasuredArgs {
    /// Hold what a profiler measured against the prediction, line by line: a folder that a program of `zoo emit` wrote
    /// with --profile, a trace of PyTorch (also .gz), or kernel_details.csv, op_summary.csv or trace_view.json of
    /// Ascend
    #[arg(long, value_name = "PATH", conflicts_with_all = ["what_if", "against", "trace"])]
    measured: Option<PathBuf>,
    /// Another recording of the same step, before a change: its step is told, and both are on the page of --html
    #[arg(long, value_name = "PATH", requires = "measured")]
    before: Option<PathBuf>,
    /// Exit code 1 if a cause costs more than this share of the measured step, in %
    #[arg(long, value_name = "PERCENT", requires = "measured", value_parser = percentage)]
    fail_above: Option<f64>,
}

fn percentage(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "a number from 0 to 100".to_owned())
}

impl MeasuredArgs {
    /// Reads the files and holds them against the prediction, if any is named.
    /// The recording before a change comes second.
    pub(super) fn read(
        &self,
        recipe: &Recipe,
        device: &Device,
        profile: &Profile,
        work: Work,
    ) -> Result<Vec<Measured>, Failure> {
        let hold = |path: &PathBuf| {
            let recording = zoo_measured::open(path)?;
            Ok(zoo_npu::measured(&recording, recipe, device, profile, work)?)
        };
        self.measured.iter().chain(&self.before).map(hold).collect()
    }

    /// Whether what was found is acceptable.
    pub(super) fn verdict(&self, measured: &Measured) -> Exit {
        let most = measured.causes.iter().map(|cause| 100.0 * cause.share).fold(0.0, f64::max);
        if self.fail_above.is_some_and(|limit| most > limit) { Exit::Missed } else { Exit::Pass }
    }
}

/// The text output.
pub(super) fn print(measured: &Measured, report: &Report, out: &mut Console) -> Result<(), Failure> {
    writeln!(out, "{}", report.heading())?;
    let steps = if measured.steps == 1 { "1 step".to_owned() } else { format!("the mean of {} steps", measured.steps) };
    writeln!(out, "measured  {:.1} ms, {steps} of {}", measured.step_ms, measured.file)?;
    if let Some(before) = &report.before {
        let change = 100.0 * (measured.step_ms / before.step_ms - 1.0);
        writeln!(out, "before    {:.1} ms of {}: {change:+.1} % since then", before.step_ms, before.file)?;
    }
    writeln!(out, "predicted {:.1} ms", measured.predicted_ms)?;
    let found = percent(measured.matched_share);
    writeln!(out, "matched   {found} of the time of kernels, without collectives")?;
    if let Some(bytes) = measured.peak_memory_bytes {
        writeln!(out, "memory    {} measured, {} predicted", Bytes(bytes), Bytes(report.peak_memory_bytes))?;
    }
    for sentence in &measured.absent {
        writeln!(out, "{}", paint(DIM, format!("absent    {sentence}")))?;
    }
    let digits = if measured.step_ms < SHORT { 3 } else { 2 };
    let cell = |ms: f64| format!("{ms:.digits$}");
    if !measured.causes.is_empty() {
        let mut table = Table::new(["cause", "line", ">ms", ">share", "evidence"]);
        for cause in &measured.causes {
            table.row([
                cause.reason.name().into(),
                cause.line.as_deref().unwrap_or_default().into(),
                cell(cause.ms).into(),
                percent(cause.share).into(),
                (&cause.evidence).into(),
            ]);
        }
        write!(out, "\n{table}")?;
    }
    let mut table =
        Table::new(["line", "phase", ">ms", ">share", ">predicted", ">ratio", "operators, with kernels per step"]);
    let ratio = |value: f64| format!("{value:.2}");
    let lines = measured.lines.iter().filter(|line| line.measured_ms > 0.0);
    for line in lines.clone().take(LISTED) {
        table.row([
            (&line.line).into(),
            line.phase.to_string().into(),
            cell(line.measured_ms).into(),
            percent(line.measured_ms / measured.step_ms).into(),
            cell(line.predicted_ms).into(),
            line.ratio.map(ratio).unwrap_or_default().into(),
            format!("{}{}", line.operators.join(", "), count(line.kernels)).into(),
        ]);
    }
    let (shown, all): (f64, f64) =
        (lines.clone().take(LISTED).map(|l| l.measured_ms).sum(), lines.clone().map(|l| l.measured_ms).sum());
    let mut sum = |name: &str, phase: &str, what: &str, number: f64, ms: f64| {
        table.row([
            name.into(),
            phase.into(),
            cell(ms).into(),
            percent(ms / measured.step_ms).into(),
            "".into(),
            "".into(),
            format!("{what}{}", count(number)).into(),
        ]);
    };
    let number = lines.count();
    if number > LISTED {
        sum("", "", &format!("{} more", number - LISTED), 0.0, all - shown);
    }
    for rest in measured.rest.iter().take(LISTED / 2) {
        let phase = rest.phase.map(|phase| phase.to_string()).unwrap_or_default();
        let operator = format!("not in the recipe: {}", rest.operator);
        sum(rest.line.as_deref().unwrap_or_default(), &phase, &operator, rest.kernels, rest.ms);
    }
    let others: f64 = measured.rest.iter().skip(LISTED / 2).map(|rest| rest.ms).sum();
    if measured.rest.len() > LISTED / 2 {
        let more = format!("not in the recipe: {} more", measured.rest.len() - LISTED / 2);
        sum("", "", &more, 0.0, others);
    }
    let links = &measured.collectives;
    if links.kernels > 0.0 {
        sum("", "", "collectives that nothing hides", links.kernels, links.measured_ms);
    }
    for gap in &measured.gaps {
        sum("", "", &format!("gap: {}", gap.reason), gap.gaps, gap.ms);
    }
    sum("", "", "the step", 0.0, measured.step_ms);
    write!(out, "\n{table}")?;
    Ok(())
}

/// A number per step, in parentheses, with a decimal if there are few.
fn count(number: f64) -> String {
    match number {
        0.0 => String::new(),
        _ if number.fract() == 0.0 || number >= 10.0 => format!(" ({number:.0})"),
        _ => format!(" ({number:.1})"),
    }
}

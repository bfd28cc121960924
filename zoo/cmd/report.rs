//! `zoo report`: compare runs.

use crate::complete;
use crate::console::{BAD, DIM, GOOD, HEADING, paint};
use crate::context::Context;
use crate::numbers::Seconds;
use crate::options::Format;
use crate::output;
use crate::table::{Cell, Table};
use crate::{Exit, Failure};
use std::io::Write;
use std::path::PathBuf;
use tracing::info;
use zoo_recipe::schema::Metric;
use zoo_train::RunRecord;
use zoo_train::elsewhere::Elsewhere;
use zoo_train::report::{Comparison, compare, results};

/// Compare runs: results, time, differing settings, and curves.
///
/// Prints tables. With --html, writes one page without scripts or external resources. For a single run, report.html in
/// its folder is also rewritten.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo report runs/resnet50-mini-1 runs/resnet50-mini-2
  zoo report runs/* --html comparison.html
  zoo report runs/resnet50-mini-1                        rewrite its report.html
  zoo report runs/* --format json | jq '.settings'
  zoo report runs/* --against pytorch.jsonl --markdown docs/results.md")]
pub struct Args {
    /// Run folders
    #[arg(value_name = "RUN", add = complete::runs(), required = true)]
    runs: Vec<PathBuf>,
    /// Write the comparison as an HTML page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a Markdown table to this file: for each training the published result, mean and deviation over seeds, and
    /// time
    #[arg(long, value_name = "FILE", conflicts_with = "html")]
    markdown: Option<PathBuf>,
    /// Add trainings of other frameworks to --markdown: a file with one JSON object per line, as benches/real writes it
    #[arg(long, value_name = "FILE", requires = "markdown")]
    against: Option<PathBuf>,
    /// A paragraph of the page of --markdown, for example what is special about the data
    #[arg(long, value_name = "TEXT", requires = "markdown")]
    note: Option<String>,
}

/// Compares and prints.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let records = args.runs.iter().map(|folder| RunRecord::read(folder)).collect::<Result<Vec<_>, _>>()?;
    if let Some(file) = &args.markdown {
        let elsewhere = args.against.as_deref().map_or(Ok(Vec::new()), Elsewhere::read)?;
        output::write_beside(file, &results(&records, &elsewhere, args.note.as_deref())?, context)?;
        return Ok(Exit::Pass);
    }
    let comparison = compare(&records)?;
    if let Some(file) = &args.html {
        output::write_beside(file, &comparison.page(&records, Vec::new())?, context)?;
        if output::is_stdout(file) {
            return Ok(Exit::Pass);
        }
    }
    if let [run] = records.as_slice() {
        info!("page of the run: {}", zoo_train::rewrite_report(run)?.display());
    }
    match context.format {
        Format::Json => context.out.json(&comparison)?,
        Format::Text => print(&comparison, &mut context.out)?,
    }
    Ok(Exit::Pass)
}

fn print(comparison: &Comparison, out: &mut impl Write) -> Result<(), Failure> {
    let mut table =
        Table::new(["run", "recipe", ">seed", "golden", ">reached", ">target", "", ">loss", ">time", ">samples/s"]);
    for run in &comparison.runs {
        let metric = run.metric.map(Metric::name).unwrap_or_default();
        let shown = |value| run.metric.map(|metric| metric.format(value)).unwrap_or_default();
        let verdict = match (run.met, run.state) {
            (Some(true), _) => Cell::styled("met", GOOD),
            (Some(false), _) => Cell::styled("missed", BAD),
            (None, "finished") => "".into(),
            (None, state) => Cell::styled(state, BAD),
        };
        table.row([
            run.folder.display().into(),
            run.recipe.as_str().into(),
            run.seed.into(),
            run.golden.name().into(),
            run.achieved.map(|value| format!("{metric} {}", shown(value))).unwrap_or_default().into(),
            run.target.map(shown).unwrap_or_default().into(),
            verdict,
            run.loss.map(|loss| format!("{loss:.3}")).unwrap_or_default().into(),
            run.seconds.map(|seconds| Seconds(seconds).to_string()).unwrap_or_default().into(),
            run.images_per_s.map(|speed| format!("{speed:.0}")).unwrap_or_default().into(),
        ]);
    }
    write!(out, "{table}")?;
    if comparison.runs.len() < 2 {
        return Ok(());
    }
    writeln!(out, "\n{}", paint(HEADING, "differences"))?;
    if comparison.settings.is_empty() {
        writeln!(out, "  none: the settings and the seed are the same")?;
    }
    for setting in &comparison.settings {
        let values = setting.values.iter().map(|value| value.as_deref().unwrap_or("(absent)"));
        writeln!(out, "  {}  {}", setting.path, paint(DIM, values.collect::<Vec<_>>().join(" | ")))?;
    }
    Ok(())
}

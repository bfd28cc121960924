//! `zoo judge --parallel`: steps that several ranks recorded.

use super::{args::Args, print};
use crate::console::{BAD, Console, DIM, WARN, paint};
use crate::context::Context;
use crate::memory::beyond_now;
use crate::options::Format;
use crate::proof::{
    cases::{self, Checked},
    report::verdict_line,
    split::{heading, name_of, print as print_split},
};
use crate::{Exit, Failure};
use std::io::Write;
use std::time::Instant;
use zoo_golden::{
    Golden, Stage, Verdict,
    foreign::{Names, RankRecordings},
    split::{self, JUDGE_PHASES, RecordedSplit, SplitOptions, judge_split},
};
use zoo_recipe::{Loaded, Parallel};

/// What to judge.
pub(super) struct Wanted<'a> {
    pub args: &'a Args,
    pub parallel: &'a Parallel,
    /// Samples per step.
    pub batch: usize,
    pub names: &'a Names,
    pub allow_missing: &'a [Stage],
}

/// Judges; missed if something differs.
pub(super) fn run(wanted: &Wanted<'_>, loaded: &Loaded, context: &mut Context) -> Result<Exit, Failure> {
    let Wanted { args, parallel, batch, names, allow_missing } = *wanted;
    let (recipe, sets) = (&loaded.recipe, &args.recipe.change.sets);
    if !matches!(args.arithmetic.as_str(), "f32" | "fp32") {
        let message = format!("steps of several ranks are judged in f32, and not in {}", args.arithmetic);
        return Err(Failure::Usage(message));
    }
    let golden = args.golden.as_deref().map(Golden::read).transpose()?;
    let options = SplitOptions::recorded(batch, 1).of_golden(golden);
    let mesh = parallel.mesh(options.batch).map_err(Failure::Usage)?;
    let recordings = RankRecordings::open(&args.recording, names, &mesh)?;
    let options = SplitOptions { steps: recordings.steps.len(), ..options };
    let needed = beyond_now(split::memory(recipe, parallel, &options)?);
    let what = format!("judging {parallel} of {}", recipe.name);
    args.memory
        .expect(&what, needed, |_| "record with a smaller --batch, or --set for a smaller network".to_owned())?;
    let accepted = split::Wanted { loss_scale: args.loss_scale, allow_unmatched: args.allow_unmatched, allow_missing };
    let mut progress = context.progress.named(JUDGE_PHASES, &recipe.name);
    let begun = Instant::now();
    let path = args.recording.display().to_string();
    let report = judge_split(recipe, parallel, &options, (&path, &recordings), &accepted, &mut progress)?;
    drop(progress);
    let (name, time) = (format!("{} recorded", name_of(&report.split)), begun.elapsed());
    let mut suite = cases::suite(Checked { name, file: &loaded.path, sets, time }, &report.split.stages, None)?;
    let (unmatched, allowed) = (&report.unmatched, report.unmatched_allowed);
    suite.cases.push(print::names_case(unmatched, allowed, report.split.first_divergence.is_none()));
    let lacking = report.incomplete().collect::<Vec<_>>();
    suite.cases.push(print::coverage_case(&lacking, report.coverage_accepted, report.split.verdict));
    context.ci.record(suite);
    match context.format {
        Format::Json => context.out.json(&report)?,
        Format::Text => text(&report, sets, &mut context.out)?,
    }
    Ok(if report.is_accepted() { Exit::Pass } else { Exit::Missed })
}

fn text(report: &RecordedSplit, sets: &[String], out: &mut Console) -> Result<(), Failure> {
    let (split, steps) = (&report.split, report.steps);
    let count = if steps == 1 { "a step".to_owned() } else { format!("{steps} steps") };
    let (ranks, batch, path) = (split.ranks, split.batch, &report.recording);
    writeln!(out, "{}  {path}: {count} of {ranks} ranks, batch {batch}, against one device in f64\n", heading(split))?;
    let covered = |stage: Stage| report.coverage.iter().find(|coverage| coverage.stage == stage);
    let covered =
        split.stages.iter().map(|of| covered(of.stage).map_or(String::new(), |c| format!("{} %", c.percent())));
    print_split(split, &covered.collect::<Vec<_>>(), sets, out)?;
    let others: Vec<String> = report.not_compared.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if !others.is_empty() {
        writeln!(out, "{}", paint(DIM, format!("not compared: {}", others.join(", "))))?;
    }
    let lacking: Vec<_> = report.incomplete().collect();
    print::missing(&lacking, report.coverage_accepted, out)?;
    print::names(&report.unmatched, report.unmatched_allowed, out)?;
    let unknown = !report.unmatched.is_empty() && !report.unmatched_allowed;
    let verdict = match split.verdict {
        Verdict::Partial => {
            let accepted = if report.coverage_accepted { ", which is accepted" } else { "" };
            let lacking = lacking.into_iter().map(print::lack).collect::<Vec<_>>().join(", ");
            format!("{}: what is recorded passes; not recorded: {lacking}{accepted}", paint(WARN, "partial"))
        }
        Verdict::Fail if unknown && split.first_divergence.is_none() => {
            format!("{}: names that the step does not have", paint(BAD, "fail"))
        }
        verdict => verdict_line(&split.stages, verdict),
    };
    writeln!(out, "\n{}: {verdict}", name_of(split))?;
    Ok(())
}

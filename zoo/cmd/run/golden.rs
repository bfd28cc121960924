//! The golden check before a training.

use super::before;
use crate::Failure;
use crate::ci::Suite;
use crate::console::{BAD, GOOD, WARN, paint};
use crate::context::Context;
use crate::memory::MemoryArgs;
use crate::numbers::Seconds;
use crate::options::Format;
use crate::proof;
use crate::proof::cases::{self, Checked};
use std::time::Instant;
use tracing::info;
use zoo_golden::{GoldenError, Precision};
use zoo_recipe::Loaded;
use zoo_train::{Event, GoldenVerdict};

/// The result of the golden check before a training.
pub(super) struct Proof {
    /// The verdict.
    pub verdict: GoldenVerdict,
    /// The check, if there was one.
    pub event: Option<Event>,
}

impl Proof {
    /// The result if there is no check.
    pub(super) fn absent() -> Self {
        Self { verdict: GoldenVerdict::Absent, event: None }
    }
}

/// Checks the recipe as written, with the kernels that `loaded` trains with, and prints the result.
///
/// Profile and `--set` change sizes, schedules and data, for which there is no golden. So the recipe as written is
/// proven, and the changes of this training are listed next to the verdict.
pub(super) fn prove(
    name: &str,
    profile: Option<&str>,
    loaded: &Loaded,
    memory: MemoryArgs,
    context: &mut Context,
) -> Result<Proof, Failure> {
    let mut written = context.catalog()?.load(name, None, &[])?;
    written.recipe.engine = loaded.recipe.engine.clone();
    let begun = Instant::now();
    let report = match proof::check(&written, None, Precision::F32, memory, context) {
        Ok(report) => report,
        Err(error @ Failure::GoldenNotFound { .. }) => return Err(Failure::Unproven(Box::new(error))),
        Err(error @ Failure::Golden(GoldenError::Absent { .. })) => {
            // How one is made is for those who want one: `zoo check` says it.
            info!(
                "golden: {}: nothing proves this step (`zoo check {name}` says how to make one)",
                paint(WARN, "absent")
            );
            context.ci.record(Suite::absent(format!("{} golden", written.recipe.name), error.to_string()));
            return Ok(Proof::absent());
        }
        Err(other) => return Err(other),
    };
    let kind = if report.baseline { "baseline" } else { "golden" };
    let name = format!("{} {kind}", report.recipe);
    let checked = Checked { name, file: &written.path, sets: &[], time: begun.elapsed() };
    context.ci.record(cases::suite(checked, &report.stages, report.first_divergence.as_ref())?);
    let mut differs: Vec<String> = profile
        .map(|profile| format!("profile {profile}"))
        .into_iter()
        .chain(loaded.overridden.iter().map(ToString::to_string))
        .collect();
    differs.dedup();
    let event = Event::Golden(Box::new(before::golden(&report, differs.clone(), begun.elapsed())));
    if context.format == Format::Json {
        context.out.json(&event)?;
    }
    if !report.passed() {
        if context.format == Format::Text {
            proof::report::print(&report, &[], &mut context.out)?;
        }
        return Ok(Proof { verdict: GoldenVerdict::Fail, event: Some(event) });
    }
    let but = if differs.is_empty() { String::new() } else { format!("; this run changes {}", differs.join(", ")) };
    let time = Seconds(begun.elapsed().as_secs_f64());
    let (verdict, golden) =
        (if report.baseline { GoldenVerdict::Baseline } else { GoldenVerdict::Pass }, &report.golden);
    let only = if report.baseline {
        ", a baseline that zoo recorded itself: unchanged since then, but not compared with a reference framework"
    } else {
        ""
    };
    info!("golden: {} in {time}: the recipe as written, against {golden}{only}{but}", word(verdict));
    Ok(Proof { verdict, event: Some(event) })
}

/// The verdict as a coloured word.
pub(super) fn word(verdict: GoldenVerdict) -> String {
    let style = match verdict {
        GoldenVerdict::Pass => GOOD,
        GoldenVerdict::Fail => BAD,
        GoldenVerdict::Baseline | GoldenVerdict::Absent => WARN,
    };
    paint(style, verdict.name())
}

//! A golden check as test cases for CI systems: one per stage.

use super::report;
use crate::Failure;
use crate::ci::{Case, Fault, Outcome, Position, Suite};
use crate::numbers::{Ratio, Small};
use anstream::adapter::strip_str;
use std::path::Path;
use std::time::Duration;
use zoo_golden::report::{Divergence, StageReport};
use zoo_golden::{
    Verdict,
    mutants::{Outcome as Planted, Planting},
};

/// The checked recipe.
pub struct Checked<'a> {
    /// The recipe and the arithmetic.
    pub name: String,
    /// The recipe's file, for faults without a known line.
    pub file: &'a Path,
    /// The values of `--set`.
    pub sets: &'a [String],
    /// Duration of the check.
    pub time: Duration,
}

/// A case per stage.
///
/// # Errors
/// None in practice: the text is written to memory.
pub fn suite(checked: Checked<'_>, stages: &[StageReport], divergence: Option<&Divergence>) -> Result<Suite, Failure> {
    let failed = |stage: &&StageReport| stage.verdict == Verdict::Fail;
    let begins = divergence.map(|d| d.stage).or(stages.iter().find(failed).map(|stage| stage.stage));
    let mut cases = Vec::new();
    for stage in stages {
        let outcome = match stage.verdict {
            Verdict::Pass | Verdict::Partial => Outcome::Pass,
            Verdict::Absent => Outcome::Absent("there are no data for it".to_owned()),
            Verdict::Fail => {
                let begins_here = divergence.filter(|divergence| divergence.stage == stage.stage);
                let mut fault = fault(&checked, stage, begins_here)?;
                fault.first = begins == Some(stage.stage);
                Outcome::Fail(fault)
            }
        };
        cases.push(Case { name: stage.stage.to_string(), outcome });
    }
    Ok(Suite { name: checked.name, cases, time: checked.time })
}

/// The fault of a stage; with `divergence` if it is the first that failed.
fn fault(checked: &Checked<'_>, stage: &StageReport, divergence: Option<&Divergence>) -> Result<Fault, Failure> {
    let mut message = report::summary(stage, stage.stage);
    let mut text = Vec::new();
    report::failures(stage, &mut text)?;
    let mut place = None;
    if let Some(divergence) = divergence {
        let hints = divergence.hints.iter().map(|hint| format!("; {hint}")).collect::<String>();
        let found = stage.failed.iter().find(|item| item.name == divergence.tensor && item.ratio.is_finite());
        let by = found.map(|item| format!(" (error {}, {} x floor)", Small(item.error), Ratio(item.ratio)));
        let (stage, tensor) = (divergence.stage, &divergence.tensor);
        message = format!("first divergence in {stage}: {tensor}{}{hints}", by.unwrap_or_default());
        report::first_divergence(divergence, checked.sets, &mut text)?;
        place = match &divergence.line {
            Some(line) => Position::parse(line),
            None => Some(Position::top(checked.file)),
        };
    }
    let details = strip_str(&String::from_utf8_lossy(&text)).to_string().trim().to_owned();
    Ok(Fault { message, details, place, first: false })
}

/// A case per planted fault, which passes if the fault is caught; or the cases of the recipe without a fault, if it
/// fails.
///
/// # Errors
/// As [`suite`].
pub fn mutants(checked: Checked<'_>, planting: &Planting) -> Result<Suite, Failure> {
    let outcomes = match planting {
        Planting::Unsound(report) => return suite(checked, &report.stages, report.first_divergence.as_ref()),
        Planting::Outcomes(outcomes) => outcomes,
    };
    let case = |outcome: &Planted| {
        let missed = || Fault {
            message: format!("not caught; expected in {}", outcome.expected),
            first: true,
            ..Fault::default()
        };
        let outcome_of = if outcome.caught.is_some() { Outcome::Pass } else { Outcome::Fail(missed()) };
        Case { name: outcome.name.to_string(), outcome: outcome_of }
    };
    Ok(Suite { name: checked.name, cases: outcomes.iter().map(case).collect(), time: checked.time })
}

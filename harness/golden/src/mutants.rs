//! Tests the check itself: known mistakes are planted one at a time, and the check has to detect each of them.
//!
//! A mutant of the recipe is judged as if the change were set on the command line: the stage of the conditions is
//! left out, so the values must reveal the mistake. A mutant of the graph represents a defect in an operator, a
//! gradient or the update.

#![allow(clippy::unit_arg, reason = "`Some(place = fault)` reads as: planted there")]

mod dense_faults;
mod graph_faults;
mod model_faults;
mod recipe_faults;
mod siamese_faults;

use crate::{
    GoldenError,
    bound::Fault,
    check::check_faulty,
    golden::Golden,
    options::CheckOptions,
    report::{Report, Stage, Verdict},
};
use serde::Serialize;
use std::path::Path;
use zoo_recipe::Recipe;

/// A known mistake.
pub struct Mutant {
    /// Its name in the table.
    pub name: &'static str,
    /// The first stage that should detect it.
    pub expected: Stage,
    /// How to plant it.
    pub(crate) fault: Fault,
}

/// Result of a mutant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The mutant.
    pub name: &'static str,
    /// The first stage that should detect it.
    pub expected: Stage,
    /// The stage that detected it; `None` if none did.
    pub caught: Option<Stage>,
    /// The first tensor that differed.
    pub tensor: Option<String>,
}

/// What planting the mutants shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Planting {
    /// The recipe fails without a planted mistake. A failure would say nothing about a mutant, so none was planted.
    Unsound(Box<Report>),
    /// The recipe passes, and these are the results of its mutants.
    Outcomes(Vec<Outcome>),
}

/// All mutants, in the order of the stages that should detect them.
pub fn all() -> Vec<Mutant> {
    let families =
        [recipe_faults::all(), model_faults::all(), graph_faults::all(), dense_faults::all(), siamese_faults::all()];
    let mut mutants: Vec<Mutant> = families.into_iter().flatten().collect();
    mutants.sort_by_key(|m| m.expected);
    mutants
}

/// Shifts a window by a pixel along its padded axes; `None` if there are none.
fn shift(pad: &mut [usize; 4]) -> Option<()> {
    let before = *pad;
    for axis in pad.as_chunks_mut::<2>().0 {
        if axis[0] > 0 {
            *axis = [axis[0] - 1, axis[1] + 1];
        }
    }
    (*pad != before).then_some(())
}

/// Number of calls of [`run`]'s `progress`.
pub fn phases() -> usize {
    1 + all().len()
}

/// Plants every mutant that is possible in the recipe, and checks each up to the first stage that fails. First checks
/// the same stages of the recipe itself. `progress` is told what is checked.
///
/// # Errors
/// As [`crate::check()`].
pub fn run(
    recipe: &Recipe,
    golden: &Golden,
    folder: &Path,
    options: &CheckOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<Planting, GoldenError> {
    progress("without a fault");
    if let Some(report) = check_faulty(recipe, golden, folder, options, None)?
        && !report.passed()
    {
        return Ok(Planting::Unsound(Box::new(report)));
    }
    let mut outcomes = Vec::new();
    for mutant in all() {
        progress(mutant.name);
        let Some(report) = check_faulty(recipe, golden, folder, options, Some(mutant.fault))? else { continue };
        let caught = report.stages.iter().find(|s| s.verdict == Verdict::Fail).map(|s| s.stage);
        let tensor = report.first_divergence.map(|d| d.tensor);
        outcomes.push(Outcome { name: mutant.name, expected: mutant.expected, caught, tensor });
    }
    Ok(Planting::Outcomes(outcomes))
}

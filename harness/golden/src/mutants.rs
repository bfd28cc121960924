//! The check's own check: known mistakes are planted one at a time, and each has to be caught.
//!
//! A mutant of the recipe is judged as if the command line had named the change: the conditions stage does not count,
//! so that the numbers have to catch it. A mutant of the graph stands for a defect of an operator, a gradient or the
//! update.

#![allow(clippy::unit_arg, reason = "`Some(place = fault)` reads as: planted there")]

mod dense_faults;
mod graph_faults;
mod model_faults;
mod recipe_faults;
mod siamese_faults;

use crate::{
    GoldenError,
    check::{CheckOptions, check_faulty},
    manifest::Golden,
    report::{Stage, Verdict},
};
use serde::Serialize;
use std::path::Path;
use zoo_graph::Graph;
use zoo_recipe::{Recipe, ResolvedModel};

/// A known mistake.
pub struct Mutant {
    /// What it is called in the table.
    pub name: &'static str,
    /// The stage that should catch it first.
    pub expected: Stage,
    /// How it is planted.
    pub(crate) fault: Fault,
}

/// Plants a mistake; `false` where there is nothing to plant it in.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    Recipe(fn(&mut Recipe) -> bool),
    Model(fn(&mut ResolvedModel) -> bool),
    Graph(fn(&mut Graph) -> bool),
}

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The mutant.
    pub name: &'static str,
    /// The stage that should catch it first.
    pub expected: Stage,
    /// The stage that did; `None`: it was missed.
    pub caught: Option<Stage>,
    /// The first tensor that differed.
    pub tensor: Option<String>,
}

/// All mutants, in the order of the stages that should catch them.
pub fn all() -> Vec<Mutant> {
    let families =
        [recipe_faults::all(), model_faults::all(), graph_faults::all(), dense_faults::all(), siamese_faults::all()];
    let mut mutants: Vec<Mutant> = families.into_iter().flatten().collect();
    mutants.sort_by_key(|m| m.expected);
    mutants
}

/// Moves a window by a pixel, along the axes on which it is padded; `None` where there are none.
fn shift(pad: &mut [usize; 4]) -> Option<()> {
    let before = *pad;
    for axis in pad.as_chunks_mut::<2>().0 {
        if axis[0] > 0 {
            *axis = [axis[0] - 1, axis[1] + 1];
        }
    }
    (*pad != before).then_some(())
}

/// Plants every mutant that the recipe has a place for, and checks each until the first stage that fails.
/// `progress` hears the name of each.
///
/// # Errors
/// As [`crate::check()`].
pub fn run(
    recipe: &Recipe,
    golden: &Golden,
    folder: &Path,
    options: &CheckOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Outcome>, GoldenError> {
    let mut outcomes = Vec::new();
    for mutant in all() {
        progress(mutant.name);
        let Some(report) = check_faulty(recipe, golden, folder, options, mutant.fault)? else { continue };
        let caught = report.stages.iter().find(|s| s.verdict == Verdict::Fail).map(|s| s.stage);
        let tensor = report.first_divergence.map(|d| d.tensor);
        outcomes.push(Outcome { name: mutant.name, expected: mutant.expected, caught, tensor });
    }
    Ok(outcomes)
}

//! `train.py`: the training of a recipe as a program of PyTorch.
//!
//! Each loss, optimizer and schedule says in its own file how it is written; so do the transforms of images in
//! [`transforms`]. The parts of the program that a recipe does not need are left out.

mod averages;
mod conditions;
mod data;
mod evaluate;
mod loss;
mod optimizer;
mod parts;
mod program;
mod record;
mod steps;
mod transforms;
mod whiten;

pub(crate) use loss::Judged;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::schedule::SHARE;
use crate::{BuildOptions, ConfigPath, Recipe, ResolvedModel, build};

use program::Program;

/// `train.py`: the training of the network in `model.py`.
///
/// # Errors
/// What the program cannot express, with the line of the recipe.
pub fn train(recipe: &Recipe, resolved: &ResolvedModel) -> Result<String, Diagnostics> {
    written(recipe, resolved, |program| {
        rules(program)?;
        whiten::write(program)?;
        averages::write(program);
        data::write(program)?;
        evaluate::write(program)?;
        steps::write(program)
    })
}

/// `rules.py`: loss, optimizer, learning rate and frozen parts alone, for a loop with other data.
///
/// # Errors
/// As [`train`].
pub fn rules_of_step(recipe: &Recipe, resolved: &ResolvedModel) -> Result<String, Diagnostics> {
    written(recipe, resolved, rules)
}

fn written(
    recipe: &Recipe,
    resolved: &ResolvedModel,
    write: impl FnOnce(&mut Program<'_>) -> Result<(), Diagnostic>,
) -> Result<String, Diagnostics> {
    let fail = |diagnostic| Diagnostics::new(vec![diagnostic], recipe.spans.sources());
    let graph = build(recipe, resolved, &BuildOptions::train(2))
        .map_err(|error| fail(Diagnostic::error(recipe.span("train"), ConfigPath::from("train"), error.to_string())))?;
    let mut program = Program::new(recipe, &graph);
    write(&mut program).map_err(fail)?;
    Ok(program.text())
}

fn rules(program: &mut Program<'_>) -> Result<(), Diagnostic> {
    steps::constants(program);
    loss::write(program)?;
    optimizer::write(program);
    rate(program);
    parts::write(program)
}

/// The learning rate of a step.
fn rate(program: &mut Program<'_>) {
    let body = program.recipe.schedule.emit();
    if body.iter().any(|line| line.contains("share(")) {
        program.add(SHARE);
    }
    let mut text = String::from(
        "def rate(step: int, per_epoch: int, steps: int) -> float:\n    \"\"\"The learning rate of a step, from 0, of a \
         training of `steps` with `per_epoch` in each epoch.\"\"\"\n",
    );
    for line in body {
        text += &format!("    {line}\n");
    }
    program.add(&text);
}

/// A number as Python.
pub(crate) fn real(value: f64) -> String {
    super::number::plain(value, super::number::Kind::Real)
}

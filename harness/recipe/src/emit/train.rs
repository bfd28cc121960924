//! `train.py`: the training of a recipe as a program of PyTorch.
//!
//! Each loss, optimizer and schedule says in its own file how it is written; so do the transforms of images in
//! [`transforms`]. The parts of the program that a recipe does not need are left out.

mod averages;
pub(super) mod data;
mod epochs;
pub(super) mod evaluate;
pub(super) mod loss;
pub(super) mod optimizer;
pub(super) mod options;
mod parts;
mod profile;
pub(super) mod program;
mod record;
mod shard;
mod steps;
mod training;
mod transforms;
mod whiten;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::python::{Dialect, real};
use crate::schedule::SHARE;
use crate::{BuildOptions, ConfigPath, Recipe, ResolvedModel, build};

use program::Program;

/// `train.py`: the training of the network in `model.py`.
///
/// # Errors
/// What the program cannot express, with the line of the recipe.
pub fn train(recipe: &Recipe, resolved: &ResolvedModel) -> Result<String, Diagnostics> {
    written(Dialect::PyTorch, recipe, resolved, |program| {
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
    written(Dialect::PyTorch, recipe, resolved, rules)
}

/// What the README of a program says about its data.
pub(super) fn about_data(recipe: &Recipe) -> String {
    if !program::prepared(recipe) {
        return String::new();
    }
    let mut text =
        "\nzoo prepares its data, and the weights that `zoo run` starts from (`--weights data/weights.pth`):\n\n\
                    ```\nzoo data make recipe.yaml -o data\n```\n"
            .to_owned();
    if evaluate::scored(recipe) == evaluate::Scored::Elsewhere {
        text += &format!(
            "\nIt writes what the network finds in the held-out samples; zoo scores it:\n\n```\nzoo eval recipe.yaml \
             --predictions runs/{}/predictions\n```\n",
            recipe.name
        );
    }
    text
}

/// A program in a dialect, section by section.
pub(super) fn written(
    dialect: Dialect,
    recipe: &Recipe,
    resolved: &ResolvedModel,
    write: impl FnOnce(&mut Program<'_>) -> Result<(), Diagnostic>,
) -> Result<String, Diagnostics> {
    let fail = |diagnostic| Diagnostics::new(vec![diagnostic], recipe.spans.sources());
    let graph = build(recipe, resolved, &BuildOptions::train(2))
        .map_err(|error| fail(Diagnostic::error(recipe.span("train"), ConfigPath::from("train"), error.to_string())))?;
    let losses = graph.losses.iter().map(|(name, ..)| name.as_str());
    let names = graph.inputs.iter().map(|input| input.name.as_str()).chain(losses);
    super::expect_quotable(recipe, "loss", names).map_err(fail)?;
    let data = recipe.data.source.clone().location_mut().map(|path| path.display().to_string());
    super::expect_quotable(recipe, "data.source", data.as_deref().into_iter()).map_err(fail)?;
    let mut program = Program::new(dialect, recipe, &graph);
    write(&mut program).map_err(fail)?;
    Ok(program.text())
}

fn rules(program: &mut Program<'_>) -> Result<(), Diagnostic> {
    steps::constants(program);
    loss::write(program)?;
    optimizer::write(program)?;
    rate(program);
    parts::write(program)
}

/// The learning rate of a step.
pub(super) fn rate(program: &mut Program<'_>) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schedule;
    use crate::{Library, LoadOptions};
    use std::process::Command;

    /// The learning rates of all steps, as Python computes them; `None` without Python.
    fn rates(schedule: &Schedule, (per_epoch, steps): (usize, usize)) -> Option<Vec<f64>> {
        let mut program = format!("import math\n{SHARE}\ndef rate(step, per_epoch, steps):\n");
        schedule.emit().iter().for_each(|line| program += &format!("    {line}\n"));
        program += &format!("print(*(repr(float(rate(n, {per_epoch}, {steps}))) for n in range({steps})))\n");
        let output = Command::new("python3").args(["-c", &program]).output().ok()?;
        assert!(output.status.success(), "{}\n{program}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("numbers");
        Some(text.split_whitespace().map(|number| number.parse().expect("a number")).collect())
    }

    #[test]
    fn learning_rates_in_python_are_those_of_the_schedule() {
        for yaml in [
            "constant: {base_lr: 0.5, warmup: {over: 1.5 epochs, per: epoch}}",
            "cosine: {base_lr: 0.5, min_lr: 0.01, warmup: {over: 3 steps, start_lr: 0.1, count: from_zero}}",
            "cosine: {base_lr: 0.5, per: epoch, t_max: all, warmup: {over: 7 steps, per: epoch}}",
            "guide_cosine: {lr_max: 0.5, lr_init: 0.01, warmup: 3 steps}",
            "poly: {base_lr: 0.5, min_lr: 0.1, t_max: all_plus_one}",
            "poly: {base_lr: 0.5, power: 1, warmup: {over: 1 epoch, shape: geometric, start_lr: 0.01}}",
            "log: {base_lr: 0.5, end_lr: 0.001, per: epoch, warmup: {over: 1 epoch}}",
            "step: {base_lr: 0.5, every: 1.3 epochs}",
            "multi_step: {base_lr: 0.5, gamma: 0.3, milestones: [1 epoch, 2.5 epochs]}",
            "exponential: {base_lr: 0.5, gamma: 0.9}",
            "exponential: {base_lr: 0.5, gamma: 0.9, every: 3 steps, per: step}",
            "inverse_sqrt: {base_lr: 0.5, warmup: {over: 3 steps}}",
            "inverse_sqrt: {base_lr: 0.5}",
            "one_cycle: {max_lr: 0.5}",
            "one_cycle: {max_lr: 0.5, anneal: linear, pct_start: 0.25}",
        ] {
            let tree = serde_yaml::Deserializer::from_str(yaml);
            let schedule: Schedule = serde_yaml::with::singleton_map_recursive::deserialize(tree).expect(yaml);
            let Some(rates) = rates(&schedule, (6, 24)) else {
                eprintln!("skipped: no python3");
                return;
            };
            for (step, rate) in rates.iter().enumerate() {
                let own = schedule.lr(step, (6, 4));
                assert!((own - rate).abs() <= 1e-13, "{yaml} at step {step}: {rate} in Python, {own} here");
            }
        }
    }

    /// Those that cannot prepare their data read files.
    #[test]
    fn recipes_are_written() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes");
        let library = Library::new([folder]);
        for (name, prepared, elsewhere) in [
            ("airbench94", false, false),
            ("gpt_shakespeare", false, false),
            ("lenet", false, false),
            ("swin_t", false, false),
            ("gpt2", false, false),
            ("bert_base", true, true),
            ("db_resnet18", true, true),
            ("unet_medical", true, true),
            ("siammask", true, true),
            ("siammask-sharp", true, true),
            ("retinanet_resnet50_fpn", true, true),
            ("resnet50", false, false),
        ] {
            let recipe = library.load(name, &LoadOptions { profile: None, sets: Vec::new() }).expect(name).recipe;
            let resolved = recipe.resolve().expect(name);
            let program = train(&recipe, &resolved).unwrap_or_else(|error| panic!("{error}"));
            assert!(program.contains("def main() -> int:"), "{name}");
            let parse = ["-c", "import ast, sys; ast.parse(sys.argv[1])", &program];
            assert!(Command::new("python3").args(parse).status().is_ok_and(|status| status.success()), "{name}");
            assert_eq!(program.contains("class Prepared("), prepared, "{name}");
            assert_eq!(program.contains("def predict("), elsewhere, "{name}");
            // Parts that join or leave later cannot be divided among processes.
            let changes = ["siammask", "siammask-sharp", "airbench94"].contains(&name);
            assert_eq!(program.contains("\"--shard\""), !changes, "{name}");
            assert!(rules_of_step(&recipe, &resolved).is_ok(), "{name}");
        }
    }
}

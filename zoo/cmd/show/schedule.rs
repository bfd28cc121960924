//! The learning rates of a training.

use crate::context::Context;
use crate::table::Table;
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use zoo_recipe::Recipe;

#[derive(Serialize)]
struct Report<'a> {
    recipe: &'a str,
    epochs: usize,
    steps_per_epoch: usize,
    /// Learning rate of each step.
    lr: Vec<f64>,
}

/// Prints the learning rate of every step (JSON), or of some steps of the training (text).
pub(super) fn show(recipe: &Recipe, steps_per_epoch: Option<u32>, context: &mut Context) -> Result<Exit, Failure> {
    let steps_per_epoch = match steps_per_epoch {
        Some(given) => given as usize,
        None => zoo_tasks::open(recipe, None)
            .map_err(|error| {
                Failure::Usage(format!("--schedule needs the size of the data set ({error}); use --steps-per-epoch N"))
            })?
            .samples
            .train_len()
            .checked_div(recipe.train.batch)
            .unwrap_or_default()
            .max(1),
    };
    let epochs = recipe.train.epochs;
    let length = recipe.train.length(steps_per_epoch);
    let lr = |step| recipe.schedule.lr(step, length);
    let steps = length.steps();
    let mut table = Table::new([">step", ">epoch", ">learning rate", ""]);
    let peak = recipe.schedule.peak_lr();
    for step in shown(steps) {
        let bar = "#".repeat((lr(step) / peak * BAR).round().clamp(0.0, BAR) as usize);
        let epoch = step as f64 / steps_per_epoch as f64;
        table.row([step.into(), format!("{epoch:.2}").into(), format!("{:.4e}", lr(step)).into(), bar.into()]);
    }
    let ends = if steps < epochs * steps_per_epoch { format!(", {steps} in all") } else { String::new() };
    let report = Report { recipe: &recipe.name, epochs, steps_per_epoch, lr: (0..steps).map(lr).collect() };
    context.show(&report, |out| Ok(writeln!(out, "{table}\n{epochs} epochs of {steps_per_epoch} steps{ends}")?))
}

/// Width of the bar at the highest learning rate.
const BAR: f64 = 40.0;

/// The steps to list: evenly spaced, including the first and the last.
fn shown(steps: usize) -> Vec<usize> {
    const ROWS: usize = 24;
    if steps <= ROWS {
        return (0..steps).collect();
    }
    (0..ROWS).map(|row| row * (steps - 1) / (ROWS - 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_and_last_step_are_listed() {
        assert_eq!(shown(3), [0, 1, 2]);
        let many = shown(1000);
        assert_eq!((many[0], many[many.len() - 1], many.len()), (0, 999, 24));
    }
}

//! `zoo advise`: what makes a recipe slow on a simulated device.

use crate::console::{Console, DIM, HEADING, WARN, paint};
use crate::context::Context;
use crate::excerpt::excerpt;
use crate::machine::Machine;
use crate::options::RecipeArgs;
use crate::table::{fitted, fitted_after};
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use zoo_npu::{Advice, Work};

/// List what makes a recipe slow on a simulated device, with the line of the recipe and the cost.
///
/// Looks for patterns that the performance guides of the devices warn about: explicit padding, L2 in the loss,
/// transposes that copy, operators on the host, small batches, unfused normalisation, loops of one step, slow input.
/// The cost of each is found by simulating the step with and without it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo advise alexnet
  zoo advise alexnet --device gaudi --set npu.precision=bf16 --set npu.fold_pad=false
  zoo advise resnet50 --batch 16 --format json | jq '.advice[].pattern'")]
pub struct Args {
    #[command(flatten)]
    recipe: RecipeArgs,
    #[command(flatten)]
    machine: Machine,
}

#[derive(Serialize)]
struct Report {
    recipe: String,
    device: String,
    step_ms: f64,
    advice: Vec<Advice>,
}

const INSTEAD: &str = "= instead:";

/// Prints the advice.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let (recipe, device) = args.machine.load(&args.recipe.recipe, &args.recipe.change, context)?;
    let spinner = context.progress.spinner();
    spinner.message(format!("{}: predicting a step on {}, with and without each pattern", recipe.name, device.name));
    let step_ms = zoo_npu::profile(&recipe, &device, Work::Train)?.step.ms();
    let advice = zoo_npu::advise(&recipe, &device, Work::Train)?;
    drop(spinner);
    let report = Report { recipe: recipe.name.clone(), device: device.name, step_ms, advice };
    context.show(&report, |out| print(&report, &args.recipe.change.sets, out))
}

fn print(report: &Report, sets: &[String], out: &mut Console) -> Result<(), Failure> {
    writeln!(out, "{}  on {}, {:.1} ms per step", paint(HEADING, &report.recipe), report.device, report.step_ms)?;
    if report.advice.is_empty() {
        writeln!(out, "\nnone of the patterns that the vendors' guides warn about")?;
    }
    for advice in &report.advice {
        let cost = match advice.hidden_ms {
            Some(ms) => format!("hidden while the step waits for its input, otherwise {ms:.2} ms per step"),
            None => format!("{:.2} ms per step ({:.1} %)", advice.cost_ms, 100.0 * advice.cost),
        };
        let text = fitted(&format!("{}, {cost}: {}", advice.pattern, advice.message));
        writeln!(out, "\n{}", text.replacen(advice.pattern, &paint(WARN, advice.pattern), 1))?;
        writeln!(out, "{}", excerpt(&advice.line, sets))?;
        let remedy = fitted_after(&format!("{INSTEAD} {}", advice.remedy), 2);
        writeln!(out, "{}", remedy.replacen(INSTEAD, &paint(DIM, INSTEAD), 1))?;
    }
    Ok(())
}

//! `zoo profile`: the predicted cost of a step on a simulated device.

mod against;
mod measured;
mod report;

use crate::context::Context;
use crate::machine::Machine;
use crate::options::RecipeArgs;
use crate::output;
use crate::{Exit, Failure};
use against::AgainstArgs;
use measured::MeasuredArgs;
use std::path::PathBuf;
use zoo_npu::Work;

/// Predict the cost of a step on a simulated device: time and memory, by operator, and the bottlenecks.
///
/// The step is the graph that `zoo check` proves, rewritten by the compiler passes of the device. The options are in
/// the `npu:` section of the recipe.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo profile resnet50                                   on the device that the recipe names
  zoo profile resnet50 --device ascend910 --devices 8 --batch 256
  zoo profile resnet50 --set npu.fusion=false
  zoo profile resnet50 --what-if                         the effect of each option
  zoo profile resnet50 --trace step.json --html step.html
  zoo profile resnet50 --against resnet101               compare two steps
  zoo profile resnet50 --against resnet50 --against-set npu.fusion=false --html both.html
  zoo profile resnet50 --stack mindcv                    model a published software stack
  zoo profile resnet50 --device ascend310 --eval --batch 8
  zoo profile resnet50 --measured profile                what a profiler measured, line by line
  zoo profile resnet50 --measured kernel_details.csv --device ascend910b --fail-above 10
  zoo profile resnet50 --measured after --before before --html both.html
  zoo profile resnet50 --format json | jq .step_ms")]
pub struct Args {
    #[command(flatten)]
    recipe: RecipeArgs,
    #[command(flatten)]
    machine: Machine,
    /// Predict the time of inference, with stored statistics, instead of a training step
    #[arg(long)]
    eval: bool,
    /// List the effect of changing each option of the `npu:` section of the recipe
    #[arg(long)]
    what_if: bool,
    /// List every kernel in order
    #[arg(long)]
    kernels: bool,
    #[command(flatten)]
    against: AgainstArgs,
    #[command(flatten)]
    measured: MeasuredArgs,
    /// Write the events of the step to this file, for chrome://tracing and ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write an HTML page with the timeline to this file, without scripts or external resources
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Predicts the cost and prints it.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let (recipe, device) = args.machine.load(&args.recipe.recipe, &args.recipe.change, context)?;
    let work = if args.eval { Work::Eval } else { Work::Train };
    let against = args.against.profile(&recipe, &args.machine, work, context)?;
    let spinner = context.progress.spinner();
    let options = if args.what_if { " with each option" } else { "" };
    spinner.message(format!("{}: predicting a step on {}{options}", recipe.name, device.name));
    let profile = zoo_npu::profile(&recipe, &device, work)?;
    let options = if args.what_if { zoo_npu::what_if(&recipe, &device, work)? } else { Vec::new() };
    let measured = args.measured.read(&recipe, &device, &profile, work)?;
    drop(spinner);
    let title = format!("{} on {}", recipe.name, device.name);
    if let Some(path) = &args.trace {
        output::write_beside(path, &zoo_npu::trace(&profile, &title).to_string(), context)?;
    }
    if let Some(path) = &args.html {
        let against = against.as_ref().map(|other| (&other.profile, other.title.as_str()));
        output::write_beside(path, &zoo_npu::page(&profile, &title, &options, against, &measured)?, context)?;
    }
    if args.trace.iter().chain(&args.html).any(|path| output::is_stdout(path)) {
        return Ok(Exit::Pass);
    }
    if let Some(other) = &against {
        let report = against::Report::new([&profile, &other.profile], [&title, &other.title]);
        return context.show(&report, |out| report.print(out));
    }
    let what_if = args.what_if.then_some(options);
    let mut report = report::Report::new(&recipe, &device, &profile, args.kernels, what_if);
    let mut measured = measured.into_iter();
    (report.measured, report.before) = (measured.next(), measured.next());
    match &report.measured {
        Some(measured) => {
            context.show(&report, |out| measured::print(measured, &report, out))?;
            Ok(args.measured.verdict(measured))
        }
        None => context.show(&report, |out| report.print(out)),
    }
}

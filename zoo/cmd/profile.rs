//! `zoo profile`: what a step costs on a simulated device, and why.

mod report;

use super::{Context, output};
use crate::cli::{Format, RecipeArgs};
use crate::complete;
use crate::{Exit, Failure};
use std::path::PathBuf;
use zoo_npu::{Device, Work};
use zoo_recipe::Recipe;

/// Predict what a step costs on a simulated device: time, memory, where both go, and what holds it up.
///
/// The step is the graph that `zoo check` proves, rewritten by the device's passes. Options are those of the recipe's
/// `npu:` section.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo profile resnet50                                   on the device that the recipe names
  zoo profile resnet50 --device ascend910 --devices 8 --batch 256
  zoo profile resnet50 --set npu.fusion=false
  zoo profile resnet50 --what-if                         what each option would bring
  zoo profile resnet50 --trace step.json --html step.html
  zoo profile resnet50 --device ascend310 --eval --batch 8
  zoo profile resnet50 --format json | jq .step_ms")]
pub struct Args {
    #[command(flatten)]
    recipe: RecipeArgs,
    #[command(flatten)]
    machine: Machine,
    /// Price the network alone, with stored statistics, instead of a training step
    #[arg(long)]
    eval: bool,
    /// List what each option of the recipe's `npu:` section would bring
    #[arg(long)]
    what_if: bool,
    /// List every kernel, in order
    #[arg(long)]
    kernels: bool,
    /// Write the events of the step for chrome://tracing and ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write a page with the timeline, without scripts or anything from elsewhere
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Which machine, and how much of it.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Machine {
    /// Device: the name of a file in recipes/devices; the recipe's by default
    #[arg(long, value_name = "NAME", add = complete::devices())]
    pub device: Option<String>,
    /// Devices that train together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub devices: Option<u32>,
    /// Images per step and device
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub batch: Option<u32>,
}

impl Machine {
    /// Puts what was said into the recipe, and loads the device.
    pub(super) fn apply(&self, recipe: &mut Recipe, context: &Context) -> Result<Device, Failure> {
        let npu = &mut recipe.npu;
        if let Some(device) = &self.device {
            npu.device.clone_from(device);
        }
        if let Some(devices) = self.devices {
            npu.devices = devices as usize;
        }
        if let Some(batch) = self.batch {
            recipe.train.batch = batch as usize;
        }
        Ok(context.devices()?.load(&npu.device)?)
    }
}

/// Prices and prints.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let catalog = context.catalog()?;
    let mut recipe = context.load(&catalog, &args.recipe.recipe, &args.recipe.change)?.recipe;
    let device = args.machine.apply(&mut recipe, context)?;
    let work = if args.eval { Work::Eval } else { Work::Train };
    let spinner = context.progress.spinner();
    let options = if args.what_if { " with each option" } else { "" };
    spinner.message(format!("{}: pricing a step on {}{options}", recipe.name, device.name));
    let profile = zoo_npu::profile(&recipe, &device, work)?;
    let options = if args.what_if { zoo_npu::what_if(&recipe, &device, work)? } else { Vec::new() };
    drop(spinner);
    let title = format!("{} on {}", recipe.name, device.name);
    if let Some(path) = &args.trace {
        output::write_beside(path, &zoo_npu::trace(&profile, &title).to_string(), context)?;
    }
    if let Some(path) = &args.html {
        output::write_beside(path, &zoo_npu::page(&profile, &title, &options)?, context)?;
    }
    if args.trace.iter().chain(&args.html).any(|path| output::is_stdout(path)) {
        return Ok(Exit::Pass);
    }
    let what_if = args.what_if.then_some(options);
    let report = report::Report::new(&recipe, &device, &profile, args.kernels, what_if);
    match context.format {
        Format::Json => context.out.json(&report)?,
        Format::Text => report.print(&mut context.out)?,
    }
    Ok(Exit::Pass)
}

//! `zoo show`: show what a recipe builds.

mod difference;
mod graph;
mod layers;
mod picture;
mod precision;
mod schedule;

use crate::complete;
use crate::context::Context;
use crate::options::RecipeArgs;
use crate::{Exit, Failure};
use serde::Serialize;
use std::io::Write;
use zoo_recipe::Recipe;

/// Show the layers, the training-step graph or the learning rates of a recipe.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo show resnet50                        layers, output shapes, parameters, MACs
  zoo show resnet50 --profile mini --set model.classes=36
  zoo show resnet50 --graph                every operator of the training step, with its cost
  zoo show resnet50 --graph --passes       the same after the engine's passes, and what they changed
  zoo show resnet50 --precision --device ascend910     the type of each operator, and why
  zoo show resnet50 --schedule --profile mini
  zoo show resnet50 --resolved             the recipe with inherited values and defaults
  zoo show --diff resnet50 resnet101       what differs, and the lines that set it
  zoo show --diff resnet50 --profile mini
  zoo show resnet50 --svg resnet50.svg     a picture; --dot FILE for Graphviz")]
pub struct Args {
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Images per step
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: u32,
    /// Show the nodes of the training step: forward, loss, backward, update
    #[arg(long)]
    graph: bool,
    /// Apply the engine's passes to the graph and list what they change
    #[arg(long, requires = "graph")]
    passes: bool,
    /// Apply only the first N passes
    #[arg(long, value_name = "N", requires = "passes")]
    passes_until: Option<usize>,
    /// Show the learning rates
    #[arg(long, conflicts_with = "graph")]
    schedule: bool,
    /// Batches per epoch for --schedule, if the data set is not available
    #[arg(long, value_name = "N", requires = "schedule", value_parser = clap::value_parser!(u32).range(1..))]
    steps_per_epoch: Option<u32>,
    /// Show the type in which each operator computes on a device, why, and where values are cast
    #[arg(long, conflicts_with_all = ["graph", "schedule", "resolved"])]
    precision: bool,
    /// Device for --precision: the name of a file in recipes/devices; by default the device of the recipe
    #[arg(long, value_name = "NAME", add = complete::devices(), requires = "precision")]
    device: Option<String>,
    /// Show the recipe with inherited values and defaults, as YAML; with --format json as JSON
    #[arg(long, conflicts_with_all = ["graph", "schedule"])]
    resolved: bool,
    #[command(flatten)]
    pictures: picture::Pictures,
    /// List the differences between two recipes, including inherited values and defaults; without OTHER, between the
    /// recipe as written and the recipe with --profile and --set
    #[arg(long, conflicts_with_all = ["graph", "schedule", "precision", "resolved", "svg", "dot"])]
    diff: bool,
    /// The recipe to compare with, for --diff
    #[arg(value_name = "OTHER", add = complete::recipes(), requires = "diff")]
    other: Option<String>,
}

/// Shows one view of the recipe.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    if args.diff {
        return difference::show(&args.recipe, args.other.as_deref(), context);
    }
    let loaded = context.load(&args.recipe.recipe, &args.recipe.change)?;
    let recipe = &loaded.recipe;
    let batch = args.batch as usize;
    if args.resolved {
        resolved(recipe, context)
    } else if args.pictures.wanted() {
        picture::draw(recipe, &args.pictures, context)
    } else if args.schedule {
        schedule::show(recipe, args.steps_per_epoch, context)
    } else if args.precision {
        let device = args.device.as_deref().unwrap_or(&recipe.npu.device);
        precision::show(recipe, device, batch, context)
    } else if args.graph {
        let passes = args.passes.then_some(args.passes_until.unwrap_or(usize::MAX));
        graph::show(recipe, batch, passes, context)
    } else {
        layers::show(recipe, batch, context)
    }
}

/// The resolved recipe as JSON.
#[derive(Serialize)]
struct Resolved<'a> {
    recipe: &'a Recipe,
}

/// Prints the recipe with inherited values and defaults.
fn resolved(recipe: &Recipe, context: &mut Context) -> Result<Exit, Failure> {
    let unwritten = |error| Failure::Usage(format!("this recipe cannot be written: {error}"));
    context.show(&Resolved { recipe }, |out| Ok(write!(out, "{}", recipe.to_yaml().map_err(unwritten)?)?))
}

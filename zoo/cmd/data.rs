//! `zoo data`: inspect the data of a recipe.

mod inspect;
mod sheet;

use crate::complete;
use crate::context::Context;
use crate::options::Change;
use crate::{Exit, Failure};
use clap::Subcommand;
use std::path::PathBuf;
use zoo_recipe::Recipe;
use zoo_tasks::DataSets;

/// The subcommands of `zoo data`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a contact sheet of the first images as PNG
    Make(sheet::Args),
    /// Count samples and classes, compute pixel statistics, list broken files
    Inspect(inspect::Args),
}

/// Whose data.
#[derive(Clone, Debug, clap::Args)]
struct Selection {
    /// Name of a recipe, or path of its file
    #[arg(value_name = "RECIPE", add = complete::recipes())]
    recipe: String,
    #[command(flatten)]
    change: Change,
    /// Use the data in this folder or text file: CIFAR-10 binaries, MNIST files, train/CLASS/* with val/CLASS/*, or
    /// CLASS/*
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Runs the subcommand.
pub(super) fn run(command: &Command, context: &mut Context) -> Result<Exit, Failure> {
    match command {
        Command::Make(args) => sheet::run(args, context),
        Command::Inspect(args) => inspect::run(args, context),
    }
}

impl Selection {
    /// The recipe and its data.
    fn open(&self, context: &Context) -> Result<(Recipe, DataSets), Failure> {
        let catalog = context.catalog()?;
        let recipe = context.load(&catalog, &self.recipe, &self.change)?.recipe;
        let spinner = context.progress.spinner();
        spinner.message(format!("{}: opening the data", recipe.name));
        let sets = zoo_tasks::open(&recipe, self.data.as_deref())?;
        Ok((recipe, sets))
    }
}

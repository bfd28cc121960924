//! Whose data are shown.

use crate::Failure;
use crate::context::Context;
use crate::options::RecipeArgs;
use std::path::PathBuf;
use zoo_recipe::Recipe;
use zoo_tasks::DataSets;

/// Whose data.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Selection {
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Use the data in this folder or text file: CIFAR-10 binaries, MNIST files, train/CLASS/* with val/CLASS/*, or
    /// CLASS/*
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Selection {
    /// The recipe and its data.
    pub(super) fn open(&self, context: &Context) -> Result<(Recipe, DataSets), Failure> {
        let recipe = context.load(&self.recipe.recipe, &self.recipe.change)?.recipe;
        let spinner = context.progress.spinner();
        spinner.message(format!("{}: opening the data", recipe.name));
        let sets = zoo_tasks::open(&recipe, self.data.as_deref())?;
        Ok((recipe, sets))
    }
}

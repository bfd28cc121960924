//! `zoo weights`: weights from PyTorch, and for it.

mod export;
mod import;

use super::Context;
use crate::{Exit, Failure};
use clap::Subcommand;
use std::path::PathBuf;
use zoo_graph::Graph;
use zoo_recipe::BuildOptions;
use zoo_recipe::Recipe;
use zoo_train::weights::Naming;

/// The verbs of weights.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compare a state_dict with a recipe's network, and convert it
    Import(import::Args),
    /// Write a run's weights for PyTorch
    Export(export::Args),
}

/// Does what is asked for.
pub(super) fn run(command: &Command, context: &mut Context) -> Result<Exit, Failure> {
    match command {
        Command::Import(args) => import::run(args, context),
        Command::Export(args) => export::run(args, context),
    }
}

/// How the names of a file become names of the network.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Names {
    /// Leave this prefix of the file's names out, for example `module.`
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    strip: String,
    /// Put this prefix before the file's names, for example `features.`: the file is of this part of the network
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    add: String,
}

impl From<&Names> for Naming {
    fn from(names: &Names) -> Self {
        Self { strip: names.strip.clone(), add: names.add.clone() }
    }
}

/// A file for weights, whose name says what is written.
fn state_file(path: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    let extension = path.extension().and_then(|extension| extension.to_str());
    // What is not a regular file, such as /dev/null, may be called anything.
    let is_special = path.metadata().is_ok_and(|there| !there.is_file());
    match extension {
        Some("safetensors" | "pth" | "pt") => Ok(path),
        _ if is_special => Ok(path),
        _ => Err("the name must end in .safetensors, .pth or .pt, which decides the format".to_owned()),
    }
}

/// The network alone, whose variables are those of a state_dict.
pub(super) fn network(recipe: &Recipe) -> Result<Graph, Failure> {
    Ok(zoo_recipe::build(recipe, &recipe.resolve()?, &BuildOptions::eval(1))?)
}

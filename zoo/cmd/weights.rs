//! `zoo weights`: exchange weights with PyTorch.

mod export;
mod import;

use crate::context::Context;
use crate::{Exit, Failure};
use clap::Subcommand;
use std::path::PathBuf;
use zoo_train::weights::Naming;

/// The subcommands of `zoo weights`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check whether a state_dict fits a recipe, and convert it
    Import(import::Args),
    /// Write the weights of a run for PyTorch
    Export(export::Args),
}

/// Runs the subcommand.
pub(super) fn run(command: &Command, context: &mut Context) -> Result<Exit, Failure> {
    match command {
        Command::Import(args) => import::run(args, context),
        Command::Export(args) => export::run(args, context),
    }
}

/// How the names of a file become names of the network.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Names {
    /// Remove this prefix from the names in the file, for example `module.`
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    strip: String,
    /// Add this prefix to the names in the file, for example `features.` if the file contains only this part of the
    /// network
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    add: String,
}

impl From<&Names> for Naming {
    fn from(names: &Names) -> Self {
        Self { strip: names.strip.clone(), add: names.add.clone() }
    }
}

/// A file for weights; its name determines the format.
fn state_file(path: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    let extension = path.extension().and_then(|extension| extension.to_str());
    // Special files, such as /dev/null, can have any name.
    let is_special = path.metadata().is_ok_and(|there| !there.is_file());
    match extension {
        Some("safetensors" | "pth" | "pt") => Ok(path),
        _ if is_special => Ok(path),
        _ => Err("the name must end in .safetensors, .pth or .pt, which decides the format".to_owned()),
    }
}

//! `zoo weights`: exchange weights with PyTorch.

mod export;
mod import;

use crate::context::Context;
use crate::{Exit, Failure};
use clap::Subcommand;

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

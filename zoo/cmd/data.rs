//! `zoo data`: inspect the data of a recipe.

mod inspect;
mod selection;
mod sheet;

use crate::context::Context;
use crate::{Exit, Failure};
use clap::Subcommand;

/// The subcommands of `zoo data`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a contact sheet of the first images as PNG
    Make(sheet::Args),
    /// Count samples and classes, compute pixel statistics, list broken files
    Inspect(inspect::Args),
}

/// Runs the subcommand.
pub(super) fn run(command: &Command, context: &mut Context) -> Result<Exit, Failure> {
    match command {
        Command::Make(args) => sheet::run(args, context),
        Command::Inspect(args) => inspect::run(args, context),
    }
}

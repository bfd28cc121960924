//! `zoo data`: the data of a recipe, to look at and for other programs.

mod inspect;
mod make;
mod selection;
mod sheet;

use crate::context::Context;
use crate::{Exit, Failure};
use clap::Subcommand;

/// The subcommands of `zoo data`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write what a training reads as files for programs without zoo
    Make(make::Args),
    /// Write a contact sheet of the first images as PNG
    Sheet(sheet::Args),
    /// Count samples and classes, compute pixel statistics, list broken files
    Inspect(inspect::Args),
}

/// Runs the subcommand.
pub(super) fn run(command: &Command, context: &mut Context) -> Result<Exit, Failure> {
    match command {
        Command::Make(args) => make::run(args, context),
        Command::Sheet(args) => sheet::run(args, context),
        Command::Inspect(args) => inspect::run(args, context),
    }
}

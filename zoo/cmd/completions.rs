//! `zoo completions`: scripts for shells.

use super::Context;
use crate::{Cli, Exit, Failure};
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo completions bash > ~/.local/share/bash-completion/completions/zoo
  zoo completions zsh > ~/.zfunc/_zoo
  zoo completions fish > ~/.config/fish/completions/zoo.fish")]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "zoo", &mut script);
    context.out.write_all(&script)?;
    Ok(Exit::Pass)
}

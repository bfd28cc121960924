//! `zoo completions`: completion scripts for shells.

use crate::context::Context;
use crate::{Exit, Failure};
use clap_complete::Shell;
use clap_complete::env::Shells;
use std::io::Write;

/// Print a completion script for a shell.
///
/// Completes commands, options, and names of recipes, profiles, devices, studies, and run folders below ./runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo completions bash > ~/.local/share/bash-completion/completions/zoo
  zoo completions zsh > ~/.zfunc/_zoo
  zoo completions fish > ~/.config/fish/completions/zoo.fish")]
pub struct Args {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let known = shells.completer(&args.shell.to_string());
    let shell = known.ok_or_else(|| Failure::Usage(format!("no completion for {}", args.shell)))?;
    shell.write_registration("COMPLETE", "zoo", "zoo", "zoo", &mut script)?;
    context.out.write_all(&script)?;
    Ok(Exit::Pass)
}

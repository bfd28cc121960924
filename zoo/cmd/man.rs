//! `zoo man`: write manual pages.

use crate::context::Context;
use crate::{Exit, Failure};
use std::io::Write;
use std::path::PathBuf;

/// Write manual pages for zoo and each of its commands.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo man ~/.local/share/man/man1            then: man zoo, man zoo-run
  zoo man build/man")]
pub struct Args {
    /// Folder to write to; created if missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes the pages and prints the folder.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    let unwritable = |source| Failure::Unwritable { path: args.folder.clone(), source };
    std::fs::create_dir_all(&args.folder).map_err(unwritable)?;
    // A page is about a version, not about the machine that wrote it.
    let grammar = (context.grammar)().long_version(clap::builder::Resettable::Reset);
    clap_mangen::generate_to(grammar, &args.folder).map_err(unwritable)?;
    writeln!(context.out, "{}", args.folder.display())?;
    Ok(Exit::Pass)
}

//! The `zoo` command: joins recipes, graphs, goldens, data sets and training.
//!
//! Results go to stdout, progress and messages to stderr. `cmd` has one file per verb, [`Exit`] what the exit codes
//! mean, [`Failure`] the one place where errors are mapped to them.
//!
//! ```
//! use clap::Parser;
//!
//! let cli = zoo::Cli::try_parse_from(["zoo", "check", "resnet50", "--format", "json"])?;
//! assert!(!cli.global.quiet);
//! # Ok::<(), clap::Error>(())
//! ```

mod catalog;
mod ci;
mod cli;
mod cmd;
mod complete;
mod console;
mod excerpt;
mod exit;
mod failure;
mod interrupt;
mod memory;
mod numbers;
mod progress;
mod table;

pub use cli::Cli;
pub use exit::Exit;
pub use failure::Failure;

use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// Runs the command with the arguments of this process.
pub fn main() -> ExitCode {
    // The shell asks what could follow; then nothing else is done.
    CompleteEnv::with_factory(Cli::command).complete();
    // Before there are threads; without it, memory is only forecast less well.
    zoo_engine::share_one_arena();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help asked for goes to stdout and a usage error to stderr; a reader that has gone away is not a failure.
            let _ = error.print();
            return if error.use_stderr() { Exit::Invalid } else { Exit::Pass }.into();
        }
    };
    catch_unwind(AssertUnwindSafe(|| run(&cli))).unwrap_or(Exit::Internal).into()
}

/// Runs one command; errors have been reported when it returns.
fn run(cli: &Cli) -> Exit {
    let mut context = cmd::Context::new(&cli.global);
    match cmd::run(&cli.command, &mut context) {
        Ok(exit) => exit,
        Err(failure) => {
            context.report(&failure);
            let exit = failure.exit();
            // The other ranks would wait for this one.
            context.ranks.abort(exit as i32);
            exit
        }
    }
}

//! The `zoo` command: joins recipes, graphs, goldens, data sets and training.
//!
//! Results go to stdout, progress and messages to stderr. `cmd` has one file per command. [`Exit`] lists the exit
//! codes, and [`Failure`] is the only place where errors are mapped to them.
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
mod context;
mod convergence;
mod evaluating;
mod excerpt;
mod exit;
mod failure;
mod interrupt;
mod machine;
mod memory;
mod numbers;
mod options;
mod output;
mod progress;
mod proof;
mod recipe_file;
mod simulated;
mod table;
mod trained;
mod training_data;
mod version;

pub use cli::Cli;
pub use exit::Exit;
pub use failure::Failure;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// Runs the command with the arguments of this process.
pub fn main() -> ExitCode {
    // If the shell requests completions, print them and exit.
    CompleteEnv::with_factory(Cli::command).complete();
    // Must precede the first thread; without it, checks take longer and the memory forecast is less accurate.
    zoo_engine::keep_memory();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(mut error) => {
            keep_near_misses(&mut error);
            suggest_set(&mut error);
            // Requested help goes to stdout and usage errors to stderr; a closed pipe is not a failure.
            let _ = error.print();
            return if error.use_stderr() { Exit::Invalid } else { Exit::Pass }.into();
        }
    };
    catch_unwind(AssertUnwindSafe(|| run(&cli))).unwrap_or(Exit::Internal).into()
}

/// Suggests only the command that was probably meant. clap also lists names that merely share some letters, and does
/// not know that `zoo report` compares runs.
fn keep_near_misses(error: &mut clap::Error) {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let similar = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(similar)) => similar.as_slice(),
        _ => &[],
    };
    let near = match given.as_str() {
        "prove" => Some("check"),
        "compare" => Some("report"),
        "predict" | "simulate" => Some("profile"),
        given => zoo_graph::did_you_mean(given, similar.iter().map(String::as_str))
            .or_else(|| similar.iter().map(String::as_str).find(|name| name.starts_with(given))),
    };
    let near = near.map(|near| ContextValue::Strings(vec![near.to_owned()]));
    match near {
        Some(near) => error.insert(ContextKind::SuggestedSubcommand, near),
        None => error.remove(ContextKind::SuggestedSubcommand),
    };
}

/// If an unknown option looks like a setting of a recipe (`--epochs 3`), explains how to change the recipe.
fn suggest_set(error: &mut clap::Error) {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return };
    let setting = match option.trim_start_matches('-') {
        "epochs" => "train.epochs=3",
        "batch" | "batch-size" => "train.batch=64",
        "seed" => "train.seed=1",
        "lr" | "learning-rate" => "schedule.cosine.base_lr=0.1",
        _ => return,
    };
    if error.kind() == ErrorKind::UnknownArgument {
        let tip = format!("settings of a recipe are changed with '--set', for example '--set {setting}'").into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
        // clap's would be that of the suggested option alone.
        error.remove(ContextKind::Usage);
    }
}

/// Runs one command and reports its errors.
fn run(cli: &Cli) -> Exit {
    let mut context = context::Context::new(&cli.global, Cli::command);
    match cmd::run(&cli.command, &mut context) {
        Ok(exit) => exit,
        Err(failure) => {
            context.report(&failure);
            let exit = failure.exit();
            // Otherwise the other ranks would wait for this one.
            context.ranks.abort(exit as i32);
            exit
        }
    }
}

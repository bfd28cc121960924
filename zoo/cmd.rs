//! The commands, one file each.

mod advise;
mod bench;
mod bisect;
mod check;
mod completions;
mod cp;
mod data;
mod device;
mod emit;
mod eval;
mod export;
mod golden;
mod import;
mod judge;
mod ls;
mod man;
mod new;
mod profile;
mod report;
mod run;
mod schema;
mod score;
mod serve;
mod show;
mod study;
mod validate;
mod verdict;
mod weights;

use crate::context::Context;
use crate::{Exit, Failure};
use clap::Subcommand;

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the recipes
    #[command(alias = "list")]
    Ls(ls::Args),
    /// Show the layers, the training-step graph or the learning rates of a recipe
    Show(show::Args),
    /// Write a commented recipe to start from
    New(new::Args),
    /// Write the recipe of a PyTorch network from its trace
    Import(import::Args),
    /// Copy a recipe under a new name
    Cp(cp::Args),
    /// List all mistakes in recipes, with line and column
    Validate(validate::Args),
    /// Prove one training step against golden tensors of a reference framework
    #[command(alias = "test")]
    Check(check::Args),
    /// Find the first module that differs in a training step that ran elsewhere
    Judge(judge::Args),
    /// Train a recipe to its target
    #[command(alias = "train")]
    Run(run::Args),
    /// Test whether runs with different seeds converge like the reference
    Verdict(verdict::Args),
    /// Compare runs: results, settings, curves
    Report(report::Args),
    /// Show runs live in a browser
    Serve(serve::Args),
    /// Evaluate a checkpoint on the held-out data
    Eval(eval::Args),
    /// Measure a training step on this machine
    Bench(bench::Args),
    /// Find the operators that must stay fp32 on a device
    Bisect(bisect::Args),
    /// Predict the time of a step on a simulated NPU
    Profile(profile::Args),
    /// List what makes a recipe slow on a simulated NPU, with line and cost
    Advise(advise::Args),
    /// Replay a published series of measurements and compare the results
    Study(study::Args),
    /// Compare predictions with published throughput
    Score(score::Args),
    /// Fit a device file to measured kernels
    #[command(subcommand)]
    Device(device::Command),
    /// Record goldens, and compare dumps of a step
    #[command(subcommand)]
    Golden(golden::Command),
    /// Write a network as an ONNX model for inference
    Export(export::Args),
    /// Write a recipe as a program for another framework
    Emit(emit::Args),
    /// Exchange weights with PyTorch
    #[command(subcommand)]
    Weights(weights::Command),
    /// Inspect the data of a recipe, and write them for other programs
    #[command(subcommand)]
    Data(data::Command),
    /// Print the JSON Schemas of recipes (for editors) and events (for scripts)
    Schema(schema::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Write manual pages
    Man(man::Args),
}

/// Runs a command.
///
/// # Errors
/// The command could not be completed. A failed judgement is not an error.
pub fn run(command: &Command, context: &mut Context) -> Result<Exit, Failure> {
    match command {
        Command::Ls(args) => ls::run(args, context),
        Command::Show(args) => show::run(args, context),
        Command::New(args) => new::run(args, context),
        Command::Import(args) => import::run(args, context),
        Command::Cp(args) => cp::run(args, context),
        Command::Validate(args) => validate::run(args, context),
        Command::Check(args) => check::run(args, context),
        Command::Judge(args) => judge::run(args, context),
        Command::Run(args) => run::run(args, context),
        Command::Verdict(args) => verdict::run(args, context),
        Command::Report(args) => report::run(args, context),
        Command::Serve(args) => serve::run(args, context),
        Command::Eval(args) => eval::run(args, context),
        Command::Bench(args) => bench::run(args, context),
        Command::Bisect(args) => bisect::run(args, context),
        Command::Profile(args) => profile::run(args, context),
        Command::Advise(args) => advise::run(args, context),
        Command::Study(args) => study::run(args, context),
        Command::Score(args) => score::run(args, context),
        Command::Device(command) => device::run(command, context),
        Command::Golden(command) => golden::run(command, context),
        Command::Export(args) => export::run(args, context),
        Command::Emit(args) => emit::run(args, context),
        Command::Weights(command) => weights::run(command, context),
        Command::Data(command) => data::run(command, context),
        Command::Schema(args) => schema::run(args, context),
        Command::Completions(args) => completions::run(args, context),
        Command::Man(args) => man::run(args, context),
    }
}

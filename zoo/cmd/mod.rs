//! The commands, one file each.

mod advise;
mod bench;
mod bisect;
mod check;
mod completions;
mod cp;
mod data;
mod eval;
mod export;
mod golden;
mod import;
mod judge;
mod ls;
mod man;
mod new;
mod output;
mod profile;
mod report;
mod run;
mod schema;
mod score;
mod serve;
mod show;
mod simulated;
mod study;
mod trained;
mod validate;
mod verdict;
mod weights;

use crate::catalog::Catalog;
use crate::ci::Ci;
use crate::cli::{Change, Format, Global};
use crate::console::Console;
use crate::progress::Progress;
use crate::{Exit, Failure};
use clap::Subcommand;
use serde::Serialize;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use tracing::warn;
use zoo_npu::DeviceLibrary;
use zoo_ranks::Ranks;
use zoo_recipe::{Diagnostics, Loaded};

/// Version of all JSON output. It increases when a field changes its meaning or is removed.
pub const SCHEMA_VERSION: u32 = 1;

/// The default profile of a training.
const MINI: &str = "mini";
/// The recipe as written.
const FULL: &str = "full";

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
    /// Record goldens, and compare dumps of a step
    #[command(subcommand)]
    Golden(golden::Command),
    /// Write a network as an ONNX model for inference
    Export(export::Args),
    /// Exchange weights with PyTorch
    #[command(subcommand)]
    Weights(weights::Command),
    /// Inspect the data of a recipe
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
        Command::Golden(command) => golden::run(command, context),
        Command::Export(args) => export::run(args, context),
        Command::Weights(command) => weights::run(command, context),
        Command::Data(command) => data::run(command, context),
        Command::Schema(args) => schema::run(args, context),
        Command::Completions(args) => completions::run(args, context),
        Command::Man(args) => man::run(args, context),
    }
}

/// Refuses output files that are also inputs or other outputs. Special files, such as /dev/null, may occur
/// repeatedly.
fn expect_apart<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    for file in files {
        let is_special = file.metadata().is_ok_and(|there| !there.is_file());
        if !is_special && !seen.insert(file.canonicalize().unwrap_or_else(|_| file.to_path_buf())) {
            let file = file.display();
            let message =
                format!("{file}: a file cannot be read and written, or written twice; choose another file to write");
            return Err(Failure::Usage(message));
        }
    }
    Ok(())
}

/// Sets the number of threads of all parallel computations.
fn use_threads(threads: Option<usize>) -> Result<(), Failure> {
    let Some(threads) = threads else { return Ok(()) };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    pool.map_err(|error| Failure::Usage(format!("cannot use {threads} threads: {error}")))
}

/// State shared by commands.
pub struct Context {
    /// Results.
    pub out: Console,
    /// Messages and progress.
    pub progress: Progress,
    /// Output for CI systems.
    pub ci: Ci,
    /// Output format.
    pub format: Format,
    /// The processes that train together, including this one.
    pub ranks: Ranks,
    recipes: Vec<PathBuf>,
}

impl Context {
    /// Creates the state from the command line.
    pub fn new(global: &Global) -> Self {
        let progress = Progress::new(global);
        Self {
            out: Console::new(global.color),
            ci: Ci::new(global, &progress),
            progress,
            format: global.format,
            ranks: Ranks::alone(),
            recipes: global.recipes.clone(),
        }
    }

    /// Joins the processes that a launcher started together with this one. All except the first only print errors.
    ///
    /// # Errors
    /// Processes that cannot train together.
    pub fn join(&mut self) -> Result<(), Failure> {
        self.ranks = zoo_ranks::launched()?;
        if !self.ranks.is_first() {
            self.progress.mute(self.ranks.rank());
            self.out.mute();
        }
        Ok(())
    }

    /// Searches recipes and devices in these folders too, after those of the command line; missing folders are ignored.
    pub fn also_search(&mut self, folders: impl IntoIterator<Item = PathBuf>) {
        for folder in folders {
            if folder.is_dir() && !self.recipes.contains(&folder) {
                self.recipes.push(folder);
            }
        }
    }

    /// Folders of `--recipes`, as absolute paths.
    ///
    /// # Errors
    /// The working directory does not exist any more.
    pub fn searched(&self) -> std::io::Result<Vec<PathBuf>> {
        self.recipes.iter().map(std::path::absolute).collect()
    }

    /// Finds recipes and goldens.
    ///
    /// # Errors
    /// A folder of `--recipes` that does not exist.
    pub fn catalog(&self) -> Result<Catalog, Failure> {
        Catalog::new(&self.recipes)
    }

    /// The library of devices, next to the recipes.
    ///
    /// # Errors
    /// A folder of `--recipes` that does not exist.
    pub fn devices(&self) -> Result<DeviceLibrary, Failure> {
        Ok(DeviceLibrary::new(self.catalog()?.dirs()))
    }

    /// Loads a recipe and shows its warnings.
    ///
    /// # Errors
    /// All mistakes in the recipe.
    pub fn load(&self, catalog: &Catalog, name: &str, change: &Change) -> Result<Loaded, Failure> {
        let loaded = catalog.load(name, change.profile.as_deref(), &change.sets)?;
        self.warn(&loaded.warnings);
        Ok(loaded)
    }

    /// Shows warnings of a recipe.
    pub fn warn(&self, warnings: &Diagnostics) {
        for warning in warnings.iter() {
            self.progress.line(&warning.to_string());
            self.ci.diagnostic(warning);
        }
    }

    /// Loads a recipe as [`Context::load`], by default with the profile `mini` if it has one. Also returns the name
    /// of the profile. `full` is the recipe as written, unless it has a profile of that name; for recipes without
    /// profiles no name is returned.
    ///
    /// # Errors
    /// All mistakes in the recipe.
    pub fn load_to_train(
        &self,
        catalog: &Catalog,
        name: &str,
        change: &Change,
    ) -> Result<(Option<String>, Loaded), Failure> {
        let options = |profile: Option<&str>| Change { profile: profile.map(str::to_owned), sets: change.sets.clone() };
        let known = catalog.load(name, None, &[])?.profiles;
        let is_known = |profile: &str| known.iter().any(|name| name == profile);
        let (name_of, profile) = match change.profile.as_deref() {
            Some(FULL) if !is_known(FULL) => (Some(FULL), None),
            Some(given) => (Some(given), Some(given)),
            None if is_known(MINI) => (Some(MINI), Some(MINI)),
            None => (Some(FULL), None),
        };
        let name_of = name_of.filter(|_| !known.is_empty()).map(str::to_owned);
        Ok((name_of, self.load(catalog, name, &options(profile))?))
    }

    /// Reports the error of a command: on stderr, and as JSON on stdout with `--format json`.
    pub fn report(&mut self, failure: &Failure) {
        #[derive(Serialize)]
        struct Report<'a> {
            schema_version: u32,
            error: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            errors: Option<&'a Diagnostics>,
        }
        let errors = if let Failure::Recipe(errors) = failure { Some(errors) } else { None };
        match errors {
            Some(errors) => self.progress.line(&errors.to_string()),
            None => self.progress.error(&failure.to_string()),
        }
        if let Some(hint) = failure.hint() {
            self.progress.line(&format!("hint: {hint}"));
        }
        self.ci.failure(failure);
        if self.format == Format::Json {
            let error = failure.to_string();
            if let Err(error) = self.out.json(&Report { schema_version: SCHEMA_VERSION, error, errors }) {
                warn!("cannot write the results: {error}");
            }
        }
    }
}

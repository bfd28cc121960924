//! What all commands share: where results go, and where recipes are found.

use crate::catalog::Catalog;
use crate::ci::Ci;
use crate::console::Console;
use crate::options::{Change, Format, Global};
use crate::progress::Progress;
use crate::{Exit, Failure};
use serde::Serialize;
use std::cell::OnceCell;
use std::path::PathBuf;
use tracing::warn;
use zoo_npu::DeviceLibrary;
use zoo_ranks::Ranks;
use zoo_recipe::{Diagnostics, Loaded};

/// Version of all JSON output. It increases when a field changes its meaning or is removed.
pub const SCHEMA_VERSION: u32 = 1;

/// The default profile of a training.
const MINI: &str = "mini";
/// The recipe as written.
pub const FULL: &str = "full";

/// Sets the number of threads of all parallel computations.
///
/// # Errors
/// They cannot be started.
pub fn use_threads(threads: Option<usize>) -> Result<(), Failure> {
    let Some(threads) = threads else { return Ok(()) };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    pool.map_err(|error| Failure::Usage(format!("cannot use {threads} threads: {error}")))
}

/// A report with its version.
#[derive(Serialize)]
struct Versioned<'a, R> {
    schema_version: u32,
    #[serde(flatten)]
    report: &'a R,
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
    /// The command line of all commands, for manual pages.
    pub grammar: fn() -> clap::Command,
    recipes: Vec<PathBuf>,
    catalog: OnceCell<Catalog>,
}

impl Context {
    /// Creates the state from the command line.
    pub fn new(global: &Global, grammar: fn() -> clap::Command) -> Self {
        let progress = Progress::new(global);
        Self {
            out: Console::new(global.color),
            ci: Ci::new(global, &progress),
            progress,
            format: global.format,
            ranks: Ranks::alone(),
            grammar,
            recipes: global.recipes.clone(),
            catalog: OnceCell::new(),
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
                self.catalog.take();
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
    pub fn catalog(&self) -> Result<&Catalog, Failure> {
        match self.catalog.get() {
            Some(catalog) => Ok(catalog),
            None => {
                let catalog = Catalog::new(&self.recipes)?;
                Ok(self.catalog.get_or_init(|| catalog))
            }
        }
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
    pub fn load(&self, name: &str, change: &Change) -> Result<Loaded, Failure> {
        let loaded = self.catalog()?.load(name, change.profile.as_deref(), &change.sets)?;
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
    pub fn load_to_train(&self, name: &str, change: &Change) -> Result<(Option<String>, Loaded), Failure> {
        let options = |profile: Option<&str>| Change { profile: profile.map(str::to_owned), sets: change.sets.clone() };
        let known = self.catalog()?.load(name, None, &[])?.profiles;
        let is_known = |profile: &str| known.iter().any(|name| name == profile);
        let (name_of, profile) = match change.profile.as_deref() {
            Some(FULL) if !is_known(FULL) => (Some(FULL), None),
            Some(given) => (Some(given), Some(given)),
            None if is_known(MINI) => (Some(MINI), Some(MINI)),
            None => (Some(FULL), None),
        };
        let name_of = name_of.filter(|_| !known.is_empty()).map(str::to_owned);
        Ok((name_of, self.load(name, &options(profile))?))
    }

    /// Prints the report of a command, which has passed: as JSON, with the version of all such output, or as `text`.
    ///
    /// # Errors
    /// Stdout cannot be written.
    pub fn show(
        &mut self,
        report: &impl Serialize,
        text: impl FnOnce(&mut Console) -> Result<(), Failure>,
    ) -> Result<Exit, Failure> {
        match self.format {
            Format::Json => self.out.json(&Versioned { schema_version: SCHEMA_VERSION, report })?,
            Format::Text => text(&mut self.out)?,
        }
        Ok(Exit::Pass)
    }

    /// Reports the error of a command: on stderr, and as JSON on stdout with `--format json`.
    pub fn report(&mut self, failure: &Failure) {
        #[derive(Serialize)]
        struct Report<'a> {
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
            if let Err(error) =
                self.out.json(&Versioned { schema_version: SCHEMA_VERSION, report: &Report { error, errors } })
            {
                warn!("cannot write the results: {error}");
            }
        }
    }
}

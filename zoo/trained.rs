//! The weights that a command uses: from a run folder, which stores recipe, profile, overrides, data and device, or
//! from a file.

use crate::Failure;
use crate::complete;
use crate::context::{Context, FULL};
use crate::options::Change;
use std::path::{Path, PathBuf};
use tracing::{info, warn};
use zoo_graph::Graph;
use zoo_recipe::{BuildOptions, Loaded, Recipe};
use zoo_train::weights::{Fit, Naming, StateDict, Weights};
use zoo_train::{HOST, Launch, RunFolder, TrainError};

/// Which weights, and the network that they are for.
#[derive(Clone, Debug, clap::Args)]
pub struct TrainedArgs {
    /// Run folder, which stores its recipe, profile, overrides, data and device; or name of a recipe, or path of its
    /// file
    #[arg(value_name = "RUN|RECIPE", add = complete::runs_or_recipes())]
    recipe: String,
    #[command(flatten)]
    change: Change,
    /// A checkpoint, a run folder (its newest checkpoint is used), or a state_dict: .safetensors, .pth, .pt, shards
    /// with an index, .ckpt of MindSpore
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Entry of a PyTorch file that contains the state_dict, keys joined by dots; by default the one that fits best
    #[arg(long, value_name = "KEY", requires = "checkpoint")]
    entry: Option<String>,
}

/// The profile with which a recipe is loaded if neither the command line nor a run names one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usual {
    /// The profile that `zoo run` trains by default.
    Trained,
    /// No profile.
    AsWritten,
}

/// A network and the location of its weights.
pub struct Trained {
    /// The recipe: as it was trained in the run, with the overrides of the command line.
    pub loaded: Loaded,
    /// File or folder of the weights.
    pub checkpoint: Option<PathBuf>,
    /// The run of the weights, if its folder is known.
    pub run: Option<Run>,
}

/// The content of a run folder.
pub struct Run {
    /// The folder.
    pub folder: PathBuf,
    /// The settings with which it was started; `None` for runs of versions that did not store them.
    pub launch: Option<Launch>,
}

impl TrainedArgs {
    /// The entry of the file of weights, if one is named.
    pub fn entry(&self) -> Option<&str> {
        self.entry.as_deref()
    }

    /// Loads the recipe. Settings of the run folder are used and reported.
    ///
    /// # Errors
    /// Mistakes in the recipe; a profile other than the run's.
    pub fn load(&self, usual: Usual, context: &mut Context) -> Result<Trained, Failure> {
        let named = Path::new(&self.recipe);
        let (run, checkpoint) = match has_recipe(named) {
            true => (Some(named), Some(self.checkpoint.clone().unwrap_or_else(|| named.to_owned()))),
            false => (self.checkpoint.as_deref().and_then(run_of), self.checkpoint.clone()),
        };
        let Some(folder) = run else {
            if names_no_file(named) {
                return Err(Failure::Usage(format!("there is no run folder or recipe `{}`", self.recipe)));
            }
            return self.of_recipe(usual, checkpoint, context);
        };
        let launch = Launch::read(folder)?;
        context.also_search(launch.iter().flat_map(|launch| launch.recipes.iter().cloned()));
        let catalog = context.catalog()?;
        let file = RunFolder::recipe_file(folder);
        let loaded = catalog.load(&file.to_string_lossy(), None, &self.change.sets)?;
        // The weights of a run can be used for another network.
        if folder != named && catalog.load(&self.recipe, None, &[])?.recipe.name != loaded.recipe.name {
            return self.of_recipe(usual, checkpoint, context);
        }
        context.warn(&loaded.warnings);
        let run = Run { folder: folder.to_owned(), launch };
        run.expect_profile(self.change.profile.as_deref())?;
        info!("{}", run.describe(&loaded.recipe.name));
        Ok(Trained { loaded, checkpoint, run: Some(run) })
    }

    fn of_recipe(&self, usual: Usual, checkpoint: Option<PathBuf>, context: &mut Context) -> Result<Trained, Failure> {
        let loaded = match usual {
            Usual::Trained => context.load_to_train(&self.recipe, &self.change)?.1,
            Usual::AsWritten => context.load(&self.recipe, &self.change)?,
        };
        Ok(Trained { loaded, checkpoint, run: None })
    }
}

impl Trained {
    /// The weights, for a command that needs them.
    ///
    /// # Errors
    /// No weights were given.
    pub fn expect_checkpoint(&self) -> Result<&Path, Failure> {
        let none = || Failure::Usage("no weights given: name a run folder, or use --checkpoint FILE".to_owned());
        self.checkpoint.as_deref().ok_or_else(none)
    }
}

impl Run {
    fn expect_profile(&self, given: Option<&str>) -> Result<(), Failure> {
        let (Some(given), Some(launch)) = (given, &self.launch) else { return Ok(()) };
        let own = launch.profile.as_deref().unwrap_or(FULL);
        if given == own {
            return Ok(());
        }
        let folder = self.folder.display();
        let own = if own == FULL { "without a profile".to_owned() } else { format!("with the profile `{own}`") };
        Err(Failure::Usage(format!("{folder} was trained {own}, not `{given}`: remove --profile")))
    }

    /// The settings taken from the folder.
    fn describe(&self, recipe: &str) -> String {
        let mut parts = vec![format!("recipe {recipe}")];
        if let Some(launch) = &self.launch {
            parts.extend(launch.profile.iter().map(|profile| format!("profile {profile}")));
            parts.extend(launch.sets.iter().cloned());
            parts.extend(launch.data.iter().map(|data| format!("data {}", data.display())));
            parts.extend(launch.device.iter().filter(|name| *name != HOST).map(|name| format!("device {name}")));
        }
        format!("as in {}: {}", self.folder.display(), parts.join(", "))
    }
}

/// The run folder of a checkpoint: the folder itself, or the parent of its folder `checkpoints`.
fn run_of(checkpoint: &Path) -> Option<&Path> {
    [Some(checkpoint), checkpoint.parent().and_then(Path::parent)].into_iter().flatten().find(|path| has_recipe(path))
}

/// Whether this is the folder of a run that has already stored its recipe.
fn has_recipe(path: &Path) -> bool {
    RunFolder::is_run(path) && RunFolder::recipe_file(path).is_file()
}

/// Whether this is neither the name of a recipe nor the path of a file, so a run folder was meant.
pub fn names_no_file(named: &Path) -> bool {
    let is_yaml = named.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    named.components().count() > 1 && !is_yaml && !named.is_file()
}

/// Reads weights that must fit the network.
///
/// # Errors
/// A file that cannot be read, or whose tensors do not fit.
pub fn read(path: &Path, entry: Option<&str>, graph: &Graph) -> Result<Weights, Failure> {
    let weights = Weights::read(path, entry, graph, &Naming::default())?;
    expect_fit(&weights.fit)?;
    Ok(weights)
}

/// Refuses weights that do not fit, and tells how the others were found in the file.
pub fn expect_fit(fit: &Fit) -> Result<(), Failure> {
    if !fit.is_enough() {
        return Err(TrainError::Misfit(Box::new(fit.clone())).into());
    }
    let file = fit.file.display();
    fit.entry.iter().for_each(|entry| info!("{file}: entry {entry}"));
    fit.notes().iter().for_each(|note| info!("{file}: {note}"));
    if !fit.surplus.is_empty() {
        let named: Vec<&str> = fit.surplus.iter().take(4).map(|shaped| shaped.name.as_str()).collect();
        let more = if fit.surplus.len() > named.len() { ", ..." } else { "" };
        warn!("{file}: {} tensors that the network does not have: {}{more}", fit.surplus.len(), named.join(", "));
    }
    Ok(())
}

/// The graph of the network alone, whose variables are those of a state_dict.
pub fn network(recipe: &Recipe) -> Result<Graph, Failure> {
    Ok(zoo_recipe::build(recipe, &recipe.resolve()?, &BuildOptions::eval(1))?)
}

/// A file for weights; its name determines the format.
///
/// # Errors
/// Another format.
pub fn state_file(path: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    let extension = path.extension().and_then(|extension| extension.to_str());
    // Special files, such as /dev/null, can have any name.
    let is_special = path.metadata().is_ok_and(|there| !there.is_file());
    match extension {
        Some("safetensors" | "pth" | "pt" | "ckpt") => Ok(path),
        _ if is_special => Ok(path),
        _ => Err("the name must end in .safetensors, .pth, .pt or .ckpt, which decides the format".to_owned()),
    }
}

/// The weights for a file of this name: MindSpore has names of its own, PyTorch a counter for each normalisation.
pub fn state_for(path: &Path, weights: &Weights, graph: &Graph, steps: Option<u64>) -> Result<StateDict, TrainError> {
    let state = StateDict::new(weights);
    match (path.extension().is_some_and(|extension| extension == "ckpt"), steps) {
        (true, _) => Ok(state.with_names_of_mindspore(graph)),
        (false, Some(steps)) => Ok(state.with_counters(graph, steps)?),
        (false, None) => Ok(state),
    }
}

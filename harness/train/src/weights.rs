//! Weights with state_dict names, from a run, a checkpoint, a safetensors file, a file of `torch.save`, a checkpoint of
//! MindSpore, or a folder of shards.
//!
//! [`Weights::read`] looks at names and shapes before it reads values. Of the dictionaries that a file holds it takes
//! the one that fits the network best, and gives its tensors the names of the network.

mod beside;
mod choice;
mod fit;
mod naming;
mod opened;
mod shards;
mod state_dict;

pub use fit::{Beside, Fit, Renamed, Shaped, Tied, Unlike};
pub use naming::Naming;
pub use state_dict::{StateDict, replace, write};

use candle_core::Tensor;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use zoo_graph::Graph;

use crate::checkpoint::{CheckpointError, CheckpointStore, DataIdentity};
use choice::Candidate;
use naming::Wanted;
use opened::Opened;

/// Tensors in f32, under the names of a network, and their source.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The file.
    pub file: PathBuf,
    /// Their origin, if zoo trained them.
    pub origin: Option<Origin>,
    /// The tensors. A checkpoint of zoo also has optimizer state, as `PARAMETER/SLOT`.
    pub tensors: BTreeMap<String, Tensor>,
    /// How they fit the network.
    pub fit: Fit,
}

/// Information about the training of a checkpoint of zoo.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// Steps done.
    pub step: u64,
    /// Name of the recipe.
    pub recipe: String,
    /// The data.
    pub data: DataIdentity,
    /// The device: a simulated device, or [`HOST`](crate::HOST).
    pub device: String,
}

impl Weights {
    /// Reads the weights of a network from the file at `path`, from the newest checkpoint if it is a run folder, or from
    /// the shards in a folder. The type of file is detected from its content. `entry` selects a dictionary of a file
    /// that holds several, with keys joined by dots; without it, the one that fits best is taken.
    ///
    /// # Errors
    /// A file that is missing, truncated, damaged, of another format, or contains no state_dict.
    pub fn read(path: &Path, entry: Option<&str>, graph: &Graph, naming: &Naming) -> Result<Self, CheckpointError> {
        let opened = open(path)?;
        let wanted = Wanted::new(graph);
        let entries = opened.entries();
        let chosen = choice::choose(&entries, entry, &wanted, naming)
            .map_err(|reason| CheckpointError::unusable(path, reason))?;
        let (file, origin) = (opened.path().to_owned(), opened.origin());
        let theirs = opened.read(chosen.place, |name| chosen.matched.names.contains_key(name))?;
        let fit = Fit::new(file.clone(), &chosen, &wanted, &theirs, origin.as_ref());
        let tensors = theirs.into_iter().map(|(name, tensor)| (chosen.matched.ours(&name), tensor)).collect();
        Ok(Self { file, origin, tensors, fit })
    }

    /// How the tensors fit another network.
    ///
    /// # Errors
    /// There are no tensors.
    pub fn fit_of(&self, graph: &Graph) -> Result<Fit, CheckpointError> {
        let shapes = self.tensors.iter().map(|(name, tensor)| (name.clone(), Some(tensor.dims().to_vec()))).collect();
        let (wanted, only) = (Wanted::new(graph), [Candidate { name: String::new(), shapes }]);
        let chosen = choice::choose(&only, None, &wanted, &Naming::default());
        let chosen = chosen.map_err(|reason| CheckpointError::unusable(&self.file, reason))?;
        Ok(Fit::new(self.file.clone(), &chosen, &wanted, &self.tensors, self.origin.as_ref()))
    }

    /// The tensor for a variable. If a parameter has a moving average, the average is used.
    pub fn for_variable(&self, variable: &str) -> Option<&Tensor> {
        self.tensors.get(&format!("{variable}/{}", zoo_graph::EMA)).or_else(|| self.tensors.get(variable))
    }
}

const NO_CHECKPOINT: &str = "no checkpoint in this folder, and no weights in shards (model.safetensors.index.json)";

/// Opens a file, the newest checkpoint of a run folder, or shards.
fn open(path: &Path) -> Result<Opened, CheckpointError> {
    if path.is_dir() {
        if let Some(shards) = shards::of_folder(path)? {
            return Ok(shards);
        }
        let found = CheckpointStore::of_run(path).latest()?;
        let found = found.ok_or_else(|| CheckpointError::unusable(path, NO_CHECKPOINT))?;
        return Ok(Opened::Checkpoint(found.path, Box::new(found.checkpoint)));
    }
    match shards::is_index(path) {
        true => shards::of_index(path),
        false => Opened::file(path),
    }
}

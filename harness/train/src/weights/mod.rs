//! Weights with state_dict names, from a run, a checkpoint, a safetensors file, or a file of `torch.save`.

mod fit;
mod state_dict;

pub use fit::{Fit, Naming, Shaped, Unlike};
pub use state_dict::{StateDict, replace, write};

use candle_core::{DType, Device, Tensor};
use safetensors::SafeTensors;
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};
use thiserror::Error;
use zoo_datasets::files;
use zoo_tensors::pth;

use crate::checkpoint::{Checkpoint, CheckpointError, CheckpointStore, DataIdentity, Progress, not_finite, read};

/// Tensors by name, in f32, and their source.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The file.
    pub file: PathBuf,
    /// The entry of the file that contains them, if not the file itself (`state_dict` in the file of a training).
    pub entry: Option<String>,
    /// Their origin, if zoo trained them.
    pub origin: Option<Origin>,
    /// The tensors. A checkpoint of zoo also has optimizer state, as `PARAMETER/SLOT`.
    pub tensors: BTreeMap<String, Tensor>,
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

/// Weights that cannot be read or written.
#[derive(Debug, Error)]
pub enum WeightsError {
    /// A checkpoint of this project that cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A folder without checkpoints.
    #[error("{}: no checkpoint in this folder", folder.display())]
    NoCheckpoint {
        /// The folder.
        folder: PathBuf,
    },
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The operating system refused to write.
    #[error("{}: cannot be written: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A file without readable weights.
    #[error("{}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason, and what to do.
        reason: String,
    },
}

impl Weights {
    /// Reads the file at `path`, or the newest checkpoint if it is a run folder. The type of file is detected from its
    /// content. `entry` selects an entry of a PyTorch file that contains more than a state_dict, with keys joined by
    /// dots; without it, the file must contain a unique state_dict.
    ///
    /// # Errors
    /// A file that is missing, truncated, damaged, or contains no state_dict.
    pub fn read(path: &Path, entry: Option<&str>) -> Result<Self, WeightsError> {
        let weights = Self::read_any(path, entry)?;
        if let Ok(Some(name)) = not_finite(&weights.tensors) {
            tracing::warn!("{}: `{name}` has values that are not finite", weights.file.display());
        }
        Ok(weights)
    }

    fn read_any(path: &Path, entry: Option<&str>) -> Result<Self, WeightsError> {
        if path.is_dir() {
            let found = CheckpointStore::of_run(path).latest()?;
            let found = found.ok_or_else(|| WeightsError::NoCheckpoint { folder: path.to_owned() })?;
            return Ok(Self::of(found.path, found.checkpoint));
        }
        let unreadable = |reason: String| WeightsError::Unreadable { path: path.to_owned(), reason };
        let (file, _) = files::open(path).map_err(|source| WeightsError::Io { path: path.to_owned(), source })?;
        if pth::is_zip(&file).map_err(|source| WeightsError::Io { path: path.to_owned(), source })? {
            let (tensors, entry) = pth::read(file, entry).map_err(unreadable)?;
            return Ok(Self { file: path.to_owned(), entry, origin: None, tensors });
        }
        let bytes = read(path).map_err(|source| WeightsError::Io { path: path.to_owned(), source })?;
        if bytes.is_empty() {
            return Err(unreadable("the file is empty".to_owned()));
        }
        if let Some(reason) = pth::is_older(&bytes) {
            return Err(unreadable(reason));
        }
        let of_torch = path.extension().is_some_and(|extension| extension == "pth" || extension == "pt");
        if of_torch && SafeTensors::deserialize(&bytes).is_err() {
            return Err(unreadable("neither a file of torch.save nor a safetensors file".to_owned()));
        }
        if let Some(entry) = entry {
            return Err(unreadable(format!("a safetensors file has no entries, so there is no `{entry}`")));
        }
        match Checkpoint::decode(path, &bytes) {
            Ok(checkpoint) => Ok(Self::of(path.to_owned(), checkpoint)),
            Err(CheckpointError::Foreign { .. }) => {
                let tensors = plain(&bytes).map_err(|error| unreadable(error.to_string()))?;
                Ok(Self { file: path.to_owned(), entry: None, origin: None, tensors })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn of(file: PathBuf, checkpoint: Checkpoint) -> Self {
        let Progress { step, recipe, data, device, .. } = checkpoint.progress;
        let recipe = recipe["name"].as_str().unwrap_or_default().to_owned();
        let origin = Some(Origin { step, recipe, data, device });
        Self { file, entry: None, origin, tensors: checkpoint.variables }
    }
}

/// The tensors of a safetensors file.
fn plain(bytes: &[u8]) -> Result<BTreeMap<String, Tensor>, candle_core::Error> {
    let file = SafeTensors::deserialize(bytes)?;
    let read = |(name, view): (&str, safetensors::tensor::TensorView<'_>)| {
        let tensor = Tensor::from_raw_buffer(view.data(), view.dtype().try_into()?, view.shape(), &Device::Cpu)?;
        Ok((name.to_owned(), tensor.to_dtype(DType::F32)?))
    };
    file.iter().map(read).collect()
}

//! Weights in several files: `model.safetensors.index.json` or `pytorch_model.bin.index.json`, which names the file of
//! each tensor, and the files beside it.

use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};
use zoo_datasets::files;

use super::opened::Opened;
use crate::checkpoint::CheckpointError;

/// Largest index that is read.
const MOST_BYTES: u64 = 256 << 20;
const INDEX: &str = ".index.json";
/// Files of folders with a single file of weights.
const SINGLE: [&str; 2] = ["model.safetensors", "pytorch_model.bin"];
/// Files by which folders of other formats are known, and what to do.
const FOREIGN: [(&str, &str); 3] = [
    (
        ".metadata",
        "a checkpoint of torch.distributed: convert it with python -m torch.distributed.checkpoint.format_utils \
         dcp_to_torch FOLDER FILE",
    ),
    (
        "saved_model.pb",
        "a SavedModel of TensorFlow: set the weights of a PyTorch module from it, and save its state_dict",
    ),
    (
        "_CHECKPOINT_METADATA",
        "a checkpoint of Orbax (JAX): set the weights of a PyTorch module from it, and save its \
                              state_dict",
    ),
];

/// An index: the file of each tensor.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Whether a file is an index, by its name.
pub(super) fn is_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().to_lowercase().ends_with(INDEX))
}

/// The shards in a folder; `None` if it has neither an index nor a file with a usual name.
pub(super) fn of_folder(folder: &Path) -> Result<Option<Opened>, CheckpointError> {
    let io = CheckpointError::io(folder);
    let mut indices = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        indices.extend(Some(path).filter(|path| is_index(path)));
    }
    indices.sort();
    // The same weights are often there twice.
    let safe = indices.iter().find(|path| path.to_string_lossy().contains("safetensors"));
    if let Some(index) = safe.or(indices.first()) {
        return of_index(index).map(Some);
    }
    if let Some((_, reason)) = FOREIGN.iter().find(|(name, _)| folder.join(name).is_file()) {
        return Err(CheckpointError::unusable(folder, *reason));
    }
    let single = SINGLE.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    single.map(|path| Opened::file(&path)).transpose()
}

/// The shards of an index. Each tensor must be in the file that the index names.
pub(super) fn of_index(path: &Path) -> Result<Opened, CheckpointError> {
    let unreadable = |reason: String| CheckpointError::unusable(path, reason);
    let bytes = files::read(path, MOST_BYTES).map_err(CheckpointError::io(path))?;
    let index: Index =
        serde_json::from_slice(&bytes).map_err(|error| unreadable(format!("not an index of shards: {error}")))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (tensor, file) in &index.weight_map {
        let is_beside = Path::new(file).file_name().is_some_and(|name| name == file.as_str());
        if !is_beside {
            return Err(unreadable(format!("the shard `{file}` is not in the folder of the index")));
        }
        names.entry(file).or_default().insert(tensor);
    }
    let mut shards = Vec::new();
    for (file, tensors) in names {
        let shard = Opened::file(&folder.join(file))?;
        let there = shard.first().map(|entry| entry.shapes).unwrap_or_default();
        if let Some(absent) = tensors.iter().find(|tensor| !there.contains_key(**tensor)) {
            return Err(unreadable(format!("`{absent}` is not in {file}, where the index has it")));
        }
        let unlisted = there.keys().find(|tensor| !tensors.contains(tensor.as_str()));
        if let Some(unlisted) = unlisted {
            return Err(unreadable(format!("`{unlisted}` is in {file}, and the index does not have it there")));
        }
        shards.push(shard);
    }
    if shards.is_empty() {
        return Err(unreadable("an index without tensors".to_owned()));
    }
    Ok(Opened::Shards(path.to_owned(), shards))
}

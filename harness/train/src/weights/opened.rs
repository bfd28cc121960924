//! A file of weights whose names and shapes were read, and whose values were not.

use candle_core::{DType, Device, Tensor};
use std::{
    collections::BTreeMap,
    io::Read,
    path::{Path, PathBuf},
};
use zoo_datasets::files;
use zoo_tensors::{Array, ckpt::Ckpt, format, pth, safetensors::Reader};

use super::{Origin, choice::Candidate, naming::Shapes, shards};
use crate::checkpoint::{Checkpoint, CheckpointError, CheckpointStore, Progress, read};

const NO_CHECKPOINT: &str = "no checkpoint in this folder, and no weights in shards (model.safetensors.index.json)";

/// Bytes at the beginning by which checkpoints of MindSpore are known.
const START: u64 = 4096;

/// A file, by its format.
#[derive(Debug)]
pub(super) enum Opened {
    /// A checkpoint of zoo.
    Checkpoint(PathBuf, Box<Checkpoint>),
    /// A file of `torch.save`.
    Torch(PathBuf, Box<pth::Saved>),
    /// A safetensors file.
    Safetensors(Reader),
    /// A checkpoint of MindSpore.
    MindSpore(PathBuf, Ckpt),
    /// Files that hold parts of one dictionary, and their index or folder.
    Shards(PathBuf, Vec<Opened>),
}

impl Opened {
    /// Opens a file, the newest checkpoint of a run folder, or shards.
    pub(super) fn open(path: &Path) -> Result<Self, CheckpointError> {
        if path.is_dir() {
            if let Some(shards) = shards::of_folder(path)? {
                return Ok(shards);
            }
            let found = CheckpointStore::of_run(path).latest()?;
            let found = found.ok_or_else(|| CheckpointError::unusable(path, NO_CHECKPOINT))?;
            return Ok(Self::Checkpoint(found.path, Box::new(found.checkpoint)));
        }
        match shards::is_index(path) {
            true => shards::of_index(path),
            false => Self::file(path),
        }
    }

    /// Opens a single file.
    pub(super) fn file(path: &Path) -> Result<Self, CheckpointError> {
        let unreadable = |reason: String| CheckpointError::unusable(path, reason);
        let io = CheckpointError::io(path);
        let (file, _) = files::open(path).map_err(io)?;
        if pth::is_one(&file).map_err(io)? {
            let saved = pth::Saved::open(file).map_err(unreadable)?;
            if saved.entries().is_empty() {
                return Err(unreadable(format!("it contains no state_dict; {}", saved.outline())));
            }
            return Ok(Self::Torch(path.to_owned(), Box::new(saved)));
        }
        if let Some(foreign) = format::foreign(path).map_err(io)? {
            return Err(unreadable(foreign.to_string()));
        }
        let mut start = Vec::new();
        (&file).take(START).read_to_end(&mut start).map_err(io)?;
        if Ckpt::is_one(&start) && !format::is_safetensors(&start) {
            let checkpoint = Ckpt::parse(files::read(path, u64::MAX).map_err(io)?);
            let checkpoint = checkpoint.map_err(|reason| unreadable(format!("a checkpoint of MindSpore: {reason}")))?;
            return Ok(Self::MindSpore(path.to_owned(), checkpoint));
        }
        let bytes = read(path).map_err(io)?;
        match Checkpoint::decode(path, &bytes) {
            Ok(checkpoint) => Ok(Self::Checkpoint(path.to_owned(), Box::new(checkpoint))),
            Err(CheckpointError::Foreign { .. }) => {
                drop(bytes);
                Reader::open(path).map(Self::Safetensors).map_err(|error| unreadable(said(&error)))
            }
            Err(error) => Err(error),
        }
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Checkpoint(path, _) | Self::Torch(path, _) | Self::MindSpore(path, _) | Self::Shards(path, _) => path,
            Self::Safetensors(reader) => reader.path(),
        }
    }

    /// The training, if zoo wrote the file.
    pub(super) fn origin(&self) -> Option<Origin> {
        let Self::Checkpoint(_, checkpoint) = self else { return None };
        let Progress { step, recipe, data, device, .. } = checkpoint.progress.clone();
        let recipe = recipe["name"].as_str().unwrap_or_default().to_owned();
        Some(Origin { step, recipe, data, device })
    }

    /// The dictionaries of tensors in it.
    pub(super) fn entries(&self) -> Vec<Candidate> {
        let one = |shapes: Shapes| vec![Candidate { name: String::new(), shapes }];
        match self {
            Self::Checkpoint(_, checkpoint) => {
                let shaped = |(name, tensor): (&String, &Tensor)| (name.clone(), Some(tensor.dims().to_vec()));
                one(checkpoint.variables.iter().map(shaped).collect())
            }
            Self::Safetensors(reader) => {
                let shaped = |name: &str| (name.to_owned(), reader.shape(name).map(<[usize]>::to_vec));
                one(reader.names().into_iter().map(shaped).collect())
            }
            Self::MindSpore(_, checkpoint) => {
                one(checkpoint.shapes().map(|(name, shape)| (name.to_owned(), Some(shape.to_vec()))).collect())
            }
            Self::Torch(_, saved) => {
                let candidate =
                    |entry: &pth::Entry| Candidate { name: entry.name.clone(), shapes: saved.shapes(entry) };
                saved.entries().iter().map(candidate).collect()
            }
            Self::Shards(_, shards) => {
                one(shards.iter().filter_map(Self::first).flat_map(|first| first.shapes).collect())
            }
        }
    }

    /// The outermost dictionary, which is what a shard holds.
    pub(super) fn first(&self) -> Option<Candidate> {
        self.entries().into_iter().next()
    }

    /// The tensors of the entry at this place of [`Opened::entries`]. Those that are stored in a way that is not read are
    /// left out unless they are `needed`.
    pub(super) fn read(
        self,
        place: usize,
        needed: impl Fn(&str) -> bool + Copy,
    ) -> Result<BTreeMap<String, Tensor>, CheckpointError> {
        let path = self.path().to_owned();
        let unreadable = |reason: String| CheckpointError::unusable(&path, reason);
        match self {
            Self::Checkpoint(_, checkpoint) => Ok(checkpoint.variables),
            Self::Torch(_, mut saved) => {
                let entry = saved.entries().get(place).cloned().ok_or_else(|| unreadable("no entry".to_owned()))?;
                saved.read(&entry, needed).map_err(unreadable)
            }
            Self::Safetensors(reader) => {
                let names: Vec<String> = reader.names().into_iter().map(str::to_owned).collect();
                let read = |name: String| {
                    let array = reader.read(&name).map_err(|error| unreadable(said(&error)))?;
                    Ok((name, tensor(&array).map_err(unreadable)?))
                };
                names.into_iter().map(read).collect()
            }
            Self::MindSpore(_, checkpoint) => {
                let read = |array: Result<(String, Array), String>| {
                    let (name, array) = array.map_err(unreadable)?;
                    Ok((name, tensor(&array).map_err(unreadable)?))
                };
                checkpoint.arrays().map(read).collect()
            }
            Self::Shards(_, shards) => {
                let mut tensors = BTreeMap::new();
                for shard in shards {
                    tensors.extend(shard.read(0, needed)?);
                }
                Ok(tensors)
            }
        }
    }
}

fn tensor(array: &Array) -> Result<Tensor, String> {
    let values: Vec<f32> = array.values.iter().map(|value| *value as f32).collect();
    let tensor = Tensor::from_vec(values, array.shape.clone(), &Device::Cpu);
    tensor.and_then(|tensor| tensor.to_dtype(DType::F32)).map_err(|error| error.to_string())
}

/// The reason without the path, which the caller names.
fn said(error: &zoo_tensors::TensorsError) -> String {
    match error {
        zoo_tensors::TensorsError::Unreadable { source, .. } => source.to_string(),
        zoo_tensors::TensorsError::Malformed { reason, .. } => reason.clone(),
    }
}

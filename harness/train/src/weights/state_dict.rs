//! Writes the parameters and running statistics of a network as a PyTorch state_dict.

use candle_core::{Device, Tensor};
use std::{collections::HashMap, io, path::Path};
use zoo_datasets::atomic;
use zoo_graph::{Graph, VariableRole};

use super::{Weights, beside::COUNTER};
use crate::checkpoint::CheckpointError;

/// Parameters and running statistics, by their state_dict names.
#[derive(Clone, Debug)]
pub struct StateDict {
    tensors: Vec<(String, Tensor)>,
}

impl StateDict {
    /// The weights of the network, with its names. If a parameter has a moving average, the average is used, as in
    /// evaluation.
    pub fn new(weights: &Weights) -> Self {
        let tensors = weights.fit.taken.iter().filter_map(|name| {
            let tensor = weights.for_variable(name)?.clone();
            Some((name.clone(), tensor))
        });
        Self { tensors: tensors.collect() }
    }

    /// Adds PyTorch's `num_batches_tracked` for running statistics, so that `load_state_dict` finds all names.
    ///
    /// # Errors
    /// Errors of candle.
    pub fn with_counters(mut self, graph: &Graph, steps: u64) -> Result<Self, candle_core::Error> {
        let statistics = graph.variables.iter().filter(|variable| variable.role == VariableRole::RunningMean);
        for module in statistics.filter_map(|variable| variable.name.strip_suffix("running_mean")) {
            let steps = Tensor::new(i64::try_from(steps).unwrap_or(i64::MAX), &Device::Cpu)?;
            self.tensors.push((format!("{module}{COUNTER}"), steps));
        }
        Ok(self)
    }

    /// Names and tensors, in the order of the network.
    pub fn tensors(&self) -> &[(String, Tensor)] {
        &self.tensors
    }

    /// Writes the file: see [`write()`].
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn save(&self, path: &Path) -> Result<(), CheckpointError> {
        write(path, &self.tensors)
    }
}

/// Writes tensors, either completely or not at all: for `torch.load` if the file name ends in `.pth` or `.pt`,
/// otherwise as safetensors.
///
/// # Errors
/// Errors of the operating system.
pub fn write(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), CheckpointError> {
    let refused = |reason: String| CheckpointError::unwritable(path)(io::Error::other(reason));
    let for_torch = path.extension().is_some_and(|extension| extension == "pth" || extension == "pt");
    let bytes = if for_torch {
        zoo_tensors::encode_pth(tensors).map_err(refused)?
    } else {
        // Readers interpret this as tensors of PyTorch.
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let tensors = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
        safetensors::serialize(tensors, Some(metadata)).map_err(|error| refused(error.to_string()))?
    };
    replace(path, &bytes)
}

/// Writes a file with this content, either completely or not at all.
///
/// # Errors
/// Errors of the operating system.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), CheckpointError> {
    atomic::replace(path, |out| out.write_all(content)).map_err(CheckpointError::unwritable(path))
}

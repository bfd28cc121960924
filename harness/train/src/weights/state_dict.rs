//! Writes the parameters and running statistics of a network as a PyTorch state_dict.

use candle_core::{DType, Device, Tensor};
use std::collections::{HashMap, HashSet};
use std::{io, path::Path};
use zoo_datasets::atomic;
use zoo_graph::{Graph, Node, Op, ValueId, VariableRole};
use zoo_tensors::{Array, ElementType, ckpt};

use super::naming::{DIALECT, TABLE};
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

    /// The same with the names of MindSpore's cells: gamma and beta of normalisations, and tables of embeddings.
    pub fn with_names_of_mindspore(mut self, graph: &Graph) -> Self {
        let rows = |node: &Node| matches!(node.op, Op::Gather(_)).then(|| node.inputs.first().copied()).flatten();
        let tables: HashSet<ValueId> = graph.nodes.iter().filter_map(rows).collect();
        for (name, _) in &mut self.tensors {
            let Some(variable) = graph.variables.iter().find(|variable| variable.name == *name) else { continue };
            let is_table = tables.contains(&variable.value);
            let normalises = match variable.role {
                VariableRole::NormWeight | VariableRole::NormBias => true,
                VariableRole::RunningMean | VariableRole::RunningVar => true,
                VariableRole::Weight | VariableRole::Bias => false,
                VariableRole::Slot { .. } | VariableRole::Average { .. } => false,
            };
            let Some((module, last)) = name.rsplit_once('.').filter(|_| is_table || normalises) else { continue };
            // A table has the last of the names, and a normalisation the others.
            let mut theirs = DIALECT.iter().filter(|(theirs, ours)| *ours == last && (*theirs == TABLE) == is_table);
            if let Some((theirs, _)) = theirs.next() {
                *name = format!("{module}.{theirs}");
            }
        }
        self
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

/// Writes tensors, either completely or not at all: for `torch.load` if the file name ends in `.pth` or `.pt`, as a
/// checkpoint of MindSpore if it ends in `.ckpt`, otherwise as safetensors.
///
/// # Errors
/// Errors of the operating system.
pub fn write(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), CheckpointError> {
    let refused = |reason: String| CheckpointError::unwritable(path)(io::Error::other(reason));
    let bytes = match path.extension().and_then(|extension| extension.to_str()) {
        Some("pth" | "pt") => zoo_tensors::encode_pth(tensors).map_err(refused)?,
        Some("ckpt") => {
            let arrays = tensors.iter().map(|(name, tensor)| Ok((name.clone(), array(tensor)?)));
            let arrays = arrays.collect::<Result<Vec<_>, candle_core::Error>>();
            ckpt::encode(&arrays.map_err(|error| refused(error.to_string()))?)
        }
        _ => {
            // Readers interpret this as tensors of PyTorch.
            let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
            let tensors = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
            safetensors::serialize(tensors, Some(metadata)).map_err(|error| refused(error.to_string()))?
        }
    };
    replace(path, &bytes)
}

fn array(tensor: &Tensor) -> Result<Array, candle_core::Error> {
    let dtype = if tensor.dtype().is_float() { ElementType::F32 } else { ElementType::I64 };
    let values = tensor.to_dtype(DType::F64)?.flatten_all()?.to_vec1()?;
    Ok(Array { dtype, shape: tensor.dims().to_vec(), values })
}

/// Writes a file with this content, either completely or not at all.
///
/// # Errors
/// Errors of the operating system.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), CheckpointError> {
    atomic::replace(path, |out| out.write_all(content)).map_err(CheckpointError::unwritable(path))
}

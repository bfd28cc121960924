//! Checkpoints: everything that is needed to resume a training with bit-identical results.

mod compatible;
mod file;
mod store;

pub use compatible::{Change, Setting, changes, differences, differing};
pub(crate) use file::read;
pub use store::{CheckpointStore, Found, Rejected};

use candle_core::{DType, Tensor};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
};
use zoo_tasks::DataSets;

use crate::{
    event::{Evaluated, HOST},
    loss_scale::LossScale,
};

/// Version of the checkpoint's metadata.
pub const FORMAT: u32 = 1;

/// The state of a training between two steps.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The progress of the training.
    pub progress: Progress,
    /// All variables by name: parameters, running statistics, optimizer slots.
    pub variables: BTreeMap<String, Tensor>,
}

/// The progress of a training, and its identity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of this project that wrote it.
    pub zoo: String,
    /// The resolved recipe.
    pub recipe: serde_json::Value,
    /// The data of the training.
    pub data: DataIdentity,
    /// Seed of initialisation, order, augmentation and dropout.
    pub seed: u64,
    /// Steps done; also the counter of the dropout's generator.
    pub step: u64,
    /// Passes done.
    pub epoch: u64,
    /// Batches done in the current pass.
    pub batch: u64,
    /// Time of training and evaluations so far.
    pub seconds: f64,
    /// Evaluations so far.
    pub evaluations: Vec<Evaluated>,
    /// Top-1 accuracy of a linear classifier on the same data, if it was measured.
    pub linear_baseline: Option<f64>,
    /// The device: a simulated device, or [`HOST`].
    #[serde(default = "host")]
    pub device: String,
    /// The loss scale (1 without half precision), and the number of skipped updates. Files without it belong to
    /// trainings without skipped updates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
    /// Updates before the last reset of the optimizer, which its bias correction does not count. Files without it
    /// belong to trainings that count them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub updates_before_reset: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The device of checkpoints that do not store it.
fn host() -> String {
    HOST.to_owned()
}

/// Identifies a pair of training and held-out set, independent of their paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataIdentity {
    /// Samples trained on.
    pub train_samples: usize,
    /// Samples held out.
    pub val_samples: usize,
    /// Number of classes.
    pub classes: usize,
    /// [`DataSets::fingerprint`], hexadecimal.
    pub labels: String,
}

impl DataIdentity {
    /// The identity of training and held-out set.
    pub fn new(sets: &DataSets) -> Self {
        Self {
            train_samples: sets.samples.train_len(),
            val_samples: sets.samples.val_len(),
            classes: sets.samples.classes().len(),
            labels: format!("{:016x}", sets.fingerprint()),
        }
    }
}

impl fmt::Display for DataIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { train_samples, val_samples, classes, labels } = self;
        write!(f, "{train_samples} + {val_samples} samples of {classes} classes (labels {labels})")
    }
}

impl Checkpoint {
    /// The first variable with a NaN or an infinity.
    ///
    /// # Errors
    /// A tensor that candle cannot read.
    pub fn not_finite(&self) -> Result<Option<&str>, candle_core::Error> {
        not_finite(&self.variables)
    }
}

/// The first tensor with a NaN or an infinity.
///
/// # Errors
/// A tensor that candle cannot read.
pub(crate) fn not_finite(tensors: &BTreeMap<String, Tensor>) -> Result<Option<&str>, candle_core::Error> {
    for (name, tensor) in tensors {
        if !is_finite(tensor)? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Whether a tensor has neither NaN nor infinities.
///
/// # Errors
/// A tensor that candle cannot read.
pub(crate) fn is_finite(tensor: &Tensor) -> Result<bool, candle_core::Error> {
    // x - x is zero for every number, and NaN for infinities and NaN.
    let zeros = tensor.sub(tensor)?.to_dtype(DType::F64)?.sum_all()?;
    Ok(zeros.to_scalar::<f64>()? == 0.0)
}

/// A checkpoint, or another file of weights, that cannot be written, read or used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The operating system refused to write.
    #[error("{}: cannot be written: {source}", path.display())]
    Unwritable {
        /// File or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A file that cannot be used: damaged, of another version, or of another training.
    #[error("{}: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system refused to read.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// A safetensors file without the metadata of a checkpoint.
    #[error("{}: not a checkpoint of zoo: {reason}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The missing part.
        reason: String,
    },
    /// Damaged content.
    #[error("{}: damaged: the checksum is {found:08x}, expected {expected:08x}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Checksum in the file.
        expected: u32,
        /// Checksum of the file's content.
        found: u32,
    },
    /// There are checkpoints, but none can be used.
    #[error("{}: no usable checkpoint: {}", folder.display(), list(rejected))]
    NoneUsable {
        /// Folder of the checkpoints.
        folder: PathBuf,
        /// The files, with their errors.
        rejected: Vec<Rejected>,
    },
}

fn list(rejected: &[Rejected]) -> String {
    rejected.iter().map(|r| r.error.to_string()).collect::<Vec<_>>().join("; ")
}

impl CheckpointError {
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    pub(crate) fn unwritable(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Unwritable { path: path.to_owned(), source }
    }

    pub(crate) fn unusable(path: &Path, reason: impl Into<String>) -> Self {
        Self::Unusable { path: path.to_owned(), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests;

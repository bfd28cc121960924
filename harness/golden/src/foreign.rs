//! Recordings of steps that ran elsewhere: one reader per format, with a common result.
//!
//! Nothing in a recording is executed. Its tensors are read one at a time, when they are judged.

mod content;
mod json;
mod layout;
mod msprobe;
pub(crate) mod msprobe_dump;
mod named;
mod names;
mod padiff;
mod quantity;
mod rank_facts;
mod ranks;
mod wrappers;

pub use content::Statistics;
pub use names::Names;
pub use quantity::Quantity;
pub use rank_facts::{Held, RankFacts};
pub use ranks::RankRecordings;

pub(crate) use content::Content;
pub(crate) use quantity::SPELLINGS;
pub(crate) use wrappers::{prefixes, unwrapped};

use crate::{GoldenError, error::malformed};
use content::Claim;
use layout::manifest;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};
use zoo_datasets::atomic;
use zoo_tensors::Array;

/// The writer of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Tensors by name: a folder, safetensors, `.npz`, `.pt`.
    Named,
    /// `msprobe` of MindStudio, for PyTorch or MindSpore.
    Msprobe,
    /// PaDiff, for PaddlePaddle or PyTorch.
    Padiff,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Named => "named tensors",
            Self::Msprobe => "msprobe",
            Self::Padiff => "PaDiff",
        })
    }
}

/// A step that ran elsewhere.
#[derive(Debug)]
pub struct Recording {
    /// Its path.
    pub path: PathBuf,
    /// Its writer.
    pub format: Format,
    /// Its quantities of the step, in its own order.
    pub(crate) entries: Vec<Entry>,
    /// Names that have no meaning in a step.
    pub(crate) unknown: Vec<String>,
    /// Number of other contents that are not compared, by kind.
    pub not_compared: BTreeMap<&'static str, usize>,
    /// The factor on its gradients, if it says so.
    pub loss_scale: Option<f64>,
    /// What it says about the rank that wrote it.
    pub ranks: Option<RankFacts>,
    /// Names of tensors that, as the recording says, are not finite, in its own order.
    pub not_finite: Vec<String>,
}

/// A quantity of the step in a recording.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its name in the recording.
    pub name: String,
    /// Its meaning, with the names of the recipe.
    pub quantity: Quantity,
    /// Its values.
    pub content: Content,
    /// Other statements of the recording about it.
    pub claim: Claim,
    /// The micro-batch of it.
    pub micro_batch: usize,
}

impl Entry {
    /// Reads the tensor.
    ///
    /// # Errors
    /// A file that cannot be read, or that contradicts the recording.
    pub(crate) fn array(&self) -> Result<Option<Array>, GoldenError> {
        let Some((path, array)) = self.content.array()? else { return Ok(None) };
        self.claim.expect(&array).map_err(|message| malformed(&path, message))?;
        Ok(Some(array))
    }
}

impl Recording {
    /// Without entries.
    fn of(path: &Path, format: Format) -> Self {
        Self {
            path: path.to_owned(),
            format,
            entries: Vec::new(),
            unknown: Vec::new(),
            not_compared: BTreeMap::new(),
            loss_scale: None,
            ranks: None,
            not_finite: Vec::new(),
        }
    }

    /// Its parts of each micro-batch. What is not of a micro-batch is with the first.
    ///
    /// # Errors
    /// A micro-batch that is not one of these.
    fn by_micro_batch(self, micro_batches: usize) -> Result<Vec<Self>, String> {
        let (path, format, loss_scale) = (self.path.clone(), self.format, self.loss_scale);
        let mut parts = vec![Self { entries: Vec::new(), ..self }];
        parts.extend((1..micro_batches).map(|_| Self { loss_scale, ..Self::of(&path, format) }));
        for entry in self.entries {
            match parts.get_mut(entry.micro_batch) {
                Some(part) => part.entries.push(entry),
                None => return Err(format!("`{}` is of none of {micro_batches} micro-batches", entry.name)),
            }
        }
        Ok(parts)
    }

    /// Opens the steps of a recording in turn: the folders `step0`, `step1`, ... in it, or the one step that it is.
    ///
    /// # Errors
    /// As [`Recording::open`], or a step that is missing between two others.
    pub fn steps(path: &Path, names: &Names) -> Result<Vec<Self>, GoldenError> {
        let steps = layout::steps(path)?;
        if steps.is_empty() {
            return Ok(vec![Self::open(path, names)?]);
        }
        steps.iter().map(|step| Self::open(step, names)).collect()
    }

    /// Opens a recording of one step, and detects its format by its files.
    ///
    /// # Errors
    /// No known format, several steps, or damaged files.
    pub fn open(path: &Path, names: &Names) -> Result<Self, GoldenError> {
        let mut recording = if let Some(manifest) = manifest(path, padiff::MANIFEST)? {
            padiff::open(&manifest, names)?
        } else if let Some(manifest) = manifest(path, msprobe::MANIFEST)? {
            msprobe::open(&manifest, names)?
        } else {
            let ranks = layout::ranks(path)?.len();
            if ranks > 1 {
                let message = format!(
                    "{ranks} ranks recorded it: say how they share the step (--parallel), or name the folder of one"
                );
                return Err(malformed(path, message));
            }
            named::open(path, names)?
        };
        recording.path = path.to_owned();
        let mut seen: BTreeMap<(String, usize), &str> = BTreeMap::new();
        for entry in &recording.entries {
            if let Some(other) = seen.insert((entry.quantity.key(), entry.micro_batch), &entry.name) {
                let message = format!(
                    "`{other}` and `{}` are both {}: one step of one rank is judged at a time",
                    entry.name,
                    entry.quantity.key()
                );
                return Err(malformed(path, message));
            }
        }
        Ok(recording)
    }
}

/// Writes a file, and creates its folder if necessary.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), GoldenError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(GoldenError::unwritable(folder))?;
    }
    atomic::replace(path, |out| out.write_all(content)).map_err(GoldenError::unwritable(path))
}

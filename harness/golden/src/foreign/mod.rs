//! Recordings of steps that ran elsewhere: one reader per format, with a common result.
//!
//! Nothing in a recording is executed. Its tensors are read one at a time, when they are judged.

mod content;
mod msprobe;
pub(crate) mod msprobe_dump;
mod named;
mod names;
mod padiff;
mod quantity;

pub use content::Statistics;
pub use names::Names;
pub use quantity::Quantity;

pub(crate) use content::Content;
pub(crate) use quantity::SPELLINGS;

use crate::GoldenError;
use content::Claim;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};
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
}

impl Entry {
    /// Reads the tensor.
    ///
    /// # Errors
    /// A file that cannot be read, or that contradicts the recording.
    pub(crate) fn array(&self) -> Result<Option<Array>, GoldenError> {
        let Some((path, array)) = self.content.array()? else { return Ok(None) };
        self.claim.expect(&array).map_err(|message| GoldenError::Malformed { path, message })?;
        Ok(Some(array))
    }
}

impl Recording {
    /// Opens a recording, and detects its format by its files.
    ///
    /// # Errors
    /// No known format, several steps, or damaged files.
    pub fn open(path: &Path, names: &Names) -> Result<Self, GoldenError> {
        let mut recording = if let Some(manifest) = manifest(path, padiff::MANIFEST)? {
            padiff::open(&manifest, names)?
        } else if let Some(manifest) = manifest(path, msprobe::MANIFEST)? {
            msprobe::open(&manifest, names)?
        } else {
            named::open(path, names)?
        };
        recording.path = path.to_owned();
        let mut seen: BTreeMap<String, &str> = BTreeMap::new();
        for entry in &recording.entries {
            if let Some(other) = seen.insert(entry.quantity.key(), &entry.name) {
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

/// The file of this name at a path or in a folder below it, or any other `.json` that is given instead of `dump.json`;
/// `None` if there is none.
///
/// # Errors
/// There are several: only one step of one rank can be judged.
fn manifest(path: &Path, name: &str) -> Result<Option<PathBuf>, GoldenError> {
    if path.is_file() {
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        let is_own = path.file_name().is_some_and(|file| file == name);
        return Ok((is_own || is_json && name == msprobe::MANIFEST).then(|| path.to_owned()));
    }
    let mut found = Vec::new();
    below(path, name, 0, &mut found)?;
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        several => {
            let folders = several.iter().filter_map(|file| file.parent()).map(|folder| folder.display().to_string());
            let folders = folders.take(8).collect::<Vec<_>>().join(", ");
            Err(malformed(path, format!("there are dumps of several steps or ranks, name one: {folders}")))
        }
    }
}

/// Deepest such file below the given path: `step0/rank0/dump.json`.
const DEEPEST: usize = 3;

fn below(folder: &Path, name: &str, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), GoldenError> {
    let here = folder.join(name);
    if here.is_file() {
        found.push(here);
        return Ok(());
    }
    if depth == DEEPEST {
        return Ok(());
    }
    let unreadable = |source| GoldenError::Unreadable { path: folder.to_owned(), source };
    let entries: Result<Vec<_>, _> = fs::read_dir(folder).map_err(unreadable)?.collect();
    let mut paths: Vec<PathBuf> = entries.map_err(unreadable)?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    let is_step = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        path.is_dir() && ["step", "rank", "proc"].iter().any(|prefix| name.starts_with(prefix))
    };
    paths.iter().filter(|path| is_step(path)).try_for_each(|path| below(path, name, depth + 1, found))
}

fn malformed(path: &Path, message: impl Into<String>) -> GoldenError {
    GoldenError::Malformed { path: path.to_owned(), message: message.into() }
}

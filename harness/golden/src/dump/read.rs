//! Reads and validates a dump.

use super::{FORMAT, Manifest, files as files_of};
use crate::GoldenError;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use zoo_datasets::files;
use zoo_tensors::safetensors::Reader;

/// Largest manifest that is read.
const MAX_MANIFEST: u64 = 1 << 30;

/// A dump: its manifest and its values.
pub struct Dump {
    /// The folder.
    pub folder: PathBuf,
    /// The manifest.
    pub manifest: Manifest,
    values: Reader,
}

impl Dump {
    /// Opens a dump.
    ///
    /// # Errors
    /// A folder without a dump, files of another format, or values that are missing or truncated.
    pub fn open(folder: &Path) -> Result<Self, GoldenError> {
        let [manifest, values] = files_of(folder);
        let text = files::read(&manifest, MAX_MANIFEST).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => {
                let message = "there is no dump in this folder: `zoo check RECIPE --dump FOLDER` writes one";
                crate::error::malformed(folder, message)
            }
            _ => GoldenError::unreadable(&manifest)(source),
        })?;
        let malformed = |message: String| crate::error::malformed(&manifest, message);
        #[derive(Deserialize)]
        struct Version {
            zoo_dump: u32,
        }
        let version: Version = serde_json::from_slice(&text).map_err(|e| malformed(format!("not a dump: {e}")))?;
        if version.zoo_dump != FORMAT {
            return Err(malformed(format!("a dump of format {}, and this zoo reads {FORMAT}", version.zoo_dump)));
        }
        let dump: Manifest = serde_json::from_slice(&text).map_err(|e| malformed(e.to_string()))?;
        let values = Reader::open(&values)?;
        let written = dump.nodes.iter().flat_map(|node| &node.writes).chain(&dump.sources);
        if let Some(missing) = written.map(|value| &value.name).find(|name| values.shape(name).is_none()) {
            return Err(malformed(format!("the values of `{missing}` are missing")));
        }
        Ok(Self { folder: folder.to_owned(), manifest: dump, values })
    }

    /// All elements of a value, in row-major order.
    ///
    /// # Errors
    /// The value does not exist, or the file cannot be read.
    pub fn read(&self, name: &str) -> Result<Vec<f64>, GoldenError> {
        Ok(self.values.read(name)?.values)
    }

    /// Shape of a value.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.values.shape(name)
    }
}

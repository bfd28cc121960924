//! Errors for folders that do not contain what they should.

use std::fs;
use std::path::{Path, PathBuf};

use crate::DataError;

/// Refuses a path that is not a folder.
pub(super) fn expect_folder(path: &Path, expected: &'static str) -> Result<(), DataError> {
    if path.is_dir() { Ok(()) } else { Err(DataError::Absent { path: path.to_owned(), expected }) }
}

/// The error for a folder with unknown content. `inner` is the only folder in it, if that has a known layout.
pub(super) fn unknown(root: &Path, expected: &'static str, inner: Option<PathBuf>) -> DataError {
    match describe(root) {
        Ok(found) => DataError::UnknownLayout { root: root.to_owned(), expected, found, inner },
        Err(error) => error,
    }
}

/// The first few entries of a folder, for a message.
fn describe(dir: &Path) -> Result<String, DataError> {
    const SHOWN: usize = 6;
    let names = names(dir)?;
    Ok(match names.len() {
        0 => "nothing".to_owned(),
        n if n <= SHOWN => names.join(", "),
        n => format!("{}, ... ({n} entries)", names[..SHOWN].join(", ")),
    })
}

/// Sorted names in a folder; those of folders end in a slash.
pub(super) fn names(dir: &Path) -> Result<Vec<String>, DataError> {
    let io = |source| DataError::Io { path: dir.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(io)? {
        let entry = entry.map_err(io)?;
        let slash = if entry.path().is_dir() { "/" } else { "" };
        names.push(format!("{}{slash}", entry.file_name().to_string_lossy()));
    }
    names.sort_unstable();
    Ok(names)
}

//! Errors for folders that do not contain what they should.

use std::path::{Path, PathBuf};

use super::foreign::foreign;
use crate::{DataError, files};

/// Refuses a path that is not a folder.
pub(super) fn expect_folder(path: &Path, expected: &'static str) -> Result<(), DataError> {
    if path.is_dir() { Ok(()) } else { Err(DataError::absent(path, expected)) }
}

/// The error for a folder with unknown content, with advice; by default about the format of its files, if that is known.
pub(super) fn unknown(root: &Path, expected: &'static str, advice: Option<String>) -> DataError {
    let found = describe(root);
    match (found, advice.map_or_else(|| foreign(root), |advice| Ok(Some(advice)))) {
        (Ok(found), Ok(advice)) => {
            let advice = advice.map_or_else(String::new, |advice| format!(". {advice}"));
            let reason = format!("no known layout. Expected {expected}. Found {found}{advice}");
            DataError::Absent { path: root.to_owned(), reason }
        }
        (Err(error), _) | (_, Err(error)) => error,
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
fn names(dir: &Path) -> Result<Vec<String>, DataError> {
    let name = |path: PathBuf| {
        let slash = if path.is_dir() { "/" } else { "" };
        format!("{}{slash}", path.file_name().unwrap_or_default().to_string_lossy())
    };
    let mut names: Vec<String> = files::entries(dir)?.into_iter().map(name).collect();
    names.sort_unstable();
    Ok(names)
}

//! Files of results: a path, or `-` for standard output.

use super::Context;
use crate::Failure;
use std::io::Write;
use std::path::Path;
use tracing::info;
use zoo_datasets::atomic;

/// Whether the path means standard output, which then contains nothing else.
pub(super) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Writes an additional output of a command, and reports the path.
///
/// # Errors
/// As [`write`].
pub(super) fn write_beside(path: &Path, text: &str, context: &mut Context) -> Result<(), Failure> {
    write(path, text, context)?;
    if !is_stdout(path) {
        info!("written: {}", path.display());
    }
    Ok(())
}

/// Writes a text to a file, whose folder is created if missing, or to standard output. Does not report the path: for
/// files that the command lists as its results.
///
/// # Errors
/// Errors of the operating system.
pub(super) fn write(path: &Path, text: &str, context: &mut Context) -> Result<(), Failure> {
    if is_stdout(path) {
        return Ok(context.out.write_all(text.as_bytes())?);
    }
    expect_folder(path)?;
    let unwritable = |source| Failure::Unwritable { path: path.to_owned(), source };
    atomic::replace(path, |out| out.write_all(text.as_bytes())).map_err(unwritable)
}

/// Creates the folder of a file.
///
/// # Errors
/// Errors of the operating system.
pub(super) fn expect_folder(file: &Path) -> Result<(), Failure> {
    let unwritable = |source| Failure::Unwritable { path: file.to_owned(), source };
    file.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(unwritable)
}

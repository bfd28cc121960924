//! Files of results: a path, or `-` for standard output.

use crate::context::Context;
use crate::options::JunitArgs;
use crate::{Exit, Failure};
use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use tracing::info;
use zoo_datasets::atomic;

/// Whether the path means standard output, which then contains nothing else.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Writes an additional output of a command, and reports the path.
///
/// # Errors
/// As [`write`].
pub fn write_beside(path: &Path, text: &str, context: &mut Context) -> Result<(), Failure> {
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
pub fn write(path: &Path, text: &str, context: &mut Context) -> Result<(), Failure> {
    if is_stdout(path) {
        return Ok(context.out.write_all(text.as_bytes())?);
    }
    expect_folder(path)?;
    let unwritable = |source| Failure::Unwritable { path: path.to_owned(), source };
    atomic::replace(path, |out| out.write_all(text.as_bytes())).map_err(unwritable)
}

/// Runs a command that judges, on the first rank with its test cases written at the end, even if it fails.
///
/// # Errors
/// Those of the command; a file of test cases that cannot be written.
pub fn judged(
    verb: &str,
    junit: &JunitArgs,
    context: &mut Context,
    command: impl FnOnce(&mut Context) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let file = junit.junit.as_deref().filter(|_| context.ranks.is_first());
    file.map_or(Ok(()), expect_folder)?;
    let end = command(context);
    if let Some(file) = file {
        context.ci.write_junit(verb, file, &end)?;
    }
    end
}

/// Creates the folder of a file.
///
/// # Errors
/// Errors of the operating system.
pub fn expect_folder(file: &Path) -> Result<(), Failure> {
    let unwritable = |source| Failure::Unwritable { path: file.to_owned(), source };
    file.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(unwritable)
}

/// Writes files into a folder that is new or empty.
///
/// # Errors
/// A folder that has content; errors of the operating system, after which files and folders that are new are removed.
pub fn write_folder(folder: &Path, files: &[(&str, String)], context: &mut Context) -> Result<(), Failure> {
    let new: Vec<&Path> = folder.ancestors().take_while(|above| !above.exists()).collect();
    let mut written = expect_empty(folder);
    if written.is_ok() {
        written = files.iter().try_for_each(|(name, text)| write(&folder.join(name), text, context));
        if written.is_err() {
            files.iter().for_each(|(name, _)| _ = std::fs::remove_file(folder.join(name)));
        }
    }
    // Only those that are empty.
    written.inspect_err(|_| new.iter().for_each(|folder| _ = std::fs::remove_dir(folder)))
}

/// Creates a folder, or takes an empty one.
///
/// # Errors
/// A folder that has content; errors of the operating system.
pub fn expect_empty(folder: &Path) -> Result<(), Failure> {
    let unwritable = |source| Failure::Unwritable { path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(unwritable)?;
    if std::fs::read_dir(folder).map_err(unwritable)?.next().is_some() {
        return Err(Failure::Usage(format!("{}: the folder is not empty; choose another one", folder.display())));
    }
    Ok(())
}

/// Refuses output files that are also inputs or other outputs. Special files, such as /dev/null, may occur
/// repeatedly.
///
/// # Errors
/// The same file twice.
pub fn expect_apart<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    for file in files {
        let is_special = file.metadata().is_ok_and(|there| !there.is_file());
        if !is_special && !seen.insert(file.canonicalize().unwrap_or_else(|_| file.to_path_buf())) {
            let file = file.display();
            let message =
                format!("{file}: a file cannot be read and written, or written twice; choose another file to write");
            return Err(Failure::Usage(message));
        }
    }
    Ok(())
}

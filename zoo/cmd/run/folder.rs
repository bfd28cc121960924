//! Default run folders.

use crate::Failure;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder that contains run folders.
const RUNS: &str = "runs";

/// The first folder `runs/STEM-NUMBER` that does not exist.
pub(super) fn next_run(stem: &str) -> PathBuf {
    let number = numbered_runs(stem).into_iter().max().unwrap_or(0) + 1;
    Path::new(RUNS).join(format!("{stem}-{number}"))
}

/// The latest folder `runs/STEM-NUMBER`.
pub(super) fn last_run(stem: &str) -> Result<PathBuf, Failure> {
    let number = numbered_runs(stem).into_iter().max();
    let number = number.ok_or_else(|| Failure::Usage(format!("nothing to resume: {RUNS}/{stem}-* does not exist")))?;
    Ok(Path::new(RUNS).join(format!("{stem}-{number}")))
}

/// Refuses a run folder that cannot be written, before anything slow is started. The folder itself does not stay,
/// because the run may not begin.
///
/// # Errors
/// Neither the folder nor one inside it can be created.
pub(super) fn expect_writable(run: &Path) -> Result<(), Failure> {
    let inner = run.join("checkpoints");
    let missing: Vec<&Path> = [inner.as_path(), run].into_iter().filter(|folder| !folder.exists()).collect();
    fs::create_dir_all(&inner).map_err(|source| Failure::Unwritable { path: run.to_owned(), source })?;
    for folder in missing {
        // It stays if another process uses it already.
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}

fn numbered_runs(stem: &str) -> Vec<u64> {
    let entries = fs::read_dir(RUNS).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        // The largest number is excluded, because a next one must exist.
        name.strip_prefix(stem)?.strip_prefix('-')?.parse().ok().filter(|number| *number < u64::MAX)
    };
    entries.filter_map(number).collect()
}

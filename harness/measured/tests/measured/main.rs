//! Files of profilers, made by hand: what is read of them, and what is said of broken ones.

mod folders;
mod hostile;
mod real;
mod tables;
mod traces;

use std::path::PathBuf;
use tempfile::TempDir;
use zoo_measured::{Recording, open};

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

/// What is read of a file with this text.
fn read(name: &str, text: &str) -> Result<Recording, String> {
    let folder = folder(&[(name, text)]);
    let path: PathBuf = folder.path().join(name);
    open(&path).map_err(|error| error.to_string().replace(&folder.path().display().to_string(), "FOLDER"))
}

/// All parts of the steps together, which must be the steps.
fn adds_up(recording: &Recording) {
    let steps: i64 = recording.steps.iter().map(|step| step.end - step.start).sum();
    let kernels: i64 = recording.kernels.iter().map(|kernel| kernel.own).sum();
    let gaps: i64 = recording.gaps.iter().map(|gap| gap.duration).sum();
    assert_eq!(kernels + gaps, steps);
}

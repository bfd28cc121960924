//! The runs below a folder. A log is read again only if it has grown.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use zoo_train::report::{ComparedRun, compare};
use zoo_train::{RunFolder, RunRecord};

/// Search depth for run folders below the root.
const DEPTH: usize = 3;

/// A run in the list of all.
#[derive(Clone)]
pub(super) struct Row {
    /// Its folder relative to the root, which is used in requests; `.` for the root itself.
    pub name: String,
    /// Its record, or the error with which it was read.
    pub run: Result<Box<ComparedRun>, String>,
}

/// The time at which a log was read, and its content.
struct Known {
    changed: Option<SystemTime>,
    bytes: u64,
    row: Row,
}

/// The runs below a folder.
pub(super) struct Folders {
    root: PathBuf,
    known: HashMap<PathBuf, Known>,
}

impl Folders {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), known: HashMap::new() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// All runs, by name.
    pub(super) fn rows(&mut self) -> Vec<Row> {
        let folders = RunFolder::below(&self.root, DEPTH);
        let mut rows: Vec<Row> = folders.iter().map(|folder| self.row(folder)).collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows
    }

    /// The folder of a run by its name in the list of runs. Other folders cannot be requested.
    pub(super) fn find(&self, name: &str) -> Option<PathBuf> {
        RunFolder::below(&self.root, DEPTH).into_iter().find(|folder| self.name(folder).as_deref() == Some(name))
    }

    fn name(&self, folder: &Path) -> Option<String> {
        match folder.strip_prefix(&self.root).ok()?.to_str()? {
            "" => Some(".".to_owned()),
            name => Some(name.to_owned()),
        }
    }

    fn row(&mut self, folder: &Path) -> Row {
        let log = RunFolder::event_file(folder).metadata();
        let (changed, bytes) = log.map_or((None, 0), |log| (log.modified().ok(), log.len()));
        if let Some(known) = self.known.get(folder).filter(|known| (known.changed, known.bytes) == (changed, bytes)) {
            return known.row.clone();
        }
        let name = self.name(folder).unwrap_or_else(|| folder.display().to_string());
        let row = Row { name, run: read(folder) };
        self.known.insert(folder.to_owned(), Known { changed, bytes, row: row.clone() });
        row
    }
}

fn read(folder: &Path) -> Result<Box<ComparedRun>, String> {
    let record = RunRecord::read(folder).map_err(|error| error.to_string())?;
    let mut compared = compare(&[record]).map_err(|error| error.to_string())?.runs;
    compared.pop().map(Box::new).ok_or_else(|| "there are no runs to show".to_owned())
}

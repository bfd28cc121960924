//! The checkpoint folder of a run.

use std::{
    fs,
    path::{Path, PathBuf},
};

use zoo_datasets::atomic;

use super::{Checkpoint, CheckpointError};

/// Checkpoints that are kept: the last one, and the one before it in case the last one is damaged.
const KEPT: usize = 2;

/// Suffix of a checkpoint that was renamed because the training was resumed from an earlier step.
const ASIDE: &str = "set-aside";

/// A folder with files `step-00000900.safetensors`, named by the steps done.
#[derive(Clone, Debug)]
pub struct CheckpointStore {
    folder: PathBuf,
}

/// The newest usable checkpoint.
#[derive(Debug)]
pub struct Found {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Its file.
    pub path: PathBuf,
    /// Newer files that cannot be used.
    pub rejected: Vec<Rejected>,
}

/// A checkpoint that cannot be used.
#[derive(Debug)]
pub struct Rejected {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub error: CheckpointError,
}

impl CheckpointStore {
    /// The checkpoints in `folder`, which need not exist yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The checkpoints in the folder of a run, or in a folder that only contains checkpoints.
    pub fn of_run(folder: &Path) -> Self {
        let inner = folder.join("checkpoints");
        Self::new(if inner.is_dir() { inner } else { folder.to_owned() })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a checkpoint, then removes all but the newest two.
    ///
    /// # Errors
    /// Errors of the operating system. Earlier checkpoints are always intact.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<PathBuf, CheckpointError> {
        fs::create_dir_all(&self.folder).map_err(CheckpointError::unwritable(&self.folder))?;
        let path = self.path(checkpoint.progress.step);
        checkpoint.save(&path)?;
        let steps = self.steps()?;
        let older = steps.iter().rev().filter(|&&step| step < checkpoint.progress.step);
        for &step in older.skip(KEPT - 1) {
            let old = self.path(step);
            fs::remove_file(&old).map_err(CheckpointError::unwritable(&old))?;
        }
        Ok(path)
    }

    /// The newest usable checkpoint, with the newer ones that are unusable; `None` if there are no checkpoints.
    ///
    /// # Errors
    /// If there are checkpoints but none can be used, or the folder cannot be read.
    pub fn latest(&self) -> Result<Option<Found>, CheckpointError> {
        let mut rejected = Vec::new();
        for (path, read) in self.newest_first()? {
            match read {
                Ok(checkpoint) => return Ok(Some(Found { checkpoint, path, rejected })),
                Err(error) => rejected.push(Rejected { path, error }),
            }
        }
        self.none_usable(rejected).map(|()| None)
    }

    /// All checkpoints, newest first, read on demand.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn newest_first(
        &self,
    ) -> Result<impl Iterator<Item = (PathBuf, Result<Checkpoint, CheckpointError>)>, CheckpointError> {
        let steps = self.steps()?;
        Ok(steps.into_iter().rev().map(|step| {
            let path = self.path(step);
            let read = Checkpoint::load(&path).and_then(|checkpoint| match checkpoint.progress.step {
                inside if inside == step => Ok(checkpoint),
                inside => Err(CheckpointError::unusable(&path, format!("it is of step {inside}"))),
            });
            (path, read)
        }))
    }

    /// Returns an error if there were checkpoints and all of them were rejected.
    pub(crate) fn none_usable(&self, rejected: Vec<Rejected>) -> Result<(), CheckpointError> {
        if rejected.is_empty() {
            return Ok(());
        }
        Err(CheckpointError::NoneUsable { folder: self.folder.clone(), rejected })
    }

    /// Prepares for resuming from `step`: renames newer checkpoints (nothing is lost) and removes incomplete files of a
    /// crash.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn rewind(&self, step: u64) -> Result<(), CheckpointError> {
        if !self.folder.exists() {
            return Ok(());
        }
        atomic::remove_partial(&self.folder).map_err(CheckpointError::unwritable(&self.folder))?;
        for newer in self.steps()?.into_iter().filter(|&newer| newer > step) {
            let path = self.path(newer);
            let mut aside = path.clone().into_os_string();
            aside.push(".");
            aside.push(ASIDE);
            fs::rename(&path, aside).map_err(CheckpointError::unwritable(&path))?;
        }
        Ok(())
    }

    /// Whether there are no checkpoints, usable or not.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn is_empty(&self) -> Result<bool, CheckpointError> {
        Ok(self.steps()?.is_empty())
    }

    fn path(&self, step: u64) -> PathBuf {
        self.folder.join(format!("step-{step:08}.safetensors"))
    }

    /// Steps of all checkpoints, in increasing order.
    fn steps(&self) -> Result<Vec<u64>, CheckpointError> {
        if !self.folder.exists() {
            return Ok(Vec::new());
        }
        let mut steps = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(CheckpointError::io(&self.folder))? {
            let name = entry.map_err(CheckpointError::io(&self.folder))?.file_name();
            let number = name.to_str().and_then(|n| n.strip_prefix("step-")?.strip_suffix(".safetensors"));
            // Only names with the format of `path`.
            let step = number.filter(|n| n.bytes().all(|b| b.is_ascii_digit())).and_then(|n| n.parse().ok());
            steps.extend(step.filter(|&step| self.path(step).file_name() == Some(&name)));
        }
        steps.sort_unstable();
        Ok(steps)
    }
}

//! Reads a run folder.

use std::path::{Path, PathBuf};
use zoo_datasets::files;
use zoo_recipe::{Diagnostics, Library, LoadOptions, Recipe};

use crate::{
    TrainError,
    event::{Evaluated, Event, RunResult, Started},
    event_log,
};

/// The resolved recipe, in the folder of a run.
pub(crate) const RECIPE: &str = "recipe.yaml";
/// The file of events in a run folder.
pub(crate) const EVENTS: &str = "events.jsonl";
/// Limit of the size of a resolved recipe.
pub(crate) const LONGEST_RECIPE: u64 = 1 << 24;

/// A run, read from its folder.
#[derive(Clone, Debug)]
pub struct RunRecord {
    /// The folder.
    pub folder: PathBuf,
    /// The recipe of the run.
    pub recipe: Recipe,
    /// The recipe file.
    pub yaml: String,
    /// The events in order.
    pub events: Vec<Event>,
}

/// The recipe of a run.
///
/// # Errors
/// All mistakes in the file; it may be of another version.
pub(crate) fn recipe(path: &Path) -> Result<Recipe, Diagnostics> {
    let library = Library::new(std::iter::empty::<PathBuf>());
    Ok(library.load(&path.to_string_lossy(), &LoadOptions::default())?.recipe)
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunEnd<'a> {
    /// It is running, or was killed.
    Open,
    /// It was stopped after this many steps.
    Interrupted(u64),
    /// It failed after this many steps, for this reason.
    Failed(u64, &'a str),
    /// It has finished.
    Finished(&'a RunResult),
}

impl<'a> RunEnd<'a> {
    /// The state after an event that changes it.
    pub(crate) fn of(event: &'a Event) -> Option<Self> {
        match event {
            Event::Started(_) => Some(Self::Open),
            Event::Interrupted { step } => Some(Self::Interrupted(*step)),
            Event::Failed { step, message } => Some(Self::Failed(*step, message)),
            Event::Result(result) => Some(Self::Finished(result)),
            _ => None,
        }
    }
}

/// The events of a run folder; none if it is not a run folder.
pub(crate) fn events(folder: &Path) -> Result<Vec<Event>, TrainError> {
    let path = folder.join(EVENTS);
    event_log::read(&path).map_err(|source| TrainError::Unreadable { path, source })
}

impl RunRecord {
    /// Reads the folder.
    ///
    /// # Errors
    /// A folder without a run, or with a recipe that this version cannot read.
    pub fn read(folder: &Path) -> Result<Self, TrainError> {
        let refuse = |reason: String| TrainError::RunFolder { path: folder.to_owned(), reason };
        let events = events(folder)?;
        if !events.iter().any(|event| matches!(event, Event::Started(_))) {
            return Err(refuse("there is no run in this folder".to_owned()));
        }
        let path = folder.join(RECIPE);
        let unreadable = |source| TrainError::Unreadable { path: path.clone(), source };
        let yaml = files::read(&path, LONGEST_RECIPE).map_err(unreadable)?;
        let yaml = String::from_utf8_lossy(&yaml).into_owned();
        let recipe = recipe(&path).map_err(|errors| refuse(format!("its recipe cannot be read: {errors}")))?;
        Ok(Self { folder: folder.to_owned(), recipe, yaml, events })
    }

    /// The start event of the run, or of its last resumption.
    pub fn started(&self) -> Option<&Started> {
        let started = self.events.iter().rev().find_map(|event| match event {
            Event::Started(started) => Some(started),
            _ => None,
        });
        started.map(Box::as_ref)
    }

    /// The state of the run.
    pub fn end(&self) -> RunEnd<'_> {
        self.events.iter().rev().find_map(RunEnd::of).unwrap_or(RunEnd::Open)
    }

    /// The last evaluation.
    pub fn last_evaluation(&self) -> Option<&Evaluated> {
        self.events.iter().rev().find_map(|event| match event {
            Event::Evaluated(evaluated) => Some(evaluated),
            _ => None,
        })
    }
}

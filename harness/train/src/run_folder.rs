//! The folder of a run.
//!
//! | entry | content |
//! | --- | --- |
//! | `recipe.yaml` | the resolved recipe, which loads as the recipe of the run |
//! | `launch.json` | how the run was started: profile, overrides, data, device ([`Launch`]) |
//! | `events.jsonl` | the events of the run, one [`Event`] per line |
//! | `tensorboard/` | scalars, images, settings and the graph for TensorBoard |
//! | `checkpoints/` | the last two checkpoints, safetensors |
//! | `pictures/` | the worst predictions of the last evaluation, and its confusion matrix |
//! | `report.html` | a page with curves, facts and verdict; rewritten at each evaluation and at the end |
//! | `result.json` | the last event of a finished training ([`RunResult`](crate::RunResult)) |
//! | `lock` | locked by the process that writes |

use std::{
    fs::{self, File, TryLockError},
    io::Write,
    path::{Path, PathBuf},
};
use zoo_datasets::{atomic, files};
use zoo_graph::Graph;
use zoo_pages::Link;
use zoo_recipe::Recipe;
use zoo_tasks::Sight;

use crate::{
    CheckpointError, CheckpointStore, Launch, TrainError, Trainer,
    checkpoint::Rejected,
    event::{Event, ListenError, Listener},
    event_log::EventLog,
    launch::LAUNCH,
    record::{self, EVENTS, LONGEST_RECIPE, RECIPE, RunRecord},
    report::{
        Report, Source,
        pictures::{self, Pictures},
    },
    tensorboard::TensorBoard,
};

const TENSORBOARD: &str = "tensorboard";
const CHECKPOINTS: &str = "checkpoints";
const REPORT: &str = "report.html";
/// Pictures of the last evaluation.
const PICTURES: &str = "pictures";
const RESULT: &str = "result.json";
const LOCK: &str = "lock";

/// The folder of a run, locked by this process.
pub struct RunFolder {
    path: PathBuf,
    /// The operating system releases the lock when the process ends for any reason.
    _lock: File,
}

impl RunFolder {
    /// A folder for a new run. Created if necessary.
    ///
    /// # Errors
    /// The folder already contains a run, or cannot be written.
    pub fn create(path: impl Into<PathBuf>, recipe: &Recipe) -> Result<Self, TrainError> {
        let path = path.into();
        fs::create_dir_all(&path).map_err(ListenError::at(&path))?;
        Self::expect_vacant(&path)?;
        let folder = Self::lock(path)?;
        // Another process may have started in the meantime.
        Self::expect_vacant(&folder.path)?;
        folder.write_recipe(recipe)?;
        Ok(folder)
    }

    /// Stores the settings with which the run was started.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn keep_launch(&self, launch: &Launch) -> Result<(), TrainError> {
        Ok(launch.write(&self.path)?)
    }

    fn write_recipe(&self, recipe: &Recipe) -> Result<(), TrainError> {
        let file = self.path.join(RECIPE);
        let write = |out: &mut dyn Write| {
            let yaml = recipe.to_yaml().map_err(std::io::Error::other)?;
            out.write_all(yaml.as_bytes())
        };
        Ok(atomic::replace(&file, write).map_err(ListenError::at(&file))?)
    }

    /// Refuses a folder that a new run cannot use, before anything slow is started.
    ///
    /// # Errors
    /// A folder that already contains a run, or other files with the names that a run uses; a folder whose name is not
    /// UTF-8, which cannot be stored in log and checkpoints.
    pub fn expect_vacant(path: &Path) -> Result<(), TrainError> {
        let refuse = |reason: String| Err(TrainError::RunFolder { path: path.to_owned(), reason });
        if path.to_str().is_none() {
            return refuse("its name is not UTF-8".to_owned());
        }
        if path.join(EVENTS).exists() {
            return refuse("this folder already contains a run; resume it, or choose another folder".to_owned());
        }
        // A run that was killed before its first event leaves its lock, and possibly its recipe and settings.
        let killed = path.join(LOCK).exists();
        let begun = [RECIPE, LAUNCH].into_iter().filter(|_| !killed);
        let others = [REPORT, RESULT, PICTURES, TENSORBOARD].into_iter().chain(begun);
        if let Some(name) = others.into_iter().find(|name| path.join(name).exists()) {
            return refuse(format!(
                "this folder contains `{name}`, which a run would overwrite: choose another folder"
            ));
        }
        if !CheckpointStore::new(path.join(CHECKPOINTS)).is_empty()? {
            return refuse("this folder contains checkpoints, but no run: choose another folder".to_owned());
        }
        Ok(())
    }

    /// The folder of an interrupted run.
    ///
    /// # Errors
    /// A folder without a run, or one that another process is writing to.
    pub fn reopen(path: impl Into<PathBuf>) -> Result<Self, TrainError> {
        let path = path.into();
        Self::expect_run(&path)?;
        Self::lock(path)
    }

    /// Whether the folder contains a run in any state.
    pub fn is_run(path: &Path) -> bool {
        // A run that was killed before its first event has left its lock.
        path.join(EVENTS).is_file() || path.join(LOCK).is_file()
    }

    /// The runs in a folder and its subfolders, up to `depth` levels deep; there are none inside a run.
    pub fn below(folder: &Path, depth: usize) -> Vec<PathBuf> {
        if Self::is_run(folder) {
            return vec![folder.to_owned()];
        }
        let listed = (depth > 0).then(|| std::fs::read_dir(folder)).into_iter().flatten();
        let inner = listed.flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
        inner.flat_map(|path| Self::below(&path, depth - 1)).collect()
    }

    /// Refuses a folder without a run, before anything slow is started.
    ///
    /// # Errors
    /// There is no run.
    pub fn expect_run(path: &Path) -> Result<(), TrainError> {
        let reason = "there is no run to resume in this folder";
        let refused = || TrainError::RunFolder { path: path.to_owned(), reason: reason.to_owned() };
        Self::is_run(path).then_some(()).ok_or_else(refused)
    }

    /// The file with the events of the run at `path`.
    pub fn event_file(path: &Path) -> PathBuf {
        path.join(EVENTS)
    }

    /// The file with the recipe of the run at `path`.
    pub fn recipe_file(path: &Path) -> PathBuf {
        path.join(RECIPE)
    }

    fn lock(path: PathBuf) -> Result<Self, TrainError> {
        let file = path.join(LOCK);
        if file.exists() {
            // Opening a pipe would wait.
            files::open(&file).map_err(ListenError::at(&file))?;
        }
        let lock = File::options().create(true).truncate(false).write(true).open(&file);
        let lock = lock.map_err(ListenError::at(&file))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                let reason = "another process is training in this folder".to_owned();
                Err(TrainError::RunFolder { path, reason })
            }
            Err(TryLockError::Error(source)) => Err(ListenError { path: file, source }.into()),
        }
    }

    /// The events of a run folder; none if it is not a run folder.
    ///
    /// # Errors
    /// A log that cannot be read.
    pub fn events(path: &Path) -> Result<Vec<Event>, TrainError> {
        record::events(path)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The checkpoints of the run.
    pub fn checkpoints(&self) -> CheckpointStore {
        CheckpointStore::new(self.path.join(CHECKPOINTS))
    }

    /// The files that are written by a new run.
    ///
    /// # Errors
    /// A file that cannot be created.
    pub fn begin(&self) -> Result<RunFiles, TrainError> {
        let log = EventLog::create(self.path.join(EVENTS))?;
        self.files(log, Report::default())
    }

    /// Restores `trainer` from the newest usable checkpoint, which must be intact and belong to this training; without
    /// a checkpoint it starts from the beginning. Later entries in the files of the run are removed, and later
    /// checkpoints are renamed.
    ///
    /// No checkpoint can be used or they belong to another training, or a file cannot be read or written.
    pub fn resume(&self, trainer: &mut Trainer<'_>) -> Result<Resumed, TrainError> {
        let store = self.checkpoints();
        atomic::remove_partial(&self.path).map_err(ListenError::at(&self.path))?;
        if !self.path.join(RECIPE).exists() {
            self.write_recipe(trainer.recipe())?;
        }
        let (step, rejected) = newest(&store, trainer)?;
        for Rejected { error, .. } in &rejected {
            tracing::warn!("{error}; resuming from step {step}");
        }
        store.rewind(step)?;
        let (log, events) = EventLog::resume(self.path.join(EVENTS), step, trainer.evaluated())?;
        let result = self.path.join(RESULT);
        if result.exists() {
            fs::remove_file(&result).map_err(ListenError::at(&result))?;
        }
        let files = self.files(log, events.iter().collect())?;
        Ok(Resumed { step, rejected, files })
    }

    fn files(&self, log: EventLog, report: Report) -> Result<RunFiles, TrainError> {
        let tensorboard = TensorBoard::create(&self.path.join(TENSORBOARD))?;
        let pictures = Pictures::default();
        Ok(RunFiles { folder: self.path.clone(), log, tensorboard, report, pictures })
    }
}

/// Restores `trainer` from the newest checkpoint that is valid and belongs to the training. Returns its step, and the
/// newer checkpoints that were rejected.
fn newest(store: &CheckpointStore, trainer: &mut Trainer<'_>) -> Result<(u64, Vec<Rejected>), TrainError> {
    let mut rejected = Vec::new();
    let mut refused = None;
    for (path, read) in store.newest_first()? {
        let error = match read {
            Err(error) => error,
            Ok(checkpoint) => match trainer.resume(&checkpoint) {
                Ok(()) => return Ok((checkpoint.progress.step, rejected)),
                Err(error) => {
                    let reason = error.to_string();
                    refused = refused.or(Some(error));
                    CheckpointError::unusable(&path, reason)
                }
            },
        };
        rejected.push(Rejected { path, error });
    }
    // If no checkpoint belongs to this training, the recipe is different: report the differences.
    refused.map_or(Ok(()), Err)?;
    store.none_usable(rejected)?;
    Ok((0, Vec::new()))
}

/// A training that is ready to resume.
pub struct Resumed {
    /// Steps done.
    pub step: u64,
    /// Newer checkpoints that cannot be used.
    pub rejected: Vec<Rejected>,
    /// The files of the run.
    pub files: RunFiles,
}

impl RunFiles {
    /// Writes the graph of the training step for TensorBoard.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn show_graph(&mut self, graph: &Graph) -> Result<(), ListenError> {
        self.tensorboard.graph(graph)
    }
}

/// The files of a run folder, which are written during its training.
pub struct RunFiles {
    folder: PathBuf,
    log: EventLog,
    tensorboard: TensorBoard,
    report: Report,
    pictures: Pictures,
}

impl Listener for RunFiles {
    fn hear(&mut self, event: &Event) -> Result<(), ListenError> {
        self.log.hear(event)?;
        self.tensorboard.hear(event)?;
        self.report.add(event);
        if let Event::Evaluated(evaluated) = event {
            let folder = self.folder.join(PICTURES);
            self.pictures.write(&folder)?;
            self.tensorboard.images(evaluated.step, &pictures::read(&folder))?;
        }
        if let Event::Result(result) = event {
            let path = self.folder.join(RESULT);
            let write = |out: &mut dyn Write| Ok(serde_json::to_writer_pretty(out, result)?);
            atomic::replace(&path, write).map_err(ListenError::at(path))?;
        }
        match event {
            Event::Started(_)
            | Event::Evaluated(_)
            | Event::Interrupted { .. }
            | Event::Failed { .. }
            | Event::Result(_) => {
                // The report can be written from the log at any time, so this is no reason to end a training.
                if let Err(error) = write_report(&self.folder, &self.report) {
                    tracing::warn!("{error}; `zoo report` writes it again");
                }
                Ok(())
            }
            Event::Golden(_)
            | Event::Device(_)
            | Event::Cost(_)
            | Event::Memory(_)
            | Event::Step(_)
            | Event::Checkpointed { .. }
            | Event::Verdict(_) => Ok(()),
        }
    }

    fn see(&mut self, sight: &Sight<'_>) {
        self.pictures.see(sight);
    }
}

/// Rewrites the report of a run from its event log. Returns the file.
///
/// # Errors
/// A file that cannot be written.
pub fn rewrite_report(run: &RunRecord) -> Result<PathBuf, TrainError> {
    write_report(&run.folder, &run.events.iter().collect())?;
    Ok(run.folder.join(REPORT))
}

/// The page of a run for the server: the current state, with links to other pages.
///
/// # Errors
/// A folder without a run, or a template that cannot be rendered.
pub fn served_report(folder: &Path, links: Vec<Link>) -> Result<String, TrainError> {
    let report: Report = record::events(folder)?.iter().collect();
    let page = page(folder, &report, links);
    let path = folder.join(REPORT);
    page.map_err(|error| TrainError::Unreadable { path, source: std::io::Error::other(error) })
}

fn write_report(folder: &Path, report: &Report) -> Result<(), ListenError> {
    let path = folder.join(REPORT);
    let write = |out: &mut dyn Write| {
        out.write_all(page(folder, report, Vec::new()).map_err(std::io::Error::other)?.as_bytes())
    };
    atomic::replace(&path, write).map_err(ListenError::at(&path))
}

/// The page of a run.
fn page(folder: &Path, report: &Report, links: Vec<Link>) -> Result<String, minijinja::Error> {
    let yaml = files::read(&folder.join(RECIPE), LONGEST_RECIPE).unwrap_or_default();
    let yaml = String::from_utf8_lossy(&yaml);
    // A recipe of another version may not load; then the page omits its description.
    let recipe = record::recipe(&folder.join(RECIPE)).ok();
    let launch = Launch::read(folder).ok().flatten();
    let source = Source {
        yaml: &yaml,
        description: recipe.as_ref().and_then(|recipe| recipe.description.as_deref()).unwrap_or_default(),
        reference: &recipe.as_ref().and_then(|recipe| recipe.reference.clone()).unwrap_or_default(),
        pictures: &folder.join(PICTURES),
        launch: launch.as_ref(),
    };
    report.page(&source, links)
}

//! Errors of a training.

use std::path::{Path, PathBuf};
use thiserror::Error;
use zoo_datasets::DataError;
use zoo_engine::EngineError;
use zoo_graph::GraphError;
use zoo_ranks::RanksError;
use zoo_tasks::{EvaluationError, InputError};

use crate::{
    checkpoint::{Change, CheckpointError},
    culprit::Culprit,
    event::ListenError,
    weights::Fit,
};

/// Errors of a training or an evaluation.
#[derive(Debug, Error)]
pub enum TrainError {
    /// No step can be built from the recipe.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The step cannot be built or run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The data are missing, unreadable, or do not fit the recipe.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Errors of data or preprocessing.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The data do not fit the network.
    #[error("the data do not fit the network: {0}")]
    Mismatch(String),
    /// A batch that cannot be divided among the ranks.
    #[error(
        "`train.batch` is {batch}, which {ranks} ranks cannot share equally: choose another number of ranks or \
         another batch"
    )]
    Share {
        /// Samples of all ranks together.
        batch: usize,
        /// Number of ranks.
        ranks: usize,
    },
    /// Another rank cannot be reached.
    #[error(transparent)]
    Ranks(#[from] RanksError),
    /// A checkpoint that cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Weights that do not fit the network.
    #[error("the weights do not fit the network: {0}")]
    Misfit(Box<Fit>),
    /// A checkpoint of another training.
    #[error("the recipe has changed since the checkpoint at step {step}:{}", lines(changes))]
    RecipeChanged {
        /// Steps done in the checkpoint.
        step: u64,
        /// The differences.
        changes: Vec<Change>,
    },
    /// A checkpoint of a training on other data.
    #[error("the checkpoint at step {step} was trained on other data: {before}. The data of this run are {now}")]
    DataChanged {
        /// Steps done in the checkpoint.
        step: u64,
        /// The data of the checkpoint.
        before: String,
        /// The data now.
        now: String,
    },
    /// A checkpoint whose variables are not those of the step.
    #[error("the checkpoint does not fit the network: {0}")]
    Variables(String),
    /// The loss is not finite.
    #[error(
        "the loss of step {step} is not finite ({}); the last checkpoint is intact{}\nUsual causes: a learning rate \
         that is \
         too high ({lr} here), broken samples, a loss scale that overflows; `gradients.skip_loss_above` skips such \
         updates",
        components(losses),
        came_from(culprit)
    )]
    LossNotFinite {
        /// The step, counted from one.
        step: u64,
        /// Learning rate of the step.
        lr: f64,
        /// Loss and components by name.
        losses: Vec<(String, f64)>,
        /// The source of the value, if it was found.
        culprit: Option<Box<Culprit>>,
    },
    /// All labels of a batch are ignored.
    #[error(
        "step {step} has no loss: all labels of its batch (`{input}`) are {ignored}, which is ignored, so that the mean \
         over the others is NaN; the last checkpoint is intact\nA larger `train.batch` makes such batches rarer, samples \
         without any label can be left out of the data, and `gradients.skip_loss_above` skips such updates"
    )]
    NoLabels {
        /// The step, counted from one.
        step: u64,
        /// The input with the labels.
        input: String,
        /// The ignored label.
        ignored: u32,
    },
    /// A variable is not finite.
    #[error("`{variable}` is not finite after step {step}; the last checkpoint is intact{}", came_from(culprit))]
    VariableNotFinite {
        /// Steps done.
        step: u64,
        /// The variable.
        variable: String,
        /// The source of the value, if it was found.
        culprit: Option<Box<Culprit>>,
    },
    /// A prompt that the network cannot continue.
    #[error("{0}")]
    Prompt(String),
    /// No sample of the held-out set could be read.
    #[error("nothing to evaluate: every held-out sample was skipped")]
    NothingEvaluated,
    /// A file of the run folder cannot be written.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The run folder belongs to another run.
    #[error("{}: {reason}", path.display())]
    RunFolder {
        /// The folder.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A run folder that cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// An error of candle outside of the step.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
}

/// Runs that cannot be judged, compared or reported, and trainings of other frameworks that cannot be read.
#[derive(Debug, Error)]
pub enum RunsError {
    /// The runs do not form a set, or lack something.
    #[error("{0}")]
    Unfit(String),
    /// Trainings of other frameworks that cannot be read.
    #[error("{place}: {reason}")]
    Malformed {
        /// The file, or a line of it.
        place: String,
        /// What is wrong there.
        reason: String,
    },
    /// The page cannot be made.
    #[error(transparent)]
    Page(#[from] minijinja::Error),
}

impl RunsError {
    /// A run that is still going on, or was interrupted.
    pub(crate) fn not_done(folder: &Path) -> Self {
        let folder = folder.display();
        Self::Unfit(format!("{folder} is not finished; `zoo run --resume {folder}` resumes it"))
    }
}

impl From<EvaluationError> for TrainError {
    fn from(error: EvaluationError) -> Self {
        match error {
            EvaluationError::Data(error) => Self::Data(error),
            EvaluationError::Input(error) => Self::Input(error),
            EvaluationError::Mismatch(message) => Self::Mismatch(message),
            EvaluationError::Prompt(message) => Self::Prompt(message),
            EvaluationError::NothingEvaluated => Self::NothingEvaluated,
            // The network is ours, and therefore its errors are too.
            EvaluationError::Network(error) => {
                error.downcast::<Self>().map_or_else(|other| Self::Mismatch(other.to_string()), |error| *error)
            }
        }
    }
}

impl TrainError {
    /// The step after which values are not finite, and the origin if it was found.
    pub(crate) fn not_finite(&mut self) -> Option<(u64, &mut Option<Box<Culprit>>)> {
        match self {
            Self::LossNotFinite { step, culprit, .. } | Self::VariableNotFinite { step, culprit, .. } => {
                Some((*step, culprit))
            }
            _ => None,
        }
    }
}

fn came_from(culprit: &Option<Box<Culprit>>) -> String {
    culprit.as_ref().map(|culprit| format!("\nThe first non-finite value came from {culprit}")).unwrap_or_default()
}

fn lines(changes: &[Change]) -> String {
    changes.iter().map(|change| format!("\n  {change}")).collect()
}

fn components(losses: &[(String, f64)]) -> String {
    losses.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

//! Errors of the golden check. A difference from the golden is a verdict, not an error.

use std::path::{Path, PathBuf};
use thiserror::Error;
use zoo_graph::Bytes;
use zoo_tensors::TensorsError;

/// Why a check is impossible.
#[derive(Debug, Error)]
pub enum GoldenError {
    /// A file that cannot be opened or read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A file that cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A file with another format or with contradictions.
    #[error("{}: {message}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A recorded step with a value that is not finite.
    #[error("{what} is not finite at the learning rate {learning_rate}: record at a lower one (--learning-rate)")]
    NotFinite {
        /// The loss or tensor.
        what: String,
        /// The learning rate.
        learning_rate: f64,
    },
    /// A step on one device with which no split can be compared.
    #[error(
        "the loss of step {step} on one device is not a finite number, so that no split can be judged by it: take other \
         sizes or another --batch (inputs are generated: a mask may leave out all tokens of a short sample)"
    )]
    NoTruth {
        /// The step, from 1.
        step: usize,
    },
    /// Two dumps that are not of the same step.
    #[error("{} and {} are dumps of different steps: {message}", a.display(), b.display())]
    Foreign {
        /// The first.
        a: PathBuf,
        /// The second.
        b: PathBuf,
        /// What differs.
        message: String,
    },
    /// No graph can be built from the recipe under the golden's conditions.
    #[error(transparent)]
    Graph(#[from] zoo_graph::GraphError),
    /// The recipe's architecture cannot be resolved.
    #[error("{0}")]
    Recipe(String),
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] zoo_engine::EngineError),
    /// Gradients in f32 exceed the limits, and the deciding step in f64 would need more memory than is available.
    #[error(
        "f32 gradients exceed the limits, and the f64 step that decides needs {needed}, more than the available memory: use `--dtype f64`"
    )]
    NoRoom {
        /// The memory of the check with this step, on top of what the process has before the check.
        needed: Bytes,
    },
    /// The recipe has no golden.
    #[error(
        "recipe `{recipe}` has no golden: export one from PyTorch (golden/README.md), or record a baseline with \
         `zoo golden record RECIPE --out golden/{recipe}/step`, where RECIPE is the name or path as in this command; \
         then add `golden: {{manifest: {recipe}/step.json}}` to the recipe"
    )]
    Absent {
        /// The recipe.
        recipe: String,
    },
}

impl GoldenError {
    /// A file that cannot be opened or read.
    pub(crate) fn unreadable(path: &Path) -> impl Fn(std::io::Error) -> Self + Copy {
        move |source| Self::Unreadable { path: path.to_owned(), source }
    }

    /// A file that cannot be written.
    pub(crate) fn unwritable(path: &Path) -> impl Fn(std::io::Error) -> Self + Copy {
        move |source| Self::Unwritable { path: path.to_owned(), source }
    }
}

/// A file with another format or with contradictions.
pub(crate) fn malformed(path: &Path, message: impl ToString) -> GoldenError {
    GoldenError::Malformed { path: path.to_owned(), message: message.to_string() }
}

impl From<TensorsError> for GoldenError {
    fn from(error: TensorsError) -> Self {
        match error {
            TensorsError::Unreadable { path, source } => Self::Unreadable { path, source },
            TensorsError::Malformed { path, reason } => Self::Malformed { path, message: reason },
        }
    }
}

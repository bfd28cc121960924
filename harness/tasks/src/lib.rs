//! Tasks: everything that depends on the kind of sample, from the settings of a recipe to metrics and pictures.
//!
//! zoo-recipe knows nothing about pixels, and zoo-datasets nothing about recipes. `zoo check`, training and
//! evaluation all use this crate, so that the step that is proven is the step that is trained. Networks are computed
//! by another crate: evaluations use the trait [`Network`].
//!
//! * [`Task`], and [`task`] with the list of all: opens data, as [`DataSets`].
//! * [`SampleSets`]: opened samples. They provide a [`Feed`] of batches for training and a [`HeldOut`] for evaluation,
//!   inspect themselves, and draw themselves.
//! * [`metrics`]: the metrics of evaluations, one file each.
//!
//! ```
//! use zoo_recipe::{Library, LoadOptions};
//!
//! let recipes = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes");
//! let mini = LoadOptions { profile: Some("mini".to_owned()), sets: Vec::new() };
//! let recipe = Library::new([recipes]).load("resnet50", &mini)?.recipe;
//! let data = zoo_tasks::open(&recipe, None)?;
//! assert_eq!((data.samples.val_len(), data.samples.classes().len()), (1000, 10));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod annotated;
mod baseline;
mod batch;
mod classification;
mod detection;
mod evaluation;
mod feed;
mod inspection;
mod language_modelling;
pub mod metrics;
mod preprocess;
mod segmentation;
mod task;
mod text_detection;
mod tracking;

pub use baseline::LinearBaseline;
pub use batch::{Batch, Element, Field, Input, Numbers};
pub use classification::LabelledImages;
pub use evaluation::{
    Baseline, Evaluation, EvaluationError, Found, HeldOut, Network, Output, Place, Sight, Watch, Witness, not_finite,
    score,
};
pub use feed::{Batches, Feed};
pub use inspection::{Inspection, Pixels};
pub use language_modelling::{Generator, Sampling};
pub use task::{Asked, DataSets, Judged, MakeNetwork, SampleSets, Task, loader_config, open, task};

use thiserror::Error;
use zoo_datasets::DataError;
use zoo_recipe::{ConfigPath, Recipe, Span};

/// Errors of data or preprocessing.
#[derive(Debug, Error)]
pub enum InputError {
    /// The recipe needs something that the transforms do not support.
    #[error("{span}: {message}")]
    Recipe {
        /// Line of the recipe.
        span: Span,
        /// Path in the recipe.
        path: ConfigPath,
        /// The message.
        message: String,
    },
    /// The data are missing or unreadable.
    #[error(transparent)]
    Data(#[from] DataError),
}

impl InputError {
    /// An error for `path` in a recipe.
    fn at(recipe: &Recipe, path: &str, message: impl Into<String>) -> Self {
        Self::Recipe { span: recipe.span(path), path: path.into(), message: message.into() }
    }
}

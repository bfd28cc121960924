//! Tasks: what networks are asked to do with one kind of sample, from the recipe's words to figures and pictures.
//!
//! The recipe knows no pixels and the data sets know no recipe; golden check, training and evaluation all come here, so
//! that what is proven is what trains. What computes a network is another crate's business: evaluations see a
//! [`Network`].
//!
//! * [`Task`], and [`task`] with the list of all: opens data, as [`DataSets`].
//! * [`SampleSets`]: opened samples; they make a [`Feed`] of batches for training and a [`HeldOut`] for evaluation,
//!   inspect themselves, and draw themselves.
//! * [`metrics`]: what evaluations measure, a file each.
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

mod baseline;
mod batch;
mod classification;
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
    Baseline, Evaluation, EvaluationError, Found, HeldOut, Network, Output, Place, Sight, Witness, score,
};
pub use feed::{Batches, Feed};
pub use inspection::{Inspection, Pixels};
pub use language_modelling::{Alphabet, Sampling};
pub use task::{DataSets, MakeNetwork, SampleSets, Task, loader_config, open, task};

use thiserror::Error;
use zoo_datasets::DataError;
use zoo_recipe::{Recipe, Span};

/// Data or preprocessing that cannot be had as the recipe says.
#[derive(Debug, Error)]
pub enum InputError {
    /// The recipe asks for what the transforms cannot do.
    #[error("{span}: {message}")]
    Recipe {
        /// Line of the recipe.
        span: Span,
        /// What is wrong.
        message: String,
    },
    /// The data are missing or unreadable.
    #[error(transparent)]
    Data(#[from] DataError),
}

impl InputError {
    /// For what stands at `path` of a recipe.
    fn at(recipe: &Recipe, path: &str, message: impl Into<String>) -> Self {
        Self::Recipe { span: recipe.span(path), message: message.into() }
    }
}

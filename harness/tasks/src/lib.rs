//! Tasks: what networks are asked to do with one kind of sample, from the recipe's words to figures and pictures.
//!
//! The recipe knows no pixels and the data sets know no recipe; golden check, training and evaluation all come here, so that
//! what is proven is what trains. What computes a network is another room's business: evaluations see a [`Network`].
//!
//! * [`Task`], and [`task`] with the list of all: opens data, as [`DataSets`].
//! * [`SampleSets`]: opened samples; they make a [`Feed`] of batches for training and a [`HeldOut`] for evaluation, inspect
//!   themselves, and draw themselves.
//! * [`metrics`]: what evaluations measure, a file each.

mod baseline;
mod batch;
mod classification;
mod evaluation;
mod feed;
mod inspection;
pub mod metrics;
mod preprocess;
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

//! Lowers the `data`, `preprocess` and `postprocess` sections of a recipe to readers, transforms and what judges outputs.
//!
//! The recipe knows no pixels and the data sets know no recipe; golden check, training and evaluation all come here,
//! so that what is proven is what trains.
//!
//! * [`open`]: the [`DataSets`] of a recipe, of one of three kinds of [`Samples`].
//! * [`Feed`]: batches of the training set for any of them: [`Batch`], the step's inputs by name.
//! * [`pipeline`], [`TextImages`], [`HeldOutPairs`] and [`tracker`]: what evaluation needs of each kind.

mod batch;
mod feed;
mod images;
mod sets;
mod text;
mod tracking;

pub use batch::{Batch, Field, Numbers};
pub use feed::{Batches, Feed, StepInput, loader_config};
pub use images::pipeline;
pub use sets::{DataSets, Samples, open};
pub use text::{TextImage, TextImages, detection, text_images};
pub use tracking::{HeldOutPairs, held_out_pairs, tracker};

use thiserror::Error;
use zoo_datasets::{DataError, Normalize, Pipeline};
use zoo_recipe::{Recipe, Span, schema};

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

/// Which list of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// `preprocess.train`.
    Train,
    /// `preprocess.eval`.
    Eval,
}

/// The preprocessing of images whose size `preprocess.text` or `preprocess.pairs` decides: normalisation alone, whatever the
/// size.
///
/// # Errors
/// Other steps.
pub fn unresized(recipe: &Recipe, split: Split) -> Result<Pipeline, InputError> {
    Ok(Pipeline::new(Vec::new(), only_normalisation(recipe, split)?)?)
}

/// The normalisation of a list of steps that may do nothing else: text and videos are varied by sections of their own.
fn only_normalisation(recipe: &Recipe, split: Split) -> Result<Normalize, InputError> {
    let (steps, path) = match split {
        Split::Train => (&recipe.preprocess.train, "preprocess.train"),
        Split::Eval => (&recipe.preprocess.eval, "preprocess.eval"),
    };
    match steps.as_slice() {
        [] => Ok(Normalize::UNCHANGED),
        [schema::Step::Normalize(normalize)] => Ok(images::normalisation(normalize)),
        _ => {
            let message = "only `normalize` may stand here: images with text are varied by `preprocess.text`, videos by \
                           `preprocess.pairs`";
            Err(InputError::at(recipe, path, message))
        }
    }
}

/// Both ends of a range.
fn pair<T: Copy>([low, high]: [T; 2]) -> (T, T) {
    (low, high)
}

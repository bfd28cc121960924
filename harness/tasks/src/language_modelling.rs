//! Language modelling: predicts the next token at each position of a window, or tokens that are hidden.

mod continuation;
mod masked;
mod next_token;
mod sources;
mod texts;

pub use continuation::{Generator, Sampling};

use std::path::Path;

use zoo_datasets::Pipeline;
use zoo_recipe::{Recipe, schema::Source};

use crate::{
    DataSets, EvaluationError, Input, InputError, Output, Task,
    batch::{Element, first},
    metrics::{Classified, Meter},
};

/// Language modelling.
pub(crate) struct LanguageModelling;

impl Task for LanguageModelling {
    fn open(&self, recipe: &Recipe) -> Result<DataSets, InputError> {
        sources::open(recipe, &recipe.data.source)
    }

    fn open_folder(&self, recipe: &Recipe, root: &Path) -> Result<DataSets, InputError> {
        sources::open(recipe, &self.source_in(root, &recipe.data.source))
    }

    fn source_in(&self, root: &Path, before: &Source) -> Source {
        sources::file(root, before)
    }

    fn preprocessing(&self, recipe: &Recipe, _image: [usize; 3]) -> Result<Pipeline, InputError> {
        Err(InputError::at(recipe, "preprocess", "text is not preprocessed as images are"))
    }
}

/// Tokens per window for a step or network with an input of `[T]` indices.
fn length(first: &Input) -> Result<usize, String> {
    match (first.element, first.shape.as_slice()) {
        (Element::Index, [length]) => Ok(*length),
        _ => Err(format!("`{}` cannot take the tokens of a window: declare it as {{indices: [T]}}", first.name)),
    }
}

/// The first input, which takes the tokens of a window; refuses labels that are not one per token.
fn window<'a>(recipe: &Recipe, inputs: &'a [Input]) -> Result<&'a Input, InputError> {
    let first = first(recipe, inputs)?;
    let length = length(first).map_err(|message| InputError::at(recipe, "model.inputs", message))?;
    let label = inputs.iter().find(|input| input.name == zoo_recipe::LABEL && input.shape != first.shape);
    if let Some(label) = label {
        let rows = label.shape.iter().product::<usize>();
        let message = format!("{rows} predictions for the {length} tokens of a window: one per token is needed");
        return Err(InputError::at(recipe, "loss", message));
    }
    Ok(first)
}

/// Adds the logits of an output to meters, for items that have a label.
fn tally(
    output: &Output,
    classes: usize,
    labels: &[Option<u32>],
    meters: &mut [&mut dyn for<'a> Meter<Classified<'a>>],
) -> Result<(), EvaluationError> {
    if output.values.len() != labels.len() * classes {
        let (found, expected, name) = (output.values.len(), labels.len(), &output.name);
        let message = format!("{found} logits in `{name}` for {expected} labels of {classes} classes");
        return Err(EvaluationError::Mismatch(message));
    }
    for (logits, label) in output.values.chunks_exact(classes).zip(labels) {
        let Some(label) = *label else { continue };
        let logits: Vec<f64> = logits.iter().copied().map(f64::from).collect();
        meters.iter_mut().for_each(|meter| meter.add(&Classified { logits: &logits, label }));
    }
    Ok(())
}

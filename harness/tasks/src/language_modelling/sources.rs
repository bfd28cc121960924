//! Sources of text.

use std::{path::Path, sync::Arc};

use zoo_datasets::{
    DataError,
    language::{ConsecutiveWindows, Sentences, Text, Vocabulary, read_text},
};
use zoo_recipe::{
    Recipe,
    schema::{self, InputShape, Source, TextFile},
};

use super::Texts;
use crate::{DataSets, InputError, task::foreign};

/// Opens the text of a source.
pub(super) fn open(recipe: &Recipe, source: &Source) -> Result<DataSets, InputError> {
    let length = length(recipe)?;
    let (vocabulary, [train, val], windows, description) = match source {
        Source::TextFile(section) => text_file(section)?,
        Source::Sentences(section) => sentences(section)?,
        _ => return Err(foreign(recipe, "language modelling")),
    };
    let [train, val] = [train, val].map(Arc::new);
    for text in [&train, &val] {
        ConsecutiveWindows::new(text.clone(), length)?;
    }
    let windows = windows.unwrap_or_else(|| ConsecutiveWindows::count(&train, length));
    let names = vocabulary.names();
    let samples = Arc::new(Texts { vocabulary, names, train, val, length, windows });
    Ok(DataSets { samples, description, skipped: 0 })
}

/// Characters per window: the length of the network's input.
fn length(recipe: &Recipe) -> Result<usize, InputError> {
    match recipe.model.inputs.values().next() {
        Some(InputShape::Indices(shape)) if shape.indices.len() == 1 => Ok(shape.indices[0].0),
        Some(InputShape::Indices(_) | InputShape::Image(_) | InputShape::Numbers(_)) | None => {
            Err(InputError::at(recipe, "model.inputs", "windows of text need a network with an input {indices: [T]}"))
        }
    }
}

/// A text file in place of the recipe's source; if that is a text file too, its settings are kept.
pub(super) fn file(path: &Path, before: &Source) -> Source {
    let path = path.to_owned();
    Source::TextFile(match before {
        Source::TextFile(section) => TextFile { path, ..section.clone() },
        _ => TextFile { path, validation: TextFile::VALIDATION, windows: None, vocabulary: None },
    })
}

type Opened = (Vocabulary, [Text; 2], Option<usize>, String);

fn text_file(section: &TextFile) -> Result<Opened, DataError> {
    let content = read_text(&section.path)?;
    let vocabulary = match &section.vocabulary {
        Some(list) => Vocabulary::listed(list)?,
        None => Vocabulary::of(&content),
    };
    let path = section.path.display().to_string();
    let texts = Text::new(path.as_str(), &content, &vocabulary)?.split(section.validation);
    Ok((vocabulary, texts, section.windows, format!("text {path}")))
}

fn sentences(section: &schema::Sentences) -> Result<Opened, DataError> {
    let &schema::Sentences { train, val, windows, seed } = section;
    let vocabulary = Sentences::vocabulary();
    let text = |first, count| {
        let sentences = Sentences { seed, first, count };
        Text::new(format!("sentences(seed {seed})"), &sentences.text(), &vocabulary)
    };
    let texts = [text(0, train)?, text(Sentences::HELD_OUT, val)?];
    Ok((vocabulary, texts, windows, format!("generated sentences, {train} + {val}")))
}

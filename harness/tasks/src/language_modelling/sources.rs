//! Sources of text.

use std::{path::Path, sync::Arc};

use zoo_datasets::{
    DataError,
    language::{
        CharacterSet, ConsecutiveWindows, Corpus, Documents, Excerpt, Masked, Masking, RandomWindows, SentencePairs,
        Sentences, Subwords, Vocabulary,
    },
};
use zoo_recipe::{
    Recipe,
    schema::{self, InputShape, Source, TextFile},
};

use super::{
    masked::{MaskedTokens, Sequences},
    next_token::NextToken,
    texts::Texts,
};
use crate::{DataSets, InputError, SampleSets, task::foreign};

/// Opens the text of a source.
pub(super) fn open(recipe: &Recipe, source: &Source) -> Result<DataSets, InputError> {
    let length = length(recipe)?;
    let masking = recipe.preprocess.masking.as_ref();
    let Opened { vocabulary, corpora, windows, description } = match source {
        Source::TextFile(section) => text_file(section, masking.is_some())?,
        Source::Sentences(section) => sentences(section, masking),
        _ => return Err(foreign(recipe, "language modelling")),
    };
    let parts = corpora.parts();
    let samples: Arc<dyn SampleSets> = match masking {
        Some(masking) => Arc::new(masked(recipe, masking, vocabulary, &parts, (length, windows))?),
        None => {
            let texts = Texts::of(vocabulary, &parts)?;
            for text in [&texts.train, &texts.val] {
                ConsecutiveWindows::new(text.clone(), length)?;
            }
            let windows = windows.unwrap_or_else(|| ConsecutiveWindows::count(&texts.train, length));
            Arc::new(NextToken { texts, length, windows })
        }
    };
    Ok(DataSets { samples, description, skipped: 0 })
}

fn masked(
    recipe: &Recipe,
    section: &schema::Masking,
    vocabulary: Vocabulary,
    parts: &[Excerpt<'_>; 2],
    (length, windows): (usize, Option<usize>),
) -> Result<MaskedTokens, InputError> {
    let Some(unmasked) = recipe.loss.softmax_cross_entropy.as_ref().and_then(|entropy| entropy.ignore) else {
        return Err(InputError::at(recipe, "loss", "a loss over hidden tokens ignores the others: see `ignore`"));
    };
    let masking = Masking::new(section.share, &vocabulary, unmasked)?;
    let pairs = section.sentence_pairs;
    let (texts, [train, val]) = if pairs {
        let [train, val] = parts.each_ref().map(|part| Documents::of(part, &vocabulary).map(Arc::new));
        let (train, val) = (train?, val?);
        let texts = [train.text(), val.text()];
        let train = SentencePairs::new(train, length, windows, &vocabulary)?;
        let val = SentencePairs::new(val, length, None, &vocabulary)?;
        (Texts::new(vocabulary, texts), [train, val].map(Sequences::Pairs))
    } else {
        let texts = Texts::of(vocabulary, parts)?;
        let val = ConsecutiveWindows::new(texts.val.clone(), length)?;
        let windows = windows.unwrap_or_else(|| ConsecutiveWindows::count(&texts.train, length));
        let train = RandomWindows::new(texts.train.clone(), length, windows)?;
        (texts, [Sequences::Random(train), Sequences::Consecutive(val)])
    };
    let [train, val] = [train, val].map(|sequences| Masked::new(sequences, masking.clone()));
    Ok(MaskedTokens { texts, train, val, length, unmasked, pairs })
}

/// Tokens per window: the length of the network's input.
fn length(recipe: &Recipe) -> Result<usize, InputError> {
    match recipe.model.inputs.values().next() {
        Some(InputShape::Indices(shape)) if shape.indices.len() == 1 => Ok(shape.indices[0].0),
        Some(InputShape::Indices(_) | InputShape::Image(_) | InputShape::Numbers(_)) | None => {
            Err(InputError::at(recipe, "model.inputs", "windows of text need a network with an input {indices: [T]}"))
        }
    }
}

/// A text file, or a folder of such files, in place of the recipe's source; if that is a text file too, its settings
/// are kept.
pub(super) fn file(path: &Path, before: &Source) -> Source {
    let path = path.to_owned();
    Source::TextFile(match before {
        Source::TextFile(section) => TextFile { path, ..section.clone() },
        _ => TextFile { path, validation: TextFile::VALIDATION, windows: None, tokenizer: None, vocabulary: None },
    })
}

/// What a source contains.
struct Opened {
    vocabulary: Vocabulary,
    corpora: Corpora,
    /// Windows per epoch.
    windows: Option<usize>,
    description: String,
}

/// The training text and the held-out text.
enum Corpora {
    /// One text, of which a share is held out.
    Divided(Corpus, f64),
    Apart([Corpus; 2]),
}

impl Corpora {
    fn parts(&self) -> [Excerpt<'_>; 2] {
        match self {
            Self::Divided(corpus, held_out) => corpus.split(*held_out),
            Self::Apart(corpora) => corpora.each_ref().map(Corpus::whole),
        }
    }
}

fn text_file(section: &TextFile, masked: bool) -> Result<Opened, DataError> {
    let corpus = Corpus::read(&section.path)?;
    let with_special = |characters: CharacterSet| if masked { characters.with_special() } else { characters };
    let vocabulary = match (&section.tokenizer, &section.vocabulary) {
        (Some(tokenizer), _) => Vocabulary::Subwords(Subwords::read(tokenizer)?),
        (None, Some(list)) => Vocabulary::Characters(with_special(CharacterSet::listed(list)?)),
        (None, None) => Vocabulary::Characters(with_special(CharacterSet::of(corpus.content()))),
    };
    let description = match corpus.files() {
        1 => format!("text {}", section.path.display()),
        files => format!("{files} texts in {}", section.path.display()),
    };
    let corpora = Corpora::Divided(corpus, section.validation);
    Ok(Opened { vocabulary, corpora, windows: section.windows, description })
}

fn sentences(section: &schema::Sentences, masking: Option<&schema::Masking>) -> Opened {
    let &schema::Sentences { train, val, windows, seed } = section;
    let characters = Sentences::vocabulary();
    let characters = if masking.is_some() { characters.with_special() } else { characters };
    let text = |first, count| {
        let sentences = Sentences { seed, first, count };
        let pairs = masking.is_some_and(|masking| masking.sentence_pairs);
        let content = if pairs { sentences.documents() } else { sentences.text() };
        Corpus::written(format!("sentences(seed {seed})"), content)
    };
    let corpora = Corpora::Apart([text(0, train), text(Sentences::HELD_OUT, val)]);
    let description = format!("generated sentences, {train} + {val}");
    Opened { vocabulary: Vocabulary::Characters(characters), corpora, windows, description }
}

//! Language modelling by characters: predicts the next character for each position of a window.

mod continuation;
mod evaluate;
mod sources;

pub use continuation::{Alphabet, Sampling};

use std::{path::Path, sync::Arc};

use zoo_datasets::{
    DataError, Image, LoaderConfig, Pipeline, SampleLoader,
    hash::fnv1a64,
    language::{ConsecutiveWindows, RandomWindows, Text, Vocabulary, Window, pairs, singles},
};
use zoo_recipe::{
    LABEL, Recipe,
    schema::{Metric, Score, Source},
};

use crate::{
    Baseline, Batch, DataSets, EvaluationError, Feed, Field, HeldOut, Input, InputError, Inspection, MakeNetwork,
    Network, SampleSets, Task,
    batch::{Element, first, offer},
    evaluation::first_input,
};

/// Language modelling by characters.
pub(crate) struct LanguageModelling;

/// A training text and a held-out text with a common vocabulary.
struct Texts {
    vocabulary: Vocabulary,
    names: Vec<String>,
    train: Arc<Text>,
    val: Arc<Text>,
    /// Characters per window.
    length: usize,
    /// Windows per epoch.
    windows: usize,
}

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
        Err(InputError::at(recipe, "preprocess", "windows of text are not preprocessed"))
    }
}

impl Texts {
    fn part(&self, held_out: bool) -> &Arc<Text> {
        if held_out { &self.val } else { &self.train }
    }
}

/// Characters per window for a step or network with an input of `[T]` indices.
fn length(first: &Input) -> Result<usize, String> {
    match (first.element, first.shape.as_slice()) {
        (Element::Index, [length]) => Ok(*length),
        _ => Err(format!("`{}` cannot take the characters of a window: declare it as {{indices: [T]}}", first.name)),
    }
}

/// Windows as a batch.
fn batch(windows: Vec<Window>, name: &str) -> Batch {
    let n = windows.len();
    let (tokens, next): (Vec<_>, Vec<_>) = windows.into_iter().map(|window| (window.tokens, window.next)).unzip();
    Batch { n, fields: vec![Field::index(name, tokens.concat()), Field::index(LABEL, next.concat())] }
}

impl SampleSets for Texts {
    fn train_len(&self) -> usize {
        self.windows
    }

    fn val_len(&self) -> usize {
        ConsecutiveWindows::count(&self.val, self.length)
    }

    fn noun(&self) -> &'static str {
        "windows"
    }

    fn classes(&self) -> &[String] {
        &self.names
    }

    fn names(&self, tell: &mut dyn FnMut(String)) {
        tell(format!("{:016x}", fnv1a64(self.vocabulary.list().as_bytes())));
        for text in [&self.train, &self.val] {
            let bytes: Vec<u8> = text.tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
            tell(format!("{:016x}", fnv1a64(&bytes)));
        }
    }

    fn settle(&self, recipe: &mut Recipe) {
        if let Source::TextFile(file) = &mut recipe.data.source {
            file.vocabulary = Some(self.vocabulary.list());
        }
    }

    fn feed(&self, recipe: &Recipe, inputs: &[Input], config: LoaderConfig) -> Result<Feed, InputError> {
        let first = first(recipe, inputs)?;
        let length = length(first).map_err(|message| InputError::at(recipe, "model.inputs", message))?;
        offer(recipe, inputs, &[(&first.name, Element::Index), (LABEL, Element::Index)])?;
        if let Some(label) = inputs.iter().find(|input| input.name == LABEL && input.shape != first.shape) {
            let rows = label.shape.iter().product::<usize>();
            let message =
                format!("{rows} predictions for the {length} characters of a window: one per character is needed");
            return Err(InputError::at(recipe, "loss", message));
        }
        let windows = RandomWindows::new(self.train.clone(), length, self.windows)?;
        let name = first.name.clone();
        Ok(Feed::of_samples(SampleLoader::new(windows, config)?, move |windows| batch(windows, &name)))
    }

    fn held_out(
        &self,
        _recipe: &Recipe,
        network: &dyn Network,
        config: LoaderConfig,
    ) -> Result<Box<dyn HeldOut>, EvaluationError> {
        let input = first_input(network)?;
        let length = length(&input).map_err(EvaluationError::Mismatch)?;
        let windows = ConsecutiveWindows::new(self.val.clone(), length)?;
        let classes = self.vocabulary.len();
        Ok(Box::new(evaluate::HeldOutText { loader: SampleLoader::new(windows, config)?, input: input.name, classes }))
    }

    fn trivial_answers(
        &self,
        _recipe: &Recipe,
        _network: &mut MakeNetwork<'_>,
        _config: LoaderConfig,
        _progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<Baseline>, EvaluationError> {
        let (train, val, known) = (&self.train, &self.val, self.vocabulary.len());
        let answer = |answer: &str, value| {
            let score = Score { metric: Metric::CrossEntropy, value, of: None };
            Baseline { answer: answer.to_owned(), score }
        };
        Ok(vec![
            answer("a unigram model", singles(train, val, known)),
            answer("a bigram model", pairs(train, val, known)),
        ])
    }

    fn parts(&self) -> Vec<(&'static str, usize)> {
        let windows = |held_out| ConsecutiveWindows::count(self.part(held_out), self.length);
        vec![("train", windows(false)), ("val", windows(true))]
    }

    fn inspect(&self, part: usize, done: &(dyn Fn() + Sync)) -> Inspection {
        let (text, (name, samples)) = (self.part(part == 1), self.parts()[part]);
        let mut counts = vec![0u64; self.vocabulary.len()];
        text.tokens.iter().for_each(|token| counts[*token as usize] += 1);
        (0..samples).for_each(|_| done());
        let (all, distinct) = (text.tokens.len() as u64, counts.iter().filter(|count| **count > 0).count() as u64);
        Inspection {
            name,
            samples,
            facts: [("characters", all.into()), ("distinct", distinct.into())].into(),
            columns: vec![("characters", Some((all, all))), ("distinct", Some((distinct, distinct)))],
            pixels: None,
            broken: Vec::new(),
        }
    }

    fn sheet(&self, _held_out: bool, _rows: usize, _columns: usize) -> Result<(Image, usize), DataError> {
        Err(DataError::Config("text cannot be drawn; use `zoo data inspect`".to_owned()))
    }

    fn undrawn(&self) -> Option<&'static str> {
        Some("text is not drawn")
    }

    fn alphabet(&self) -> Option<Alphabet<'_>> {
        Some(Alphabet(&self.vocabulary))
    }
}

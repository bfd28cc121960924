//! Windows of text, with the next token for each position.

use std::sync::Arc;

use zoo_datasets::{
    DataError, LoaderConfig, SampleLoader, Samples,
    language::{ConsecutiveWindows, RandomWindows, Window, pairs, singles},
};
use zoo_recipe::{
    LABEL, Recipe,
    schema::{Metric, Score},
};

use super::{continuation::Generator, length, tally, texts::Texts, window};
use crate::{
    Asked, Baseline, Batch, Evaluation, EvaluationError, Feed, Field, HeldOut, Input, InputError, Inspection, Judged,
    Network, SampleSets, Watch, Witness,
    batch::{Element, offer},
    evaluation::{first_input, judge_all},
    metrics::{CrossEntropy, Meter, bits_per_character, perplexity},
};

/// Windows of a text.
pub(super) struct NextToken {
    pub texts: Texts,
    /// Tokens per window.
    pub length: usize,
    /// Windows per epoch.
    pub windows: usize,
}

impl SampleSets for NextToken {
    fn train_len(&self) -> usize {
        self.windows
    }

    fn val_len(&self) -> usize {
        ConsecutiveWindows::count(&self.texts.val, self.length)
    }

    fn noun(&self) -> &'static str {
        "windows"
    }

    fn classes(&self) -> &[String] {
        &self.texts.names
    }

    fn names(&self, tell: &mut dyn FnMut(String)) {
        self.texts.identify(tell);
    }

    fn settle(&self, recipe: &mut Recipe) {
        self.texts.settle(recipe);
    }

    fn feed(&self, recipe: &Recipe, inputs: &[Input], config: LoaderConfig) -> Result<Feed, InputError> {
        let first = window(recipe, inputs)?;
        offer(recipe, inputs, &[(&first.name, Element::Index), (LABEL, Element::Index)])?;
        let windows = RandomWindows::new(self.texts.train.clone(), self.length, self.windows)?;
        let name = first.name.clone();
        let batch = move |windows: Vec<Window>| {
            let n = windows.len();
            let (tokens, next): (Vec<_>, Vec<_>) =
                windows.into_iter().map(|window| (window.tokens, window.next)).unzip();
            Batch { n, fields: vec![Field::index(&name, tokens.concat()), Field::index(LABEL, next.concat())] }
        };
        Ok(Feed::of_samples(SampleLoader::new(windows, config)?, batch))
    }

    fn held_out(&self, judged: Judged<'_>) -> Result<Box<dyn HeldOut>, EvaluationError> {
        let Judged { network, config, .. } = judged;
        let input = first_input(network)?;
        let length = length(&input).map_err(EvaluationError::Mismatch)?;
        let windows = ConsecutiveWindows::new(self.texts.val.clone(), length)?;
        Ok(Box::new(HeldOutWindows {
            loader: SampleLoader::new(windows, config)?,
            input: input.name,
            classes: self.texts.vocabulary.len(),
            characters_per_token: self.texts.val.characters_per_token(),
        }))
    }

    fn trivial_answers(&self, _asked: Asked<'_, '_>) -> Result<Vec<Baseline>, EvaluationError> {
        let Texts { train, val, vocabulary, .. } = &self.texts;
        let known = vocabulary.len();
        let answer = |answer: &str, value| {
            let score = Score { metric: Metric::CrossEntropy, value, of: None };
            Baseline { answer: answer.to_owned(), score }
        };
        Ok(vec![
            answer("a unigram model", singles(train, val, known)),
            answer("a bigram model", pairs(train, val, known)),
        ])
    }

    /// Those of the training text are counted one after the other, however many of them an epoch draws.
    fn parts(&self) -> Vec<(&'static str, usize)> {
        let windows = |text: &Arc<_>| ConsecutiveWindows::count(text, self.length);
        vec![("train", windows(&self.texts.train)), ("val", windows(&self.texts.val))]
    }

    fn inspect(&self, part: usize, done: &(dyn Fn() + Sync)) -> Inspection {
        let (name, samples) = self.parts()[part];
        self.texts.inspect(name, samples, part == 1, done)
    }

    fn undrawn(&self) -> Option<&'static str> {
        Some("text is not drawn")
    }

    fn generator(&self) -> Option<Generator<'_>> {
        Some(Generator(&self.texts.vocabulary))
    }
}

/// All held-out windows.
struct HeldOutWindows {
    loader: SampleLoader<ConsecutiveWindows>,
    /// Name of the input for the tokens.
    input: String,
    /// Size of the vocabulary.
    classes: usize,
    characters_per_token: f64,
}

impl HeldOut for HeldOutWindows {
    fn evaluate(&self, network: &mut dyn Network, mut watch: Watch<'_>) -> Result<Option<Evaluation>, EvaluationError> {
        let of = self.loader.samples().len();
        let mut loss = CrossEntropy::default();
        let judge = |windows: Vec<Window>, _, _: &mut Witness<'_>| {
            let tokens: Vec<u32> = windows.iter().flat_map(|window| window.tokens.iter().copied()).collect();
            let next: Vec<_> = windows.iter().flat_map(|window| window.next.iter().copied().map(Some)).collect();
            let outputs = network.run(windows.len(), vec![Field::index(&self.input, tokens)])?;
            let Some(logits) = outputs.first() else {
                return Err(EvaluationError::Mismatch("the network has no output".to_owned()));
            };
            tally(logits, self.classes, &next, &mut [&mut loss])?;
            Ok(windows.len())
        };
        let Some(samples) = judge_all(self.loader.epoch(0, 0)?, of, &mut watch, judge)? else { return Ok(None) };
        let loss = loss.value();
        let scores = vec![perplexity(loss), bits_per_character(loss, self.characters_per_token)];
        Ok(Some(Evaluation { samples, loss: Some(loss), scores }))
    }

    fn labels(&self) -> Result<Option<Vec<u32>>, EvaluationError> {
        let windows = self.loader.samples();
        let next = (0..windows.len()).map(|index| Ok(windows.sample(0, 0, index)?.next));
        let next: Vec<Vec<u32>> = next.collect::<Result<_, DataError>>()?;
        Ok(Some(next.concat()))
    }
}

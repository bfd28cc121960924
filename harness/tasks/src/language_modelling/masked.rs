//! Sequences with hidden tokens, and pairs of sentences of which the second follows the first or does not.
//!
//! Inputs and labels have the names of transformers' `BertForPreTraining`.

use zoo_datasets::{
    DataError, LoaderConfig, SampleLoader, Samples,
    language::{Between, ConsecutiveWindows, Masked, MaskedSequence, RandomWindows, SentencePairs, Sequence},
};
use zoo_recipe::{
    LABEL, Recipe,
    schema::{Metric, Score},
};

use super::{length, tally, texts::Texts, window};
use crate::{
    Asked, Baseline, Batch, Evaluation, EvaluationError, Feed, Field, HeldOut, Input, InputError, Inspection, Judged,
    Network, Output, SampleSets, Watch, Witness,
    batch::{Element, offer},
    evaluation::{first_input, judge_all},
    metrics::{CrossEntropy, Meter, TopK, perplexity},
};

/// Input: 1 for the tokens of the second sentence.
const SEGMENTS: &str = "token_type_ids";
/// Input: 0 for padding.
const FILLED: &str = "attention_mask";
/// Label: 0 if the second sentence follows the first, 1 if it comes from another document.
const FOLLOWING: &str = "next_sentence_label";

/// Sequences with hidden tokens.
pub(super) struct MaskedTokens {
    pub texts: Texts,
    pub train: Masked<Sequences>,
    pub val: Masked<Sequences>,
    /// Tokens per sequence.
    pub length: usize,
    /// Label of tokens that are not hidden.
    pub unmasked: u32,
    /// Whether sequences are pairs of sentences.
    pub pairs: bool,
}

/// Sequences of one part of a text.
#[derive(Clone)]
pub(super) enum Sequences {
    Random(RandomWindows),
    Consecutive(ConsecutiveWindows),
    Pairs(SentencePairs),
}

impl Samples for Sequences {
    type Sample = Sequence;

    fn len(&self) -> usize {
        match self {
            Self::Random(windows) => windows.len(),
            Self::Consecutive(windows) => windows.len(),
            Self::Pairs(pairs) => pairs.len(),
        }
    }

    fn sample(&self, seed: u64, epoch: u64, index: usize) -> Result<Sequence, DataError> {
        match self {
            Self::Random(windows) => windows.sample(seed, epoch, index).map(Sequence::from),
            Self::Consecutive(windows) => windows.sample(seed, epoch, index).map(Sequence::from),
            Self::Pairs(pairs) => pairs.sample(seed, epoch, index),
        }
    }
}

/// What a network with these inputs reads of sequences; the first input takes the tokens.
fn read(sequences: &[MaskedSequence], inputs: &[String]) -> Vec<Field> {
    let tokens = |of: fn(&Sequence) -> &[u32]| {
        sequences.iter().flat_map(|masked| of(&masked.sequence).iter().copied()).collect::<Vec<u32>>()
    };
    let filled = |masked: &MaskedSequence| {
        let Sequence { tokens, filled, .. } = &masked.sequence;
        let filled = *filled;
        (0..tokens.len()).map(move |place| if place < filled { 1.0 } else { 0.0 })
    };
    let first = inputs.first().map(|name| Field::index(name, tokens(|sequence| &sequence.tokens)));
    let others = inputs.iter().skip(1).filter_map(|name| match name.as_str() {
        SEGMENTS => Some(Field::index(SEGMENTS, tokens(|sequence| &sequence.segments))),
        FILLED => Some(Field::real(FILLED, sequences.iter().flat_map(filled).collect())),
        _ => None,
    });
    first.into_iter().chain(others).collect()
}

/// The labels of [`FOLLOWING`].
fn following(masked: &MaskedSequence) -> Option<u32> {
    masked.sequence.follows.map(|follows| u32::from(!follows))
}

impl SampleSets for MaskedTokens {
    fn train_len(&self) -> usize {
        self.train.len()
    }

    fn val_len(&self) -> usize {
        self.val.len()
    }

    fn noun(&self) -> &'static str {
        "sequences"
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
        let mut offered = vec![
            (first.name.as_str(), Element::Index),
            (SEGMENTS, Element::Index),
            (FILLED, Element::Real),
            (LABEL, Element::Index),
        ];
        if self.pairs {
            offered.push((FOLLOWING, Element::Index));
        }
        offer(recipe, inputs, &offered)?;
        let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
        let batch = move |sequences: Vec<MaskedSequence>| {
            let mut fields = read(&sequences, &names);
            for name in &names {
                match name.as_str() {
                    LABEL => {
                        let labels = sequences.iter().flat_map(|sequence| sequence.labels.iter().copied());
                        fields.push(Field::index(LABEL, labels.collect()));
                    }
                    FOLLOWING => fields.push(Field::index(FOLLOWING, sequences.iter().filter_map(following).collect())),
                    _ => {}
                }
            }
            Batch { n: sequences.len(), fields }
        };
        Ok(Feed::of_samples(SampleLoader::new(self.train.clone(), config)?, batch))
    }

    fn held_out(&self, judged: Judged<'_>) -> Result<Box<dyn HeldOut>, EvaluationError> {
        let Judged { recipe, network, config } = judged;
        let length = length(&first_input(network)?).map_err(EvaluationError::Mismatch)?;
        if length != self.length {
            let message = format!("sequences of {} tokens for a network that takes {length}", self.length);
            return Err(EvaluationError::Mismatch(message));
        }
        let loader = SampleLoader::new(self.val.clone(), config)?;
        let outputs = network.outputs();
        let hidden = recipe.loss.softmax_cross_entropy.as_ref().and_then(|entropy| entropy.prediction.clone());
        let hidden = hidden.or_else(|| outputs.first().map(|(name, _)| name.clone()));
        let pairs = recipe.loss.cross_entropies.values().find(|entropy| entropy.label == FOLLOWING);
        Ok(Box::new(HeldOutSequences {
            loader,
            inputs: network.inputs().into_iter().map(|input| input.name).collect(),
            hidden: hidden.unwrap_or_default(),
            pairs: pairs.and_then(|entropy| entropy.prediction.clone()).filter(|_| self.pairs),
            classes: self.texts.vocabulary.len(),
            unmasked: self.unmasked,
        }))
    }

    fn trivial_answers(&self, asked: Asked<'_, '_>) -> Result<Vec<Baseline>, EvaluationError> {
        let Asked { config, progress, .. } = asked;
        let between = Between::new(&self.texts.train);
        let loader = SampleLoader::new(self.val.clone(), config)?;
        let of = loader.samples().len();
        let (mut hidden, mut common, mut guessed, mut done) = (0u64, 0u64, 0u64, 0);
        for sequences in loader.epoch(0, 0)? {
            for MaskedSequence { sequence, labels } in sequences? {
                let places = labels.iter().enumerate().filter(|(_, label)| **label != self.unmasked);
                for (place, label) in places {
                    hidden += 1;
                    common += u64::from(*label == between.common());
                    guessed += u64::from(*label == between.guess(&sequence.tokens, place));
                }
                done += 1;
            }
            progress(done, of);
        }
        let answer = |answer: &str, right: u64| {
            let score = Score { metric: Metric::MaskedAccuracy, value: right as f64 / hidden as f64, of: None };
            Baseline { answer: answer.to_owned(), score }
        };
        Ok(vec![
            answer("the most frequent token", common),
            answer("the most frequent token between the two neighbours", guessed),
        ])
    }

    fn inspect(&self, part: usize, done: &(dyn Fn() + Sync)) -> Inspection {
        let (name, samples) = self.parts()[part];
        self.texts.inspect(name, samples, part == 1, done)
    }

    fn undrawn(&self) -> Option<&'static str> {
        Some("text is not drawn")
    }
}

/// All held-out sequences, with the same hidden tokens in each evaluation.
struct HeldOutSequences {
    loader: SampleLoader<Masked<Sequences>>,
    /// Names of the inputs.
    inputs: Vec<String>,
    /// Output with the logits of the tokens.
    hidden: String,
    /// Output with the logits of the pairs.
    pairs: Option<String>,
    /// Size of the vocabulary.
    classes: usize,
    /// Label of tokens that are not hidden.
    unmasked: u32,
}

impl HeldOut for HeldOutSequences {
    fn evaluate(&self, network: &mut dyn Network, mut watch: Watch<'_>) -> Result<Option<Evaluation>, EvaluationError> {
        let of = self.loader.samples().len();
        let (mut loss, mut right, mut paired) = (CrossEntropy::default(), TopK::new(1), TopK::new(1));
        let judge = |sequences: Vec<MaskedSequence>, _, _: &mut Witness<'_>| {
            let mut outputs = network.run(sequences.len(), read(&sequences, &self.inputs))?;
            let labels = sequences.iter().flat_map(|sequence| &sequence.labels);
            let labels: Vec<_> = labels.map(|label| Some(*label).filter(|label| *label != self.unmasked)).collect();
            let hidden = Output::take(&mut outputs, &self.hidden)?;
            tally(&hidden, self.classes, &labels, &mut [&mut loss, &mut right])?;
            if let Some(pairs) = &self.pairs {
                let labels: Vec<_> = sequences.iter().map(following).collect();
                tally(&Output::take(&mut outputs, pairs)?, 2, &labels, &mut [&mut paired])?;
            }
            Ok(sequences.len())
        };
        let Some(samples) = judge_all(self.loader.epoch(0, 0)?, of, &mut watch, judge)? else { return Ok(None) };
        let loss = loss.value();
        let mut scores = vec![perplexity(loss), right.score(Metric::MaskedAccuracy)];
        scores.extend(self.pairs.as_ref().map(|_| paired.score(Metric::NextSentenceAccuracy)));
        Ok(Some(Evaluation { samples, loss: Some(loss), scores }))
    }
}

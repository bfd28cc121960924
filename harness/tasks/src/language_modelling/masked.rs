//! Sequences with hidden tokens, and pairs of sentences of which the second follows the first or does not.
//!
//! Inputs and labels have the names of transformers' `BertForPreTraining`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use zoo_datasets::{
    DataError, Image, LoaderConfig, SampleLoader, Samples,
    language::{
        Between, ConsecutiveWindows, Documents, Masked, MaskedSequence, Masking, RandomWindows, SentencePairs, Sequence,
    },
};
use zoo_recipe::{
    LABEL, Recipe,
    schema::{Metric, Score},
};

use super::{length, texts::Texts, window};
use crate::{
    Baseline, Batch, Evaluation, EvaluationError, Feed, Field, HeldOut, Input, InputError, Inspection, MakeNetwork,
    Network, Output, SampleSets, Sight, Witness,
    batch::{Element, offer},
    evaluation::first_input,
    metrics::{Classified, CrossEntropy, Meter, TopK, perplexity},
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
    /// Documents of the training and the held-out text, if samples are pairs of sentences.
    pub documents: Option<[Arc<Documents>; 2]>,
    pub masking: Masking,
    /// Tokens per sequence.
    pub length: usize,
    /// Sequences per epoch, from random places; by default each place once.
    pub windows: Option<usize>,
}

/// Sequences of one part of a text.
enum Sequences {
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

impl MaskedTokens {
    /// Whether such samples can be made of both parts.
    ///
    /// # Errors
    /// Texts that are too short, or a vocabulary without special tokens.
    pub fn expect_samples(&self) -> Result<(), DataError> {
        [false, true].into_iter().try_for_each(|held_out| self.sequences(held_out, self.length).map(|_| ()))
    }

    fn sequences(&self, held_out: bool, length: usize) -> Result<Masked<Sequences>, DataError> {
        let Texts { train, val, vocabulary, .. } = &self.texts;
        let windows = self.windows.filter(|_| !held_out);
        let sequences = match (&self.documents, windows) {
            (Some([train, val]), windows) => {
                let documents = if held_out { val } else { train };
                Sequences::Pairs(SentencePairs::new(documents.clone(), length, windows, vocabulary)?)
            }
            (None, _) if held_out => Sequences::Consecutive(ConsecutiveWindows::new(val.clone(), length)?),
            (None, windows) => {
                let windows = windows.unwrap_or_else(|| ConsecutiveWindows::count(train, length));
                Sequences::Random(RandomWindows::new(train.clone(), length, windows)?)
            }
        };
        Ok(Masked::new(sequences, self.masking.clone()))
    }

    fn len(&self, held_out: bool) -> usize {
        self.sequences(held_out, self.length).map_or(0, |sequences| sequences.len())
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
        self.len(false)
    }

    fn val_len(&self) -> usize {
        self.len(true)
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
        let (first, length) = window(recipe, inputs)?;
        let mut offered = vec![
            (first.name.as_str(), Element::Index),
            (SEGMENTS, Element::Index),
            (FILLED, Element::Real),
            (LABEL, Element::Index),
        ];
        if self.documents.is_some() {
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
        Ok(Feed::of_samples(SampleLoader::new(self.sequences(false, length)?, config)?, batch))
    }

    fn held_out(
        &self,
        recipe: &Recipe,
        network: &dyn Network,
        config: LoaderConfig,
    ) -> Result<Box<dyn HeldOut>, EvaluationError> {
        let length = length(&first_input(network)?).map_err(EvaluationError::Mismatch)?;
        let loader = SampleLoader::new(self.sequences(true, length)?, config)?;
        let outputs = network.outputs();
        let hidden = recipe.loss.softmax_cross_entropy.as_ref().and_then(|entropy| entropy.prediction.clone());
        let hidden = hidden.or_else(|| outputs.first().map(|(name, _)| name.clone()));
        let pairs = recipe.loss.cross_entropies.values().find(|entropy| entropy.label == FOLLOWING);
        Ok(Box::new(HeldOutSequences {
            loader,
            inputs: network.inputs().into_iter().map(|input| input.name).collect(),
            hidden: hidden.unwrap_or_default(),
            pairs: pairs.and_then(|entropy| entropy.prediction.clone()).filter(|_| self.documents.is_some()),
            classes: self.texts.vocabulary.len(),
            unmasked: self.masking.unmasked(),
        }))
    }

    fn trivial_answers(
        &self,
        _recipe: &Recipe,
        _network: &mut MakeNetwork<'_>,
        config: LoaderConfig,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<Baseline>, EvaluationError> {
        let between = match &self.documents {
            Some([train, _]) => Between::new(train.sentences.iter().map(Vec::as_slice)),
            None => Between::new(std::iter::once(self.texts.train.tokens.as_slice())),
        };
        let loader = SampleLoader::new(self.sequences(true, self.length)?, config)?;
        let of = loader.samples().len();
        let (mut hidden, mut common, mut guessed, mut done) = (0u64, 0u64, 0u64, 0);
        for sequences in loader.epoch(0, 0)? {
            for MaskedSequence { sequence, labels } in sequences? {
                let places = labels.iter().enumerate().filter(|(_, label)| **label != self.masking.unmasked());
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

    fn parts(&self) -> Vec<(&'static str, usize)> {
        vec![("train", self.len(false)), ("val", self.len(true))]
    }

    fn inspect(&self, part: usize, done: &(dyn Fn() + Sync)) -> Inspection {
        let (name, samples) = self.parts()[part];
        self.texts.inspect(name, samples, part == 1, done)
    }

    fn sheet(&self, _held_out: bool, _rows: usize, _columns: usize) -> Result<(Image, usize), DataError> {
        Err(DataError::Config("text cannot be drawn; use `zoo data inspect`".to_owned()))
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

/// Adds the logits of items with labels to meters.
fn add(
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

impl HeldOut for HeldOutSequences {
    fn evaluate(
        &self,
        network: &mut dyn Network,
        cancel: &AtomicBool,
        witness: &mut Witness<'_>,
    ) -> Result<Option<Evaluation>, EvaluationError> {
        let of = self.loader.samples().len();
        let (mut loss, mut right, mut paired) = (CrossEntropy::default(), TopK::new(1), TopK::new(1));
        let mut samples = 0;
        for sequences in self.loader.epoch(0, 0)? {
            if cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let sequences = sequences?;
            let mut outputs = network.run(sequences.len(), read(&sequences, &self.inputs))?;
            let labels = sequences.iter().flat_map(|sequence| &sequence.labels);
            let labels: Vec<_> = labels.map(|label| Some(*label).filter(|label| *label != self.unmasked)).collect();
            let hidden = Output::take(&mut outputs, &self.hidden)?;
            add(&hidden, self.classes, &labels, &mut [&mut loss, &mut right])?;
            if let Some(pairs) = &self.pairs {
                let labels: Vec<_> = sequences.iter().map(following).collect();
                add(&Output::take(&mut outputs, pairs)?, 2, &labels, &mut [&mut paired])?;
            }
            samples += sequences.len();
            witness(&Sight::Progress { what: "samples", done: samples, of });
        }
        if samples == 0 {
            return Err(EvaluationError::NothingEvaluated);
        }
        let loss = loss.value();
        let mut scores = vec![perplexity(loss), right.score(Metric::MaskedAccuracy)];
        scores.extend(self.pairs.as_ref().map(|_| paired.score(Metric::NextSentenceAccuracy)));
        Ok(Some(Evaluation { samples: samples as u64, loss: Some(loss), scores }))
    }
}

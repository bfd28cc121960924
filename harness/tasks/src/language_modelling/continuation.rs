//! Generates text, one token at a time.

use std::sync::atomic::{AtomicBool, Ordering};

use zoo_datasets::{
    Rng,
    language::{Unencodable, Vocabulary},
};

use super::length;
use crate::{EvaluationError, Field, Network, evaluation::first_input};

/// How the tokens of a continuation are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Number of tokens to generate.
    pub length: usize,
    /// The temperature by which logits are divided before sampling; 0 chooses the most likely token.
    pub temperature: f64,
    /// Seed of the draws.
    pub seed: u64,
}

/// Generates text with a network that predicts the next token of this vocabulary.
pub struct Generator<'a>(pub(super) &'a Vocabulary);

impl Generator<'_> {
    /// Generates text after `prompt`; `tell` is called with each piece of it, as soon as its characters are complete.
    /// The input is the last tokens that fit the network's window. If the text is shorter than the window, the rest is
    /// padded: a causal network ignores positions after the last token. Returns false if `cancel` was set before the
    /// end.
    ///
    /// # Errors
    /// An empty prompt, a character outside the vocabulary, or a network whose input is not tokens.
    pub fn continue_text(
        &self,
        network: &mut dyn Network,
        prompt: &str,
        sampling: Sampling,
        cancel: &AtomicBool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<bool, EvaluationError> {
        let (vocabulary, known) = (self.0, self.0.len());
        let input = first_input(network)?;
        let length = length(&input).map_err(EvaluationError::Mismatch)?;
        let mut tokens = self.tokens(prompt)?;
        let mut rng = Rng::new(sampling.seed, 0, 0);
        // A byte or a word piece alone may be no text: the tokens from `from` on are decoded together, and what the
        // first of them (up to `told`) already gave is left out.
        let (mut from, mut told) = (tokens.len() - 1, tokens.len());
        let decode = |tokens: &[u32]| vocabulary.decode(tokens).map_err(EvaluationError::Prompt);
        for drawn in 1..=sampling.length {
            if cancel.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let mut window = tokens[tokens.len().saturating_sub(length)..].to_vec();
            let last = window.len() - 1;
            window.resize(length, 0);
            let outputs = network.run(1, vec![Field::index(&input.name, window)])?;
            let logits = outputs.first().map(|output| output.values.as_slice()).unwrap_or_default();
            let mismatch = || EvaluationError::Mismatch(format!("{} logits for {length} tokens", logits.len()));
            if logits.len() != length * known {
                return Err(mismatch());
            }
            let logits = logits.chunks_exact(known).nth(last).ok_or_else(mismatch)?;
            tokens.push(choose(logits, sampling.temperature, &mut rng) as u32);
            let (before, now) = (decode(&tokens[from..told])?, decode(&tokens[from..])?);
            let new = now.get(before.len()..).unwrap_or_default();
            let complete = !now.ends_with(char::REPLACEMENT_CHARACTER) || drawn == sampling.length;
            if complete && !new.is_empty() {
                tell(new);
                (from, told) = (told, tokens.len());
            }
        }
        Ok(true)
    }

    fn tokens(&self, prompt: &str) -> Result<Vec<u32>, EvaluationError> {
        let refused = |error| match (error, self.0) {
            (Unencodable::Character { character, .. }, Vocabulary::Characters(characters)) => format!(
                "the prompt contains {character:?}, which is not in the vocabulary of the network: {:?}",
                characters.list()
            ),
            (Unencodable::Character { character, .. }, Vocabulary::Subwords(_)) => {
                format!("the prompt contains {character:?}, which is not in the vocabulary")
            }
            (Unencodable::Tokenizer(message), _) => format!("the tokenizer cannot encode the prompt: {message}"),
        };
        let tokens = self.0.encode(prompt).map_err(|error| EvaluationError::Prompt(refused(error)))?;
        if tokens.is_empty() {
            return Err(EvaluationError::Prompt("the prompt is empty".to_owned()));
        }
        Ok(tokens)
    }
}

/// The index of the largest logit, or one sampled from the softmax of the logits over `temperature`.
fn choose(logits: &[f32], temperature: f64, rng: &mut Rng) -> usize {
    let largest = logits.iter().enumerate().fold((0, f32::NEG_INFINITY), |largest, (place, logit)| {
        if *logit > largest.1 { (place, *logit) } else { largest }
    });
    if temperature <= 0.0 {
        return largest.0;
    }
    let weights: Vec<f64> = logits.iter().map(|logit| weight(*logit, largest.1, temperature)).collect();
    let mut left = rng.unit() * weights.iter().sum::<f64>();
    for (place, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return place;
        }
    }
    largest.0
}

/// The probability of a logit relative to that of the largest one.
fn weight(logit: f32, largest: f32, temperature: f64) -> f64 {
    libm::exp(f64::from(logit - largest) / temperature)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_datasets::{hash::fnv1a64, language::CharacterSet};

    use crate::{Element, Input, Output};

    /// A window of 4 characters of `a`, `b`, `c`, `d`; each is followed by the next of the alphabet, `d` by `a`.
    struct Alphabetical {
        seen: Vec<Vec<u32>>,
    }

    impl Network for Alphabetical {
        fn batch(&self) -> usize {
            1
        }

        fn inputs(&self) -> Vec<Input> {
            vec![Input { name: "tokens".into(), shape: vec![4], element: Element::Index }]
        }

        fn outputs(&self) -> Vec<(String, Vec<usize>)> {
            vec![("logits".into(), vec![4, 4])]
        }

        fn resize(&mut self, _batch: usize, _input: &str, _shape: &[usize]) -> Result<(), EvaluationError> {
            Ok(())
        }

        fn run(&mut self, _n: usize, inputs: Vec<Field>) -> Result<Vec<Output>, EvaluationError> {
            let crate::Numbers::Index(tokens) = &inputs[0].numbers else { panic!("indices") };
            let logits =
                tokens.iter().flat_map(|token| (0..4).map(move |next| f32::from(u8::from(next == (token + 1) % 4))));
            let values = logits.collect();
            self.seen.push(tokens.clone());
            Ok(vec![Output { name: "logits".into(), shape: vec![4, 4], values }])
        }
    }

    fn continued(prompt: &str, length: usize, temperature: f64, seed: u64) -> Result<(String, Vec<Vec<u32>>), String> {
        let vocabulary = Vocabulary::Characters(CharacterSet::listed("abcd").unwrap());
        let (mut network, mut text) = (Alphabetical { seen: Vec::new() }, String::new());
        let sampling = Sampling { length, temperature, seed };
        let done = Generator(&vocabulary).continue_text(
            &mut network,
            prompt,
            sampling,
            &AtomicBool::new(false),
            &mut |piece| text.push_str(piece),
        );
        done.map(|_| (text, network.seen)).map_err(|error| error.to_string())
    }

    #[test]
    fn the_window_follows_the_text() {
        let (text, seen) = continued("bc", 4, 0.0, 0).unwrap();
        assert_eq!(text, "dabc");
        assert_eq!(seen, [[1, 2, 0, 0], [1, 2, 3, 0], [1, 2, 3, 0], [2, 3, 0, 1]]);
    }

    #[test]
    fn draws_are_those_of_the_seed() {
        let draw = |temperature, seed| continued("a", 40, temperature, seed).unwrap().0;
        assert_eq!(draw(1.0, 7), draw(1.0, 7));
        assert_ne!(draw(1.0, 7), draw(1.0, 8));
        // Logits a thousand times as far apart make the draw deterministic.
        assert_eq!(draw(0.001, 7), draw(0.0, 0));
    }

    #[test]
    fn what_the_network_does_not_know_is_named() {
        assert_eq!(
            continued("ax", 1, 0.0, 0).unwrap_err(),
            "the prompt contains 'x', which is not in the vocabulary of the network: \"abcd\""
        );
        assert_eq!(continued("", 0, 0.0, 0).unwrap_err(), "the prompt is empty");
    }

    /// They do not depend on the exponential function of the platform, which differs in last bits.
    #[test]
    fn weights_are_the_same_everywhere() {
        let weights = (0..20_000).flat_map(|i| weight(0.0, i as f32 / 1000.0, 0.7).to_le_bytes());
        assert_eq!(fnv1a64(&weights.collect::<Vec<_>>()), 0xbcd2_088d_388e_d757);
    }

    #[test]
    fn tokens_are_drawn_by_their_probability() {
        let mut rng = Rng::new(1, 0, 0);
        let third = (0..3000).filter(|_| choose(&[0.0, 2f32.ln()], 1.0, &mut rng) == 0).count();
        assert!((900..1100).contains(&third), "{third}");
    }
}

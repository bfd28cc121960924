//! Hidden tokens, which a network predicts from those around them.

use super::{Special, Vocabulary, Window};
use crate::{DataError, Rng, Samples};

/// Tokens as BERT reads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// The tokens, with the padding.
    pub tokens: Vec<u32>,
    /// For each of them 1 in the second sentence, 0 elsewhere.
    pub segments: Vec<u32>,
    /// Number of tokens before the padding.
    pub filled: usize,
    /// Whether the second sentence follows the first in their document; none where there is one text.
    pub follows: Option<bool>,
}

impl From<Window> for Sequence {
    fn from(Window { tokens, .. }: Window) -> Self {
        let filled = tokens.len();
        Self { tokens, segments: vec![0; filled], filled, follows: None }
    }
}

/// Hides tokens (Devlin et al., arXiv 1810.04805, section 3.1).
///
/// Of the n tokens of a sequence that are not special, max(1, round(share * n)) are chosen. Of these 80 % become the
/// mask, 10 % a token that is drawn from the whole vocabulary, and 10 % stay as they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Masking {
    share: f64,
    mask: u32,
    special: [u32; 3],
    vocabulary: usize,
    unmasked: u32,
}

impl Masking {
    /// Hides a `share` of the tokens; the label of all others is `unmasked`.
    ///
    /// # Errors
    /// A vocabulary without the special tokens, or one in which `unmasked` is a token.
    pub fn new(share: f64, vocabulary: &Vocabulary, unmasked: u32) -> Result<Self, DataError> {
        if (unmasked as usize) < vocabulary.len() {
            let known = vocabulary.len();
            let message = format!(
                "{unmasked}, the label of tokens that are not hidden, is one of the {known} tokens: set `ignore` of the \
                 loss to a larger number"
            );
            return Err(DataError::Config(message));
        }
        let [padding, start, separator, mask] = Special::ALL.map(|token| vocabulary.special(token));
        Ok(Self { share, mask: mask?, special: [padding?, start?, separator?], vocabulary: vocabulary.len(), unmasked })
    }

    /// Hides tokens of a sequence; returns the label of each of its places.
    fn hide(&self, sequence: &mut Sequence, rng: &mut Rng) -> Vec<u32> {
        let mut labels = vec![self.unmasked; sequence.tokens.len()];
        let plain = |place: &usize| !self.special.contains(&sequence.tokens[*place]);
        let mut places: Vec<usize> = (0..sequence.filled).filter(plain).collect();
        let hidden = ((self.share * places.len() as f64).round() as usize).max(1).min(places.len());
        for chosen in 0..hidden {
            let other = chosen + rng.below(places.len() - chosen);
            places.swap(chosen, other);
            let token = &mut sequence.tokens[places[chosen]];
            labels[places[chosen]] = *token;
            if rng.chance(0.8) {
                *token = self.mask;
            } else if rng.chance(0.5) {
                *token = rng.below(self.vocabulary) as u32;
            }
        }
        labels
    }
}

/// Sequences with hidden tokens.
#[derive(Debug, Clone)]
pub struct Masked<S> {
    sequences: S,
    masking: Masking,
}

impl<S> Masked<S> {
    /// Hides tokens of each of these sequences, in each epoch others.
    pub fn new(sequences: S, masking: Masking) -> Self {
        Self { sequences, masking }
    }
}

/// A sequence with hidden tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskedSequence {
    /// What the network reads.
    pub sequence: Sequence,
    /// For each place the token that was hidden there, or the label of tokens that are not hidden.
    pub labels: Vec<u32>,
}

impl<S: Samples<Sample: Into<Sequence>>> Samples for Masked<S> {
    type Sample = MaskedSequence;

    fn len(&self) -> usize {
        self.sequences.len()
    }

    fn sample(&self, seed: u64, epoch: u64, index: usize) -> Result<MaskedSequence, DataError> {
        /// Draws of the masks are not those of the sequences.
        const STREAM: u64 = 0x6d61_736b;
        let mut sequence = self.sequences.sample(seed, epoch, index)?.into();
        let labels = self.masking.hide(&mut sequence, &mut Rng::new(seed ^ STREAM, epoch, index as u64));
        Ok(MaskedSequence { sequence, labels })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::CharacterSet;
    use proptest::{prop_assert, proptest};

    fn vocabulary() -> Vocabulary {
        Vocabulary::Characters(CharacterSet::of("abcdefghij").with_special())
    }

    fn sequence(tokens: Vec<u32>, filled: usize) -> Sequence {
        Sequence { segments: vec![0; tokens.len()], tokens, filled, follows: None }
    }

    #[test]
    fn four_of_five_hidden_tokens_become_the_mask() {
        let masking = Masking::new(0.15, &vocabulary(), 999).unwrap();
        let (mut masked, mut kept, mut other) = (0u32, 0u32, 0u32);
        for index in 0..1000 {
            let before = sequence((0..100).map(|place| place % 10).collect(), 100);
            let mut after = before.clone();
            let labels = masking.hide(&mut after, &mut Rng::new(1, 2, index));
            assert_eq!(labels.iter().filter(|label| **label != 999).count(), 15);
            for (place, label) in labels.iter().enumerate() {
                let (was, is) = (before.tokens[place], after.tokens[place]);
                assert!(*label == was || (*label == 999 && was == is));
                match (*label != 999, is) {
                    (true, 13) => masked += 1,
                    (true, is) if is == was => kept += 1,
                    (true, _) => other += 1,
                    (false, _) => {}
                }
            }
        }
        // Of 15000: 12000 masks by choice, and of 1500 random tokens one in 14 is the mask and one the token itself.
        // Six deviations are 294, 233 and 220.
        let expected = [12_000 + 107, 1500 + 107, 1286];
        assert!(masked.abs_diff(expected[0]) < 294 && kept.abs_diff(expected[1]) < 233, "{masked} {kept} {other}");
        assert!(other.abs_diff(expected[2]) < 220, "{masked} {kept} {other}");
    }

    #[test]
    fn the_label_of_other_tokens_is_no_token() {
        let error = Masking::new(0.15, &vocabulary(), 13).unwrap_err().to_string();
        assert!(error.contains("13, the label of tokens that are not hidden, is one of the 14 tokens"), "{error}");
        assert!(Masking::new(0.15, &vocabulary(), 14).is_ok());
    }

    #[test]
    fn at_least_one_token_is_hidden_where_there_is_one() {
        let masking = Masking::new(0.15, &vocabulary(), 999).unwrap();
        let hidden = |tokens: Vec<u32>, filled| {
            let labels = masking.hide(&mut sequence(tokens, filled), &mut Rng::new(0, 0, 0));
            labels.iter().filter(|label| **label != 999).count()
        };
        assert_eq!(hidden(vec![11, 3, 12, 12, 10, 10], 4), 1);
        assert_eq!(hidden(vec![11, 12, 12], 3), 0);
    }

    proptest! {
        #[test]
        fn special_tokens_and_padding_stay(
            tokens in proptest::collection::vec(0u32..13, 1..40),
            seed: u64,
            share in 0.01f64..1.0,
        ) {
            let masking = Masking::new(share, &vocabulary(), 999).unwrap();
            let filled = tokens.len() / 2;
            let mut after = sequence(tokens.clone(), filled);
            let labels = masking.hide(&mut after, &mut Rng::new(seed, 0, 0));
            for place in 0..tokens.len() {
                let hidden = labels[place] != 999;
                prop_assert!(hidden || tokens[place] == after.tokens[place]);
                prop_assert!(!hidden || (place < filled && tokens[place] < 10 && labels[place] == tokens[place]));
            }
        }
    }
}

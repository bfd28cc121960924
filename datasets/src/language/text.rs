//! A text as a sequence of tokens.

use super::Vocabulary;

/// A text as a sequence of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Its name in messages.
    pub name: String,
    /// The numbers of its tokens.
    pub tokens: Vec<u32>,
    /// How many characters it has.
    pub characters: usize,
}

impl Text {
    /// Characters per token.
    pub fn characters_per_token(&self) -> f64 {
        self.characters as f64 / self.tokens.len() as f64
    }

    /// How often each token occurs.
    pub fn counts(&self, vocabulary: &Vocabulary) -> Vec<u64> {
        let mut counts = vec![0; vocabulary.len()];
        self.tokens.iter().for_each(|token| counts[*token as usize] += 1);
        counts
    }
}

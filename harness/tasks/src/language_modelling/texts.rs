//! A training text and a held-out text with a common vocabulary: what all samples of text share.

use std::{path::absolute, sync::Arc};

use zoo_datasets::{
    DataError,
    hash::fnv1a64,
    language::{Excerpt, Text, Vocabulary},
};
use zoo_recipe::{Recipe, schema::Source};

use crate::Inspection;

/// A training text and a held-out text with a common vocabulary.
pub(super) struct Texts {
    pub vocabulary: Vocabulary,
    /// Names of the tokens.
    pub names: Vec<String>,
    pub train: Arc<Text>,
    pub val: Arc<Text>,
}

impl Texts {
    /// The texts of two parts of a corpus.
    ///
    /// # Errors
    /// A part that the vocabulary cannot encode.
    pub fn of(vocabulary: Vocabulary, parts: &[Excerpt<'_>; 2]) -> Result<Self, DataError> {
        let [train, val] = parts.each_ref().map(|part| part.encode(&vocabulary));
        Ok(Self::new(vocabulary, [train?, val?]))
    }

    /// Encoded texts.
    pub fn new(vocabulary: Vocabulary, texts: [Text; 2]) -> Self {
        let [train, val] = texts.map(Arc::new);
        Self { names: vocabulary.names(), vocabulary, train, val }
    }

    /// Passes their identifying properties to `tell`.
    pub fn identify(&self, tell: &mut dyn FnMut(String)) {
        tell(format!("{:016x}", self.vocabulary.fingerprint()));
        for text in [&self.train, &self.val] {
            let bytes: Vec<u8> = text.tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
            tell(format!("{:016x}", fnv1a64(&bytes)));
        }
    }

    /// Stores the vocabulary in the recipe, so that other texts are read with it.
    pub fn settle(&self, recipe: &mut Recipe) {
        let Source::TextFile(file) = &mut recipe.data.source else { return };
        match &self.vocabulary {
            Vocabulary::Characters(characters) => file.vocabulary = Some(characters.list()),
            Vocabulary::Subwords(subwords) => {
                file.tokenizer = Some(absolute(subwords.path()).unwrap_or_else(|_| subwords.path().to_owned()));
            }
        }
    }

    /// The contents of the text of a part with this name and number of samples.
    pub fn inspect(&self, name: &'static str, samples: usize, held_out: bool, done: &(dyn Fn() + Sync)) -> Inspection {
        let text = if held_out { &self.val } else { &self.train };
        let counts = text.counts(&self.vocabulary);
        (0..samples).for_each(|_| done());
        let distinct = counts.iter().filter(|count| **count > 0).count() as u64;
        let mut found = vec![("characters", text.characters as u64)];
        match &self.vocabulary {
            Vocabulary::Characters(_) => {}
            Vocabulary::Subwords(_) => found.push(("tokens", text.tokens.len() as u64)),
        }
        found.push(("distinct", distinct));
        Inspection {
            name,
            samples,
            facts: found.iter().map(|(name, value)| (*name, (*value).into())).collect(),
            columns: found.into_iter().map(|(name, value)| (name, Some((value, value)))).collect(),
            pixels: None,
            broken: Vec::new(),
        }
    }
}

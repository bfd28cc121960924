//! The vocabulary of a network: the numbers of the tokens of a text.

mod characters;
mod subwords;

pub use characters::CharacterSet;
pub use subwords::Subwords;
use subwords::invalid;

use crate::{DataError, hash::fnv1a64};

/// What a text consists of.
#[derive(Debug, Clone)]
pub enum Vocabulary {
    /// Each character is a token.
    Characters(CharacterSet),
    /// Tokens are parts of words.
    Subwords(Subwords),
}

/// Tokens that no text contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// Fills sequences up.
    Padding,
    /// Begins a sequence.
    Start,
    /// Ends a sentence.
    Separator,
    /// Stands for a hidden token.
    Mask,
}

impl Special {
    /// All of them, in the order in which they follow characters.
    pub const ALL: [Self; 4] = [Self::Padding, Self::Start, Self::Separator, Self::Mask];

    /// Its names in tokenizers: that of BERT, and that of RoBERTa.
    pub fn names(self) -> [&'static str; 2] {
        match self {
            Self::Padding => ["[PAD]", "<pad>"],
            Self::Start => ["[CLS]", "<s>"],
            Self::Separator => ["[SEP]", "</s>"],
            Self::Mask => ["[MASK]", "<mask>"],
        }
    }
}

/// Why a text has no tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unencodable {
    /// The character at a byte of the text is not in the vocabulary.
    Character {
        /// Place of the character in the text, in bytes.
        byte: usize,
        /// The character.
        character: char,
    },
    /// The message of the tokenizer.
    Tokenizer(String),
}

impl Vocabulary {
    /// Number of classes of a network that predicts its tokens: one more than the largest number of a token.
    pub fn len(&self) -> usize {
        match self {
            Self::Characters(characters) => characters.len(),
            Self::Subwords(subwords) => subwords.names().len(),
        }
    }

    /// True if there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of each token.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Characters(characters) => characters.names(),
            Self::Subwords(subwords) => subwords.names().to_vec(),
        }
    }

    /// A hash that differs if tokens or their numbers differ.
    pub fn fingerprint(&self) -> u64 {
        match self {
            Self::Characters(characters) => {
                // A list cannot contain a character twice, so no list ends like this one.
                let special = if characters.special(Special::Mask).is_some() { "\0\0" } else { "" };
                fnv1a64((characters.list() + special).as_bytes())
            }
            Self::Subwords(subwords) => subwords.fingerprint(),
        }
    }

    /// The number of a special token.
    ///
    /// # Errors
    /// A vocabulary without it.
    pub fn special(&self, token: Special) -> Result<u32, DataError> {
        let [one, other] = token.names();
        match self {
            Self::Characters(characters) => {
                characters.special(token).ok_or_else(|| DataError::Config(format!("the characters have no `{one}`")))
            }
            Self::Subwords(subwords) => subwords
                .special(token)
                .ok_or_else(|| invalid(subwords.path(), &format!("it has no token `{one}` or `{other}`"))),
        }
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// A text with something else in it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Unencodable> {
        match self {
            Self::Characters(characters) => {
                let token =
                    |(byte, character)| characters.number(character).ok_or(Unencodable::Character { byte, character });
                text.char_indices().map(token).collect()
            }
            Self::Subwords(subwords) => subwords.encode(text).map_err(Unencodable::Tokenizer),
        }
    }

    /// The characters of a text that become no token, and how often each occurs.
    pub(super) fn dropped(&self, text: &str) -> Vec<(char, usize)> {
        match self {
            Self::Characters(_) => Vec::new(),
            Self::Subwords(subwords) => subwords.dropped(text),
        }
    }

    /// The token of unknown words, if there is one.
    pub(super) fn unknown(&self) -> Option<u32> {
        match self {
            Self::Characters(_) => None,
            Self::Subwords(subwords) => subwords.unknown(),
        }
    }

    /// The text of tokens; special tokens of character sets have none.
    ///
    /// # Errors
    /// The message of the tokenizer.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, String> {
        match self {
            Self::Characters(characters) => Ok(tokens.iter().map(|token| characters.spelled(*token)).collect()),
            Self::Subwords(subwords) => subwords.decode(tokens),
        }
    }
}

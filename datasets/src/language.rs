//! Text for language modelling: vocabularies, files, windows, pairs of sentences, hidden tokens, a generated
//! text, and n-gram baselines.

mod corpus;
mod counting;
mod documents;
mod masking;
mod sentences;
mod text;
mod vocabulary;
mod windows;

pub use corpus::{Corpus, Excerpt};
pub use counting::{Between, pairs, singles};
pub use documents::{Documents, SentencePairs};
pub use masking::{Masked, MaskedSequence, Masking, Sequence};
pub use sentences::Sentences;
pub use text::Text;
pub use vocabulary::{CharacterSet, Special, Subwords, Unencodable, Vocabulary};
pub use windows::{ConsecutiveWindows, RandomWindows, Window};

//! Text for language modelling by characters: vocabulary, split, windows, a generated text, and n-gram baselines.

mod counting;
mod sentences;
mod text;
mod vocabulary;
mod windows;

pub use counting::{pairs, singles};
pub use sentences::Sentences;
pub use text::{Text, read_text};
pub use vocabulary::Vocabulary;
pub use windows::{ConsecutiveWindows, RandomWindows, Window};

//! Texts that occur often, each kept once.

use indexmap::IndexSet;

/// A text of a [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(u32);

/// The texts of a recording.
#[derive(Clone, Debug, Default)]
pub struct Names(IndexSet<Box<str>>);

impl Names {
    /// The name of a text. `None` after four billion different ones.
    pub fn add(&mut self, text: &str) -> Option<Name> {
        let place = match self.0.get_index_of(text) {
            Some(place) => place,
            None => self.0.insert_full(text.into()).0,
        };
        u32::try_from(place).ok().map(Name)
    }

    /// The text of a name of this set; empty for names of others.
    pub fn text(&self, name: Name) -> &str {
        self.0.get_index(name.0 as usize).map_or("", |text| text)
    }
}

//! Texts that occur often, each kept once.

use indexmap::IndexSet;
use std::num::NonZeroU32;

/// A text of a [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(NonZeroU32);

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
        u32::try_from(place + 1).ok().and_then(NonZeroU32::new).map(Name)
    }

    /// The text of a name of this set; empty for names of others.
    pub fn text(&self, name: Name) -> &str {
        self.0.get_index(name.0.get() as usize - 1).map_or("", |text| text)
    }
}

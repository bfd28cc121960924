//! Characters as a vocabulary.

use std::collections::HashMap;

use super::Special;
use crate::DataError;

/// Characters and their numbers, which are the classes of a network that predicts them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CharacterSet {
    characters: Vec<char>,
    numbers: HashMap<char, u32>,
    /// Whether the special tokens follow the characters.
    special: bool,
}

impl CharacterSet {
    /// The characters of a text, by code point.
    pub fn of(text: &str) -> Self {
        let mut characters: Vec<char> = text.chars().collect();
        characters.sort_unstable();
        characters.dedup();
        Self::numbered(characters)
    }

    /// These characters, in this order.
    ///
    /// # Errors
    /// If one of them occurs twice.
    pub fn listed(list: &str) -> Result<Self, DataError> {
        let vocabulary = Self::numbered(list.chars().collect());
        if vocabulary.numbers.len() < vocabulary.characters.len() {
            let twice =
                list.chars().enumerate().find(|(place, character)| list.chars().take(*place).any(|c| c == *character));
            let character = twice.map(|(_, character)| character).unwrap_or_default();
            return Err(DataError::Config(format!("the vocabulary has {character:?} twice")));
        }
        Ok(vocabulary)
    }

    /// The same with the special tokens, numbered after the characters.
    pub fn with_special(self) -> Self {
        Self { special: true, ..self }
    }

    fn numbered(characters: Vec<char>) -> Self {
        let numbers = characters.iter().copied().zip(0..).collect();
        Self { characters, numbers, special: false }
    }

    /// Number of tokens.
    pub(super) fn len(&self) -> usize {
        self.characters.len() + if self.special { Special::ALL.len() } else { 0 }
    }

    /// The number of a character, if it is known.
    pub fn number(&self, character: char) -> Option<u32> {
        self.numbers.get(&character).copied()
    }

    /// The number of a special token, if the vocabulary has such tokens.
    pub fn special(&self, token: Special) -> Option<u32> {
        let place = Special::ALL.iter().position(|other| *other == token)?;
        self.special.then_some((self.characters.len() + place) as u32)
    }

    /// The characters in order, as [`CharacterSet::listed`] takes them.
    pub fn list(&self) -> String {
        self.characters.iter().collect()
    }

    /// How a token is spelled.
    pub(super) fn spelled(&self, token: u32) -> String {
        self.characters.get(token as usize).map(char::to_string).unwrap_or_default()
    }

    /// The name of each token: the character itself, or its escape if it is not printable.
    pub fn names(&self) -> Vec<String> {
        let name = |character: &char| match character {
            ' ' => "space".to_owned(),
            other if other.is_control() || other.is_whitespace() => other.escape_default().to_string(),
            other => other.to_string(),
        };
        let special = Special::ALL.iter().filter(|_| self.special).map(|special| special.names()[0].to_owned());
        self.characters.iter().map(name).chain(special).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn characters_are_numbered_by_code_point() {
        let vocabulary = CharacterSet::of("to be,\nor é");
        assert_eq!(vocabulary.list(), "\n ,beorté");
        assert_eq!(vocabulary.names()[..3], ["\\n", "space", ","]);
        assert_eq!((vocabulary.number('\n'), vocabulary.number('é'), vocabulary.number('z')), (Some(0), Some(8), None));
    }

    #[test]
    fn special_tokens_follow_the_characters() {
        let plain = CharacterSet::of("ab");
        assert_eq!(plain.special(Special::Mask), None);
        let plain_len = plain.len();
        let special = plain.with_special();
        assert_eq!((plain_len, special.len()), (2, 6));
        assert_eq!(special.names(), ["a", "b", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]);
        assert_eq!(Special::ALL.map(|token| special.special(token)), [Some(2), Some(3), Some(4), Some(5)]);
        assert_eq!((special.spelled(1), special.spelled(5)), ("b".to_owned(), String::new()));
    }

    #[test]
    fn a_list_keeps_its_order_and_has_nothing_twice() {
        assert_eq!(CharacterSet::listed("ba c").unwrap().number('c'), Some(3));
        let error = CharacterSet::listed("abca").unwrap_err().to_string();
        assert!(error.contains("'a' twice"), "{error}");
    }

    proptest! {
        #[test]
        fn every_character_of_the_text_has_its_place(text in ".{0,200}") {
            let vocabulary = CharacterSet::of(&text);
            let list: Vec<char> = vocabulary.list().chars().collect();
            prop_assert!(list.is_sorted_by(|a, b| a < b));
            for character in text.chars() {
                prop_assert_eq!(list[vocabulary.number(character).unwrap() as usize], character);
            }
            prop_assert_eq!(CharacterSet::listed(&vocabulary.list()).unwrap(), vocabulary);
        }
    }
}

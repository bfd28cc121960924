//! The vocabulary of a network.

use std::collections::HashMap;

use crate::DataError;

/// Characters and their numbers, which are the classes of a network that predicts them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vocabulary {
    characters: Vec<char>,
    numbers: HashMap<char, u32>,
}

impl Vocabulary {
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
        if vocabulary.numbers.len() < vocabulary.len() {
            let twice =
                list.chars().enumerate().find(|(place, character)| list.chars().take(*place).any(|c| c == *character));
            let character = twice.map(|(_, character)| character).unwrap_or_default();
            return Err(DataError::Config(format!("the vocabulary has {character:?} twice")));
        }
        Ok(vocabulary)
    }

    fn numbered(characters: Vec<char>) -> Self {
        let numbers = characters.iter().copied().zip(0..).collect();
        Self { characters, numbers }
    }

    /// How many characters there are.
    pub fn len(&self) -> usize {
        self.characters.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.characters.is_empty()
    }

    /// The number of a character, if it is known.
    pub fn number(&self, character: char) -> Option<u32> {
        self.numbers.get(&character).copied()
    }

    /// The characters in order, as [`Vocabulary::listed`] takes them.
    pub fn list(&self) -> String {
        self.characters.iter().collect()
    }

    /// The name of each character: itself, or its escape if it is not printable.
    pub fn names(&self) -> Vec<String> {
        let name = |character: &char| match character {
            ' ' => "space".to_owned(),
            other if other.is_control() || other.is_whitespace() => other.escape_default().to_string(),
            other => other.to_string(),
        };
        self.characters.iter().map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn characters_are_numbered_by_code_point() {
        let vocabulary = Vocabulary::of("to be,\nor é");
        assert_eq!(vocabulary.list(), "\n ,beorté");
        assert_eq!(vocabulary.names()[..3], ["\\n", "space", ","]);
        assert_eq!((vocabulary.number('\n'), vocabulary.number('é'), vocabulary.number('z')), (Some(0), Some(8), None));
    }

    #[test]
    fn a_list_keeps_its_order_and_has_nothing_twice() {
        assert_eq!(Vocabulary::listed("ba c").unwrap().number('c'), Some(3));
        let error = Vocabulary::listed("abca").unwrap_err().to_string();
        assert!(error.contains("'a' twice"), "{error}");
    }

    proptest! {
        #[test]
        fn every_character_of_the_text_has_its_place(text in ".{0,200}") {
            let vocabulary = Vocabulary::of(&text);
            let list: Vec<char> = vocabulary.list().chars().collect();
            prop_assert!(list.is_sorted_by(|a, b| a < b));
            for character in text.chars() {
                prop_assert_eq!(list[vocabulary.number(character).unwrap() as usize], character);
            }
            prop_assert_eq!(Vocabulary::listed(&vocabulary.list()).unwrap(), vocabulary);
        }
    }
}

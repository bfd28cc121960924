//! A generated text: who did what, a question about it, and the answer.
//!
//! ```text
//! the old fox sold seven red kites. who sold them? the old fox.
//! the tall crow hid two grey boats. what was it? two grey boats.
//! ```
//!
//! Character statistics only give the spelling of words: every word of a statement is drawn at random, and an answer
//! depends on text dozens of characters before it.

use super::Vocabulary;
use crate::Rng;

const MANNERS: [&str; 8] = ["brave", "happy", "lazy", "old", "quiet", "small", "tall", "young"];
const ANIMALS: [&str; 8] = ["bear", "cat", "crow", "fox", "hare", "mouse", "owl", "wolf"];
const DEEDS: [&str; 8] = ["bought", "found", "hid", "lost", "made", "saw", "sold", "took"];
const NUMBERS: [&str; 8] = ["two", "three", "four", "five", "six", "seven", "eight", "nine"];
const COLOURS: [&str; 8] = ["black", "blue", "brown", "green", "grey", "pink", "red", "white"];
const THINGS: [&str; 8] = ["apples", "boats", "cups", "drums", "kites", "lamps", "rings", "stones"];

/// Sentences in a row: each is a pure function of the seed and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sentences {
    /// Seed of the whole text.
    pub seed: u64,
    /// Number of the first sentence.
    pub first: u64,
    /// How many there are.
    pub count: usize,
}

impl Sentences {
    /// Where held-out sentences start, far beyond those that train.
    pub const HELD_OUT: u64 = 1_000_000;

    /// The characters of all such sentences.
    pub fn vocabulary() -> Vocabulary {
        let words = [MANNERS, ANIMALS, DEEDS, NUMBERS, COLOURS, THINGS].concat();
        Vocabulary::of(&format!("the who them what was it?. \n{}", words.concat()))
    }

    /// The sentences, a line each.
    pub fn text(&self) -> String {
        (0..self.count as u64).map(|index| sentence(Rng::new(self.seed, 0, self.first + index))).collect()
    }
}

fn sentence(mut rng: Rng) -> String {
    let mut one_of = |words: [&'static str; 8]| words[rng.below(words.len())];
    let who = format!("the {} {}", one_of(MANNERS), one_of(ANIMALS));
    let did = one_of(DEEDS);
    let what = format!("{} {} {}", one_of(NUMBERS), one_of(COLOURS), one_of(THINGS));
    let question = if rng.chance(0.5) { format!("who {did} them? {who}.") } else { format!("what was it? {what}.") };
    format!("{who} {did} {what}. {question}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::{Text, pairs};

    fn part(first: u64, count: usize) -> String {
        Sentences { seed: 7, first, count }.text()
    }

    #[test]
    fn answers_repeat_their_statement() {
        let text = part(0, 500);
        for line in text.lines() {
            let (statement, rest) = line.split_once(". ").unwrap();
            let (question, answer) = rest.split_once("? ").unwrap();
            let answer = answer.strip_suffix('.').unwrap();
            let told =
                if question.starts_with("who") { statement.starts_with(answer) } else { statement.ends_with(answer) };
            assert!(told, "{line}");
        }
        let asked = text.lines().filter(|line| line.contains(". who ")).count();
        assert!((180..320).contains(&asked), "{asked} of 500 ask who");
    }

    #[test]
    fn a_sentence_follows_from_seed_and_number() {
        assert_eq!(part(3, 5), part(0, 8).lines().skip(3).map(|line| format!("{line}\n")).collect::<String>());
        assert_ne!(part(0, 5), Sentences { seed: 8, first: 0, count: 5 }.text());
    }

    #[test]
    fn the_vocabulary_is_that_of_a_long_text() {
        assert_eq!(Vocabulary::of(&part(0, 2000)), Sentences::vocabulary());
        assert_eq!(Sentences::vocabulary().len(), 29);
    }

    #[test]
    fn pairs_of_characters_tell_little() {
        let vocabulary = Sentences::vocabulary();
        let text = |first, count| Text::new("", &part(first, count), &vocabulary).unwrap();
        let nats = pairs(&text(0, 4000), &text(Sentences::HELD_OUT, 200), vocabulary.len());
        assert!(nats > 1.6, "{nats}");
    }
}

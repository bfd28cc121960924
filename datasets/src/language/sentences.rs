//! A generated text: who did what, a question about it, and the answer.
//!
//! ```text
//! the old fox sold seven red kites. who sold them? the old fox.
//! the tall crow hid two grey boats. what was it? two grey boats.
//! ```
//!
//! Character statistics only give the spelling of words: every word of a statement is drawn at random, and an answer
//! depends on text dozens of characters before it.

use super::CharacterSet;
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
    pub fn vocabulary() -> CharacterSet {
        let words = [MANNERS, ANIMALS, DEEDS, NUMBERS, COLOURS, THINGS].concat();
        CharacterSet::of(&format!("the who them what was it?. \n{}", words.concat()))
    }

    /// The sentences, a line each.
    pub fn text(&self) -> String {
        self.each().map(|[statement, answer]| format!("{statement} {answer}\n")).collect()
    }

    /// The same as documents of two lines: the statement, and the question with its answer.
    pub fn documents(&self) -> String {
        self.each().map(|[statement, answer]| format!("{statement}\n{answer}\n\n")).collect()
    }

    fn each(&self) -> impl Iterator<Item = [String; 2]> {
        let Self { seed, first, count } = *self;
        (0..count as u64).map(move |index| sentence(Rng::new(seed, 0, first + index)))
    }
}

fn sentence(mut rng: Rng) -> [String; 2] {
    let mut one_of = |words: [&'static str; 8]| words[rng.below(words.len())];
    let who = format!("the {} {}", one_of(MANNERS), one_of(ANIMALS));
    let did = one_of(DEEDS);
    let what = format!("{} {} {}", one_of(NUMBERS), one_of(COLOURS), one_of(THINGS));
    let question = if rng.chance(0.5) { format!("who {did} them? {who}.") } else { format!("what was it? {what}.") };
    [format!("{who} {did} {what}."), question]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::{Corpus, Vocabulary, pairs};

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
    fn documents_are_the_same_sentences_in_two_lines() {
        let documents = Sentences { seed: 7, first: 0, count: 50 }.documents();
        let joined: String = documents.split("\n\n").map(|document| document.replace('\n', " ") + "\n").collect();
        assert_eq!(joined.trim_end(), part(0, 50).trim_end());
        let longest = documents.split("\n\n").map(|document| document.replace('\n', "").len()).max();
        assert!(longest <= Some(80 - 3), "{longest:?} characters do not fit into a sequence of 80 tokens");
    }

    #[test]
    fn a_sentence_follows_from_seed_and_number() {
        assert_eq!(part(3, 5), part(0, 8).lines().skip(3).map(|line| format!("{line}\n")).collect::<String>());
        assert_ne!(part(0, 5), Sentences { seed: 8, first: 0, count: 5 }.text());
    }

    #[test]
    fn the_vocabulary_is_that_of_a_long_text() {
        assert_eq!(CharacterSet::of(&part(0, 2000)), Sentences::vocabulary());
        assert_eq!(Sentences::vocabulary().names().len(), 29);
    }

    #[test]
    fn pairs_of_characters_tell_little() {
        let vocabulary = Vocabulary::Characters(Sentences::vocabulary());
        let text = |first, count| Corpus::written("", part(first, count)).whole().encode(&vocabulary).unwrap();
        let nats = pairs(&text(0, 4000), &text(Sentences::HELD_OUT, 200), vocabulary.len());
        assert!(nats > 1.6, "{nats}");
    }
}

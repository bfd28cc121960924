//! Baselines for language models: unigram and bigram models of tokens.
//!
//! Counts start at one for every token (Laplace's rule of succession), so that nothing is impossible.

use std::collections::HashMap;

use super::Text;

/// Mean cross entropy of the held-out text, in nats, with the frequency of each token as its prediction.
pub fn singles(train: &Text, held_out: &Text, vocabulary: usize) -> f64 {
    by_counts(train, held_out, vocabulary, |_| 0)
}

/// The same, where a token is predicted by how often it follows the one before it.
pub fn pairs(train: &Text, held_out: &Text, vocabulary: usize) -> f64 {
    by_counts(train, held_out, vocabulary, |before| before)
}

/// Of each token but the first. `context` makes a number of the token before it.
fn by_counts(train: &Text, held_out: &Text, vocabulary: usize, context: impl Fn(u32) -> u32) -> f64 {
    let (mut counts, mut totals) = (HashMap::<(u32, u32), u64>::new(), HashMap::<u32, u64>::new());
    for pair in train.tokens.windows(2) {
        let before = context(pair[0]);
        *counts.entry((before, pair[1])).or_default() += 1;
        *totals.entry(before).or_default() += 1;
    }
    let nats = |pair: &[u32]| {
        let before = context(pair[0]);
        let all = totals.get(&before).copied().unwrap_or_default() + vocabulary as u64;
        let own = counts.get(&(before, pair[1])).copied().unwrap_or_default() + 1;
        libm::log(all as f64 / own as f64)
    };
    let pairs = held_out.tokens.windows(2);
    let predicted = pairs.len() as f64;
    pairs.map(nats).sum::<f64>() / predicted
}

/// Which token is most frequent between two others: what counting can tell of a hidden token.
#[derive(Debug, Clone, Default)]
pub struct Between {
    /// The most frequent token of all.
    common: u32,
    most: HashMap<[u32; 2], u32>,
}

impl Between {
    /// Counts the tokens of a text.
    pub fn new(text: &Text) -> Self {
        let (mut counts, mut singles) = (HashMap::<[u32; 3], u64>::new(), HashMap::<u32, u64>::new());
        text.tokens.iter().for_each(|token| *singles.entry(*token).or_default() += 1);
        text.tokens.windows(3).for_each(|three| *counts.entry([three[0], three[1], three[2]]).or_default() += 1);
        let mut best = HashMap::<[u32; 2], (u64, u32)>::new();
        for ([before, token, after], count) in counts {
            let best = best.entry([before, after]).or_default();
            // Of equally frequent tokens the one with the smallest number.
            if count > best.0 || (count == best.0 && token < best.1) {
                *best = (count, token);
            }
        }
        let common = singles.into_iter().max_by_key(|(token, count)| (*count, u32::MAX - token));
        let most = best.into_iter().map(|(around, (_, token))| (around, token)).collect();
        Self { common: common.map_or(0, |(token, _)| token), most }
    }

    /// The most frequent token of all.
    pub fn common(&self) -> u32 {
        self.common
    }

    /// The most frequent token between the neighbours of a place; the most frequent of all if they never occur so.
    pub fn guess(&self, tokens: &[u32], place: usize) -> u32 {
        let neighbour = |place: Option<usize>| place.and_then(|place| tokens.get(place).copied());
        let around = neighbour(place.checked_sub(1)).zip(neighbour(Some(place + 1)));
        around.and_then(|(before, after)| self.most.get(&[before, after]).copied()).unwrap_or(self.common)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(tokens: &[u32]) -> Text {
        Text { name: String::new(), tokens: tokens.to_vec(), characters: tokens.len() }
    }

    #[test]
    fn by_hand() {
        let (train, held_out) = (text(&[0, 1, 0, 1, 0]), text(&[0, 1, 1]));
        // After the first: 1, 0, 1, 0, and one more of each of three tokens: 3, 3, 1 of 7.
        assert!((singles(&train, &held_out, 3) - (7.0f64 / 3.0).ln()).abs() < 1e-15);
        // After 0: 1, 3, 1 of 5; after 1: 3, 1, 1 of 5.
        let expected = ((5.0f64 / 3.0).ln() + 5.0f64.ln()) / 2.0;
        assert!((pairs(&train, &held_out, 3) - expected).abs() < 1e-15);
    }

    #[test]
    fn a_token_is_guessed_from_its_neighbours() {
        let between = Between::new(&text(&[0, 1, 2, 0, 1, 2, 0, 3, 2, 2, 2]));
        assert_eq!(between.common(), 2);
        assert_eq!(between.guess(&[0, 9, 2], 1), 1);
        assert_eq!((between.guess(&[9, 2], 0), between.guess(&[0, 9], 1), between.guess(&[1, 9, 1], 1)), (2, 2, 2));
        assert_eq!(Between::new(&text(&[])).guess(&[1], 0), 0);
    }
}

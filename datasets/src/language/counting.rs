//! Baselines for language models: unigram and bigram models of characters.
//!
//! Counts start at one for every character (Laplace's rule of succession), so that nothing is impossible.

use super::Text;

/// Mean cross entropy of the held-out text, in nats, with the frequency of each character as its prediction.
pub fn singles(train: &Text, held_out: &Text, vocabulary: usize) -> f64 {
    by_counts(train, held_out, vocabulary, |_| 0, 1)
}

/// The same, where a character is predicted by how often it follows the one before it.
pub fn pairs(train: &Text, held_out: &Text, vocabulary: usize) -> f64 {
    by_counts(train, held_out, vocabulary, |before| before as usize, vocabulary)
}

/// Of each character but the first. `context` makes one of `contexts` numbers of the character before it.
fn by_counts(train: &Text, held_out: &Text, vocabulary: usize, context: impl Fn(u32) -> usize, contexts: usize) -> f64 {
    let mut counts = vec![1u64; contexts * vocabulary];
    for pair in train.tokens.windows(2) {
        counts[context(pair[0]) * vocabulary + pair[1] as usize] += 1;
    }
    let row = |context: usize| &counts[context * vocabulary..][..vocabulary];
    let totals: Vec<f64> = (0..contexts).map(|context| row(context).iter().sum::<u64>() as f64).collect();
    let nats = |pair: &[u32]| {
        let context = context(pair[0]);
        libm::log(totals[context] / row(context)[pair[1] as usize] as f64)
    };
    let pairs = held_out.tokens.windows(2);
    let predicted = pairs.len() as f64;
    pairs.map(nats).sum::<f64>() / predicted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(tokens: &[u32]) -> Text {
        Text { name: String::new(), tokens: tokens.to_vec() }
    }

    #[test]
    fn by_hand() {
        let (train, held_out) = (text(&[0, 1, 0, 1, 0]), text(&[0, 1, 1]));
        // After the first: 1, 0, 1, 0, and one more of each of three characters: 3, 3, 1 of 7.
        assert!((singles(&train, &held_out, 3) - (7.0f64 / 3.0).ln()).abs() < 1e-15);
        // After 0: 1, 3, 1 of 5; after 1: 3, 1, 1 of 5.
        let expected = ((5.0f64 / 3.0).ln() + 5.0f64.ln()) / 2.0;
        assert!((pairs(&train, &held_out, 3) - expected).abs() < 1e-15);
    }
}

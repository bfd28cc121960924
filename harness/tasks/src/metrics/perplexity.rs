//! Perplexity of a text.

use zoo_recipe::schema::{Metric, Score};

/// The exponential of the mean cross entropy of a token in nats (Jelinek, Mercer, Bahl and Baker, "Perplexity - a
/// measure of the difficulty of speech recognition tasks", 1977).
pub fn perplexity(cross_entropy: f64) -> Score {
    Score { metric: Metric::Perplexity, value: libm::exp(cross_entropy), of: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_chooses_blindly_among_four_is_undecided_among_four() {
        let score = perplexity(4f64.ln());
        assert!((score.value - 4.0).abs() < 1e-14 && score.metric == Metric::Perplexity);
        assert_eq!(perplexity(0.0).value, 1.0);
    }
}

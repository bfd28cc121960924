//! Bits per character of a text.

use std::f64::consts::LN_2;

use zoo_recipe::schema::{Metric, Score};

/// Converts the mean cross entropy per token from nats to bits per character (Graves, arXiv 1308.0850, section 3).
pub fn bits_per_character(cross_entropy: f64, characters_per_token: f64) -> Score {
    Score { metric: Metric::BitsPerCharacter, value: cross_entropy / characters_per_token / LN_2, of: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blind_choice_among_four_takes_two_bits() {
        let score = bits_per_character(4f64.ln(), 1.0);
        assert!((score.value - 2.0).abs() < 1e-15 && score.metric == Metric::BitsPerCharacter);
        assert!((bits_per_character(4f64.ln(), 4.0).value - 0.5).abs() < 1e-15);
    }
}

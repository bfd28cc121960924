//! Precision, recall and their harmonic mean for text detection.

use zoo_datasets::text::{self, Counts};
use zoo_recipe::schema::{Metric, Score};

/// The scores of the texts of all images together, by ICDAR 2015's protocol
/// ([`compare`](zoo_datasets::text::compare)): the share of the detected texts that are correct, the share of the texts
/// that are detected, and the harmonic mean of both.
pub(crate) fn text_scores(counts: Counts) -> Vec<Score> {
    let text::Score { recall, precision, hmean } = counts.score();
    let scores = [(Metric::Hmean, hmean), (Metric::Precision, precision), (Metric::Recall, recall)];
    scores.map(|(metric, value)| Score { metric, value, of: None }).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Images are weighted by their texts: 1 of 2 found with 1 guess, 3 of 3 with 5 guesses. An image without texts
    /// and guesses has no influence.
    #[test]
    fn by_hand() {
        let images = [(1, 2, 1), (3, 3, 5), (0, 0, 0)];
        let mut counts = Counts::default();
        for (matched, texts, detections) in images {
            counts += Counts { matched, texts, detections };
        }
        let values = |counts| text_scores(counts).into_iter().map(|score| score.value).collect::<Vec<f64>>();
        let (precision, recall) = (4.0 / 6.0, 4.0 / 5.0);
        assert_eq!(values(counts)[1..], [precision, recall]);
        assert!((values(counts)[0] - 2.0 * precision * recall / (precision + recall)).abs() < 1e-15);
        assert_eq!(values(Counts::default()), [0.0; 3]);
    }
}

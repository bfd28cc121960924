//! Precision, recall and their harmonic mean for text detection.

use super::Meter;
use zoo_datasets::text::Counts;

/// Harmonic mean of precision and recall over all images together, by ICDAR 2015's protocol
/// ([`compare`](zoo_datasets::text::compare)).
#[derive(Clone, Copy, Debug, Default)]
pub struct Hmean(Counts);

/// Share of the detected texts that are correct.
#[derive(Clone, Copy, Debug, Default)]
pub struct Precision(Counts);

/// Share of the texts that are detected.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recall(Counts);

impl Meter<Counts> for Hmean {
    fn add(&mut self, counts: &Counts) {
        self.0 += *counts;
    }

    fn value(&self) -> f64 {
        self.0.score().hmean
    }
}

impl Meter<Counts> for Precision {
    fn add(&mut self, counts: &Counts) {
        self.0 += *counts;
    }

    fn value(&self) -> f64 {
        self.0.score().precision
    }
}

impl Meter<Counts> for Recall {
    fn add(&mut self, counts: &Counts) {
        self.0 += *counts;
    }

    fn value(&self) -> f64 {
        self.0.score().recall
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Images are weighted by their texts: 1 of 2 found with 1 guess, 3 of 3 with 5 guesses. An image without texts
    /// and guesses has no influence.
    #[test]
    fn by_hand() {
        let images = [(1, 2, 1), (3, 3, 5), (0, 0, 0)];
        let counts = images.map(|(matched, texts, detections)| Counts { matched, texts, detections });
        let of = |meter: &mut dyn Meter<Counts>| {
            counts.iter().for_each(|counts| meter.add(counts));
            meter.value()
        };
        let (precision, recall) = (4.0 / 6.0, 4.0 / 5.0);
        assert_eq!((of(&mut Precision::default()), of(&mut Recall::default())), (precision, recall));
        assert!((of(&mut Hmean::default()) - 2.0 * precision * recall / (precision + recall)).abs() < 1e-15);
        assert_eq!(Hmean::default().value(), 0.0);
    }
}

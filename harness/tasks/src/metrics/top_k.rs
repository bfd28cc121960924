//! Top-k accuracy.

use super::{Classified, Meter};

/// Share of samples whose true class is among the k largest logits (Russakovsky et al., arXiv 1409.0575, section 4.1,
/// as accuracy).
///
/// Of equal logits the class with the lower index comes first, as with `argmax` of NumPy and PyTorch. A network with
/// constant outputs therefore scores the share of the first k classes. A sample with a NaN among its logits counts as
/// wrong.
#[derive(Clone, Debug)]
pub struct TopK {
    k: usize,
    right: u64,
    seen: u64,
}

impl TopK {
    /// A meter without samples.
    pub fn new(k: usize) -> Self {
        Self { k, right: 0, seen: 0 }
    }
}

impl Meter<Classified<'_>> for TopK {
    fn add(&mut self, &Classified { logits, label }: &Classified<'_>) {
        self.seen += 1;
        let label = label as usize;
        let Some(&own) = logits.get(label) else { return };
        if logits.iter().any(|logit| logit.is_nan()) {
            return;
        }
        let comes_before = |(class, &logit): (usize, &f64)| logit > own || (logit == own && class < label);
        let rank = logits.iter().enumerate().filter(|&entry| comes_before(entry)).count();
        self.right += u64::from(rank < self.k);
    }

    fn value(&self) -> f64 {
        self.right as f64 / self.seen as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top(k: usize, samples: &[(&[f64], u32)]) -> f64 {
        let mut meter = TopK::new(k);
        for (logits, label) in samples {
            meter.add(&Classified { logits, label: *label });
        }
        meter.value()
    }

    #[test]
    fn by_hand() {
        let samples: &[(&[f64], u32)] =
            &[(&[0.1, 0.9, 0.5], 1), (&[0.1, 0.9, 0.5], 2), (&[0.1, 0.9, 0.5], 0), (&[-3.0, -2.0, -1.0], 2)];
        assert_eq!(top(1, samples), 0.5);
        assert_eq!(top(2, samples), 0.75);
        assert_eq!(top(5, samples), 1.0);
    }

    #[test]
    fn ties_go_to_the_lower_class() {
        let constant: &[f64] = &[0.0; 10];
        let samples: Vec<(&[f64], u32)> = (0..10).map(|label| (constant, label)).collect();
        assert_eq!(top(1, &samples), 0.1);
        assert_eq!(top(5, &samples), 0.5);
        // Positive and negative zero are equal.
        assert_eq!(top(1, &[(&[-0.0, 0.0], 0)]), 1.0);
    }

    #[test]
    fn nan_and_unknown_classes_are_wrong() {
        assert_eq!(top(1, &[(&[f64::NAN, 1.0], 1)]), 0.0);
        assert_eq!(top(5, &[(&[1.0, f64::NAN], 0)]), 0.0);
        assert_eq!(top(5, &[(&[1.0, 2.0], 7)]), 0.0);
        assert_eq!(top(1, &[(&[f64::NEG_INFINITY, f64::INFINITY], 1)]), 1.0);
        assert!(TopK::new(1).value().is_nan());
    }
}

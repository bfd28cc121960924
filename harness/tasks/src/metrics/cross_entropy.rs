//! Cross entropy of held-out samples.

use super::{Classified, Mean, Meter};

/// Mean of `log(sum(exp(logits))) - logits[label]`, in nats, without label smoothing.
///
/// It shows changes that an accuracy hides.
#[derive(Clone, Debug, Default)]
pub struct CrossEntropy(Mean);

impl Meter<Classified<'_>> for CrossEntropy {
    fn add(&mut self, &Classified { logits, label }: &Classified<'_>) {
        let own = logits.get(label as usize).copied().unwrap_or(f64::NAN);
        let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|logit| libm::exp(logit - largest)).sum();
        self.0.add(libm::log(sum) + (largest - own));
    }

    fn value(&self) -> f64 {
        self.0.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let mut meter = CrossEntropy::default();
        // softmax (1/4, 3/4)
        meter.add(&Classified { logits: &[0.0, 3f64.ln()], label: 1 });
        assert!((meter.value() - (4.0 / 3.0f64).ln()).abs() < 1e-15);
        meter.add(&Classified { logits: &[0.0, 3f64.ln()], label: 0 });
        assert!((meter.value() - ((4.0 / 3.0f64).ln() + 4f64.ln()) / 2.0).abs() < 1e-15);
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let mut meter = CrossEntropy::default();
        meter.add(&Classified { logits: &[1e4, 0.0], label: 1 });
        assert_eq!(meter.value(), 1e4);
        meter.add(&Classified { logits: &[0.0, 0.0], label: 9 });
        assert!(meter.value().is_nan());
    }
}

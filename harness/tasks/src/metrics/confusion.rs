//! Confusion matrix.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

use super::Classified;

/// The confusion matrix: how often each class was predicted as which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confusion {
    /// Names of the classes.
    pub classes: Vec<String>,
    /// Number of samples by true class and predicted class; combinations that do not occur are absent.
    pub counts: BTreeMap<usize, BTreeMap<usize, u64>>,
    /// Number of samples by true class for which nothing was predicted, because a logit is NaN.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unpredicted: BTreeMap<usize, u64>,
}

/// Samples of one class that were predicted as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mistaken {
    /// The true class.
    pub class: usize,
    /// The predicted class.
    pub found: usize,
    /// Number of samples.
    pub count: u64,
}

impl Confusion {
    /// An empty matrix.
    pub fn new(classes: &[String]) -> Self {
        Self { classes: classes.to_vec(), counts: BTreeMap::new(), unpredicted: BTreeMap::new() }
    }

    /// Adds a sample. Returns the predicted class: that of the largest logit, the first of equal ones; `None` if a
    /// logit is NaN.
    pub fn add(&mut self, &Classified { logits, label }: &Classified<'_>) -> Option<usize> {
        let found = largest(logits);
        match found {
            Some(found) => self.count_in(label as usize, found, 1),
            None => *self.unpredicted.entry(label as usize).or_default() += 1,
        }
        found
    }

    /// Adds all samples of another matrix.
    pub fn add_all(&mut self, other: &Self) {
        for (class, row) in &other.counts {
            row.iter().for_each(|(found, count)| self.count_in(*class, *found, *count));
        }
        for (class, count) in &other.unpredicted {
            *self.unpredicted.entry(*class).or_default() += count;
        }
    }

    /// Adds `count` samples with the same true and predicted class.
    pub fn count_in(&mut self, class: usize, found: usize, count: u64) {
        *self.counts.entry(class).or_default().entry(found).or_default() += count;
    }

    /// Number of samples of `class` that were predicted as `found`.
    pub fn count(&self, class: usize, found: usize) -> u64 {
        self.counts.get(&class).and_then(|row| row.get(&found)).copied().unwrap_or_default()
    }

    /// Number of samples of a class, including those without prediction.
    pub fn samples(&self, class: usize) -> u64 {
        let predicted: u64 = self.counts.get(&class).map_or(0, |row| row.values().sum());
        predicted + self.unpredicted.get(&class).copied().unwrap_or_default()
    }

    /// The classes that occur.
    pub fn true_classes(&self) -> BTreeSet<usize> {
        self.counts.keys().chain(self.unpredicted.keys()).copied().collect()
    }

    /// The name of a class.
    pub fn name(&self, class: usize) -> String {
        self.classes.get(class).cloned().unwrap_or_else(|| class.to_string())
    }

    /// The mistakes, the most frequent first.
    pub fn mistakes(&self) -> Vec<Mistaken> {
        let rows = self.counts.iter();
        let all =
            rows.flat_map(|(&class, row)| row.iter().map(move |(&found, &count)| Mistaken { class, found, count }));
        let mut mistakes: Vec<Mistaken> = all.filter(|mistaken| mistaken.class != mistaken.found).collect();
        mistakes.sort_by_key(|m| (std::cmp::Reverse(m.count), m.class, m.found));
        mistakes
    }
}

/// Index of the largest logit, the first of equal ones; `None` if one is NaN.
pub(crate) fn largest(logits: &[f64]) -> Option<usize> {
    if logits.iter().any(|logit| logit.is_nan()) {
        return None;
    }
    (0..logits.len()).reduce(|best, i| if logits[i] > logits[best] { i } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let classes = ["a", "b", "c"].map(str::to_owned);
        let mut confusion = Confusion::new(&classes);
        let mut add = |logits: &[f64], label| confusion.add(&Classified { logits, label });
        assert_eq!(add(&[0.0, 2.0, 1.0], 0), Some(1));
        assert_eq!(add(&[0.0, 2.0, 2.0], 0), Some(1));
        assert_eq!(add(&[3.0, 2.0, 2.0], 0), Some(0));
        assert_eq!(add(&[0.0, 2.0, 3.0], 1), Some(2));
        assert_eq!(add(&[0.0, f64::NAN, 3.0], 1), None);
        assert_eq!((confusion.count(0, 0), confusion.count(0, 1), confusion.count(2, 2)), (1, 2, 0));
        assert_eq!([0, 1, 2].map(|class| confusion.samples(class)), [3, 2, 0]);
        assert_eq!(confusion.true_classes(), [0, 1].into());
        let mistakes = confusion.mistakes();
        assert_eq!(mistakes[0], Mistaken { class: 0, found: 1, count: 2 });
        assert_eq!(mistakes.len(), 2);
    }

    #[test]
    fn matrices_are_added() {
        let mut sum = Confusion::new(&[]);
        for logits in [[1.0, 0.0], [f64::NAN, 0.0], [0.0, 1.0]] {
            let mut one = Confusion::new(&[]);
            one.add(&Classified { logits: &logits, label: 1 });
            sum.add_all(&one);
        }
        assert_eq!((sum.count(1, 0), sum.count(1, 1), sum.samples(1)), (1, 1, 3));
    }
}

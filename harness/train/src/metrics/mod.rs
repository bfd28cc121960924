//! What an evaluation measures, one metric per file.

mod cross_entropy;
mod top_k;

pub use cross_entropy::CrossEntropy;
pub use top_k::TopK;

use serde::{Deserialize, Serialize};
use zoo_recipe::schema::Metric;

/// Collects one figure over the samples of an evaluation.
pub trait Meter {
    /// Takes in one sample: the network's output for each class, before softmax, and the true class.
    fn add(&mut self, logits: &[f64], label: u32);

    /// The figure over all samples so far; NaN before the first.
    fn value(&self) -> f64;
}

/// A metric and its value, a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// What was measured.
    pub metric: Metric,
    /// In `0..=1`.
    pub value: f64,
}

/// All metrics of a classifier, in the order in which they are shown.
pub const CLASSIFICATION: [Metric; 2] = [Metric::Top1, Metric::Top5];

/// The meter of a metric.
pub fn meter(metric: Metric) -> Box<dyn Meter> {
    match metric {
        Metric::Top1 => Box::new(TopK::new(1)),
        Metric::Top5 => Box::new(TopK::new(5)),
    }
}

/// A metric as recipes write it.
pub fn name(metric: Metric) -> &'static str {
    match metric {
        Metric::Top1 => "top1",
        Metric::Top5 => "top5",
    }
}

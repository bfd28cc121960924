//! The computation of metrics, one file each. Their other properties are in the list of [`Metric`].

mod average_precision;
mod bits_per_character;
mod confusion;
mod cross_entropy;
mod mask_iou;
mod mean_iou;
mod overlap;
mod perplexity;
mod pixel_accuracy;
mod text;
mod top_k;
mod tracked;

pub use average_precision::{AveragePrecision, ImageBoxes, ScoredBox};
pub use bits_per_character::bits_per_character;
pub(crate) use confusion::largest;
pub use confusion::{Confusion, Mistaken};
pub use cross_entropy::CrossEntropy;
pub use mask_iou::{MaskIou, Masks};
pub use mean_iou::mean_iou;
pub use overlap::Overlap;
pub use perplexity::perplexity;
pub use pixel_accuracy::pixel_accuracy;
pub(crate) use text::text_scores;
pub use top_k::TopK;
pub use tracked::{Track, TrackedToTheEnd};

use zoo_recipe::schema::{Metric, Score};

/// Accumulates one metric over the samples (`S`) of an evaluation.
pub trait Meter<S> {
    /// Adds one sample.
    fn add(&mut self, sample: &S);

    /// The value over all samples so far; NaN before the first.
    fn value(&self) -> f64;

    /// The number of items of which the value is a share, for metrics that report it.
    fn of(&self) -> Option<u64> {
        None
    }

    /// The value as a score.
    fn score(&self, metric: Metric) -> Score {
        Score { metric, value: self.value(), of: self.of() }
    }
}

/// The output of a classifier for a sample, with its true class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Classified<'a> {
    /// The network's output for each class, before softmax.
    pub logits: &'a [f64],
    /// The true class.
    pub label: u32,
}

/// A running mean.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    n: u64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.n += 1;
    }

    fn value(&self) -> f64 {
        self.sum / self.n as f64
    }
}

//! The score of the trivial answer that predicts the most frequent class for all pixels.

use zoo_datasets::{SampleLoader, Samples, segmentation::VOID};

use super::samples::{Evaluated, middle, predicted_size};
use super::warn_of_one_class;
use crate::{
    Baseline, EvaluationError, Network,
    metrics::{Confusion, mean_iou},
};

/// Trivial answers for the pixels that `network` predicts.
///
/// # Errors
/// Samples that cannot be read, and a network that does not predict a class for each pixel.
pub(super) fn answers(
    classes: &[String],
    network: &dyn Network,
    loader: &SampleLoader<Evaluated>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Baseline>, EvaluationError> {
    let shape = network.outputs().into_iter().next().map(|(_, shape)| shape).unwrap_or_default();
    let (mut counts, mut done) = ([0u64; 256], 0);
    for images in loader.epoch(0, 0)? {
        for image in images? {
            let labels = &image.sample.labels;
            for label in middle(labels, predicted_size(&shape, labels.size())?).values() {
                counts[usize::from(*label)] += 1;
            }
            done += 1;
            progress(done, loader.samples().len());
        }
    }
    warn_of_one_class("val", classes, |value| counts[value]);
    let counts = &counts[..usize::from(VOID)];
    let most = (0..counts.len()).rev().max_by_key(|class| counts[*class]).unwrap_or(0);
    let mut taken = Confusion::new(classes);
    counts.iter().enumerate().filter(|(_, n)| **n > 0).for_each(|(class, n)| taken.count_in(class, most, *n));
    Ok(vec![Baseline { answer: format!("{} everywhere", taken.name(most)), score: mean_iou(&taken) }])
}

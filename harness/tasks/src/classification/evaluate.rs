//! Top-1, top-5 and cross entropy; the confusion matrix, and the worst samples.

use zoo_datasets::{Batch, Image, Loader, Size};
use zoo_recipe::schema::{Metric, TestTimeAugmentation};

use crate::{
    Evaluation, EvaluationError, Found, HeldOut, Network, Place, Sight, Watch, Witness,
    classification::tta,
    evaluation::{first_input, judge_all},
    metrics::{Classified, Confusion, CrossEntropy, Meter, TopK},
};

/// All held-out images with their classes, in order.
pub(super) struct HeldOutImages {
    pub loader: Loader,
    pub tta: Option<TestTimeAugmentation>,
    /// Whether the share of answers among the first five says anything.
    pub top5: bool,
}

impl HeldOut for HeldOutImages {
    fn evaluate(&self, network: &mut dyn Network, mut watch: Watch<'_>) -> Result<Option<Evaluation>, EvaluationError> {
        let Self { loader, tta, top5: tells } = self;
        let of = loader.dataset().len();
        let (mut loss, mut top1, mut top5) = (CrossEntropy::default(), TopK::new(1), TopK::new(5));
        let mut confusion = Confusion::new(loader.dataset().classes());
        let image = first_input(network)?;
        let judge = |batch, before, witness: &mut Witness<'_>| {
            let Batch { images, labels, n, mixed: _ } = batch;
            if n == 0 {
                return Ok(n);
            }
            let logits = tta::outputs(network, &image, n, &images, *tta)?;
            for (i, (logits, &label)) in logits.chunks_exact(logits.len() / n).zip(&labels).enumerate() {
                let sample = Classified { logits, label };
                let taken_for = confusion.add(&sample);
                // If images were skipped, their indices are unknown.
                if let Some(taken_for) = taken_for.filter(|_| loader.skipped() == 0) {
                    self.show(before + i, &sample, taken_for, witness);
                }
                let meters: [&mut dyn Meter<Classified<'_>>; 3] = [&mut loss, &mut top1, &mut top5];
                meters.into_iter().for_each(|meter| meter.add(&sample));
            }
            Ok(n)
        };
        let Some(samples) = judge_all(loader.epoch(0, 0)?, of, &mut watch, judge)? else { return Ok(None) };
        (watch.witness)(&Sight::Confusion(&confusion));
        let mut scores = vec![top1.score(Metric::Top1)];
        scores.extend(tells.then(|| top5.score(Metric::Top5)));
        Ok(Some(Evaluation { samples, loss: Some(loss.value()), scores }))
    }

    fn labels(&self) -> Result<Option<Vec<u32>>, EvaluationError> {
        let images = self.loader.dataset();
        Ok(Some((0..images.len()).map(|index| images.label(index)).collect()))
    }
}

impl HeldOutImages {
    /// An image with its true and its predicted class.
    fn show(&self, index: usize, sample: &Classified<'_>, taken_for: usize, witness: &mut Witness<'_>) {
        let images = self.loader.dataset();
        let class = |index: usize| images.classes().get(index).cloned().unwrap_or_else(|| index.to_string());
        let share = |index: usize| format!("{:.0} %", 100.0 * probability(sample.logits, index));
        let (truth, found) = (sample.label as usize, taken_for);
        let summary = match truth == found {
            true => format!("{}, correct with {}", class(truth), share(truth)),
            false => format!("{} ({}), predicted as {} ({})", class(truth), share(truth), class(found), share(found)),
        };
        witness(&Sight::Found(Found {
            name: &images.name(index),
            place: Place::Alone { summary: &summary },
            shows: "an image of one class",
            key: None,
            badness: Some(-libm::log(probability(sample.logits, truth))),
            // The image was readable a moment ago; if it no longer is, a blank picture is no reason to abort the
            // evaluation.
            draw: &|| images.image(index).unwrap_or_else(|_| Image::filled(Size::square(1), [0; 3])),
        }));
    }
}

/// Softmax of one logit.
fn probability(logits: &[f64], class: usize) -> f64 {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| libm::exp(logit - largest)).sum();
    logits.get(class).map_or(0.0, |own| libm::exp(own - largest) / sum)
}

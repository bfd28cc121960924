//! Mean average precision, and pictures of detections.

use rayon::prelude::*;
use zoo_datasets::{
    SampleLoader, Samples,
    detection::{BoundingBox, Object, Outputs, Pyramid, Role, detect},
    drawing::draw_boxes,
};
use zoo_recipe::schema::BoxDetection;

use super::samples::{Evaluated, HeldOutImage};
use crate::{
    Evaluation, EvaluationError, Field, Found, HeldOut, Network, Output, Place, Sight, Watch, Witness,
    evaluation::judge_all,
    metrics::{AveragePrecision, ImageBoxes, ScoredBox},
};

/// Smallest score of the detections in pictures; others count for the metrics only.
const SHOWN: f64 = 0.3;

/// Smallest overlap (IoU) of a detection that is shown as right.
const RIGHT: f64 = 0.5;

/// All held-out images.
pub(super) struct HeldOutBoxes {
    pub loader: SampleLoader<Evaluated>,
    /// Name of the input that takes the image.
    pub input: String,
    /// Number of classes.
    pub classes: usize,
    pub settings: BoxDetection,
}

impl HeldOut for HeldOutBoxes {
    fn evaluate(&self, network: &mut dyn Network, mut watch: Watch<'_>) -> Result<Option<Evaluation>, EvaluationError> {
        let of = self.loader.samples().len();
        let mut meter = AveragePrecision::new(self.classes);
        let judge = |images: Vec<HeldOutImage>, _, witness: &mut Witness<'_>| {
            for (image, found) in images.iter().zip(self.find(network, &images)?) {
                meter.add(&ImageBoxes { truth: &image.objects, found: &found });
                show(image, &found, witness);
            }
            Ok(images.len())
        };
        let samples = judge_all(self.loader.epoch(0, 0)?, of, &mut watch, judge)?;
        Ok(samples.map(|samples| Evaluation { samples, loss: None, scores: meter.scores() }))
    }
}

impl HeldOutBoxes {
    /// The detections in each of some images, in the pixels of the image.
    fn find(&self, network: &mut dyn Network, images: &[HeldOutImage]) -> Result<Vec<Vec<ScoredBox>>, EvaluationError> {
        let pyramid: &Pyramid = &self.loader.samples().prepare.pyramid;
        let anchors = pyramid.anchors().len();
        let pixels = images.iter().flat_map(|image| image.fitted.pixels.iter().copied()).collect();
        let mut outputs = network.run(images.len(), vec![Field::real(&self.input, pixels)])?;
        let logits = Output::take(&mut outputs, &self.settings.class)?;
        let offsets = Output::take(&mut outputs, &self.settings.boxes)?;
        let each = images
            .par_iter()
            .zip(logits.values.par_chunks_exact(anchors * self.classes))
            .zip(offsets.values.par_chunks_exact(anchors * 4));
        let found = each.map(|((image, logits), offsets)| {
            let outputs = Outputs { logits, classes: self.classes, offsets };
            let found = detect(pyramid, outputs, image.fitted.shown, &self.settings)?;
            let in_image = found.into_iter().map(|one| ScoredBox {
                class: one.class,
                bounds: image.fitted.bounds(one.corners),
                score: f64::from(one.score),
            });
            Ok(in_image.collect())
        });
        found.collect()
    }
}

/// Which detections find an object of their class that no earlier one finds; crowds and difficult objects are left out.
fn right(objects: &[&Object], found: &[&ScoredBox]) -> Vec<bool> {
    let mut missed = objects.to_vec();
    let finds = |one: &&ScoredBox| {
        let fits = |object: &&Object| object.class == one.class && object.bounds.iou(&one.bounds) >= RIGHT;
        let place = missed.iter().position(fits);
        place.map(|place| missed.swap_remove(place)).is_some()
    };
    found.iter().map(finds).collect()
}

/// An image with its objects and the most certain detections.
fn show(HeldOutImage { name, image, objects, .. }: &HeldOutImage, found: &[ScoredBox], witness: &mut Witness<'_>) {
    let shown: Vec<&ScoredBox> = found.iter().filter(|one| one.score >= SHOWN).collect();
    let single: Vec<&Object> = objects.iter().filter(|object| object.role == Role::Single).collect();
    let right = right(&single, &shown);
    let hits = right.iter().filter(|right| **right).count();
    let (there, wrong, all) = (single.len(), shown.len() - hits, single.len() + shown.len());
    witness(&Sight::Found(Found {
        name,
        place: Place::Alone { summary: &format!("{hits} found of {there}, {wrong} wrong") },
        shows: &format!("boxes of {there} true objects, {hits} right and {wrong} wrong detections"),
        key: Some(
            "thin yellow boxes: ground truth; thick green boxes: right detections; thick red boxes: wrong ones (other \
             class, or an IoU below 0.5); only scores of at least 0.3",
        ),
        badness: Some(if all == 0 { 0.0 } else { 1.0 - 2.0 * hits as f64 / all as f64 }),
        draw: &|| {
            let boxes: Vec<(BoundingBox, bool)> =
                shown.iter().map(|one| one.bounds).zip(right.iter().copied()).collect();
            draw_boxes(image, objects, &boxes)
        },
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_found_once_and_by_its_class() {
        let bounds = |x: f64| BoundingBox { x, y: 0.0, width: 10.0, height: 10.0 };
        let object = Object { class: 1, bounds: bounds(0.0), area: 100.0, role: Role::Single };
        let found = [(2, 0.0), (1, 6.0), (1, 1.0), (1, 0.0)].map(|(class, x)| ScoredBox {
            class,
            bounds: bounds(x),
            score: 1.0,
        });
        assert_eq!(right(&[&object], &found.iter().collect::<Vec<_>>()), [false, false, true, false]);
    }
}

//! Mean intersection over union, and pictures of predictions.

use zoo_datasets::{
    SampleLoader, Samples, Size,
    drawing::{draw_labels, strip},
    segmentation::{LabelMap, VOID},
};

use super::samples::{Evaluated, HeldOutImage, Preparation, middle, predicted_size};
use crate::{
    Evaluation, EvaluationError, Field, Found, HeldOut, Network, Output, Place, Sight, Watch, Witness,
    evaluation::judge_all,
    metrics::{Classified, Confusion, CrossEntropy, Meter, largest, mean_iou, pixel_accuracy},
};

/// All held-out images.
pub(super) struct HeldOutPixels {
    pub loader: SampleLoader<Evaluated>,
    /// Name of the input for the image.
    pub input: String,
    pub prepare: Preparation,
    /// Names of the classes.
    pub classes: Vec<String>,
}

impl HeldOut for HeldOutPixels {
    fn evaluate(&self, network: &mut dyn Network, mut watch: Watch<'_>) -> Result<Option<Evaluation>, EvaluationError> {
        let of = self.loader.samples().len();
        let (mut loss, mut confusion) = (CrossEntropy::default(), Confusion::new(&self.classes));
        let judge = |images: Vec<HeldOutImage>, _, witness: &mut Witness<'_>| {
            let pixels = images.iter().flat_map(|image| self.prepare.numbers(&image.sample.image)).collect();
            let outputs = network.run(images.len(), vec![Field::real(&self.input, pixels)])?;
            let Some(Output { shape, values, .. }) = outputs.first() else {
                return Err(EvaluationError::Mismatch("the network has no output".into()));
            };
            for (image, logits) in images.iter().zip(values.chunks_exact(shape.iter().product::<usize>().max(1))) {
                let (found, own) = taken(image, logits, shape, &mut loss)?;
                show(image, &found, &own, witness);
                confusion.add_all(&own);
            }
            Ok(images.len())
        };
        let Some(samples) = judge_all(self.loader.epoch(0, 0)?, of, &mut watch, judge)? else { return Ok(None) };
        (watch.witness)(&Sight::Confusion(&confusion));
        let scores = vec![mean_iou(&confusion), pixel_accuracy(&confusion)];
        Ok(Some(Evaluation { samples, loss: Some(loss.value()), scores }))
    }
}

/// The predicted class of each pixel, [`VOID`] without prediction, and the confusion matrix of the pixels.
fn taken(
    image: &HeldOutImage,
    logits: &[f32],
    shape: &[usize],
    loss: &mut CrossEntropy,
) -> Result<(LabelMap, Confusion), EvaluationError> {
    let size = predicted_size(shape, image.sample.labels.size())?;
    let truth = middle(&image.sample.labels, size);
    let (mut found, mut counts) = (LabelMap::filled(size, VOID), Confusion::new(&[]));
    let mut of_pixel = vec![0.0; shape[0]];
    for (place, label) in truth.values().iter().copied().enumerate() {
        of_pixel.iter_mut().enumerate().for_each(|(class, x)| *x = f64::from(logits[class * size.area() + place]));
        let pixel = Classified { logits: &of_pixel, label: u32::from(label) };
        let class = if label == VOID {
            largest(&of_pixel)
        } else {
            loss.add(&pixel);
            counts.add(&pixel)
        };
        found.values_mut()[place] = class.map_or(VOID, |class| class as u8);
    }
    Ok((found, counts))
}

/// An image coloured by its true classes, next to the same image coloured by the predicted ones.
fn show(HeldOutImage { name, sample }: &HeldOutImage, found: &LabelMap, counts: &Confusion, witness: &mut Witness<'_>) {
    let share = mean_iou(counts).value;
    let Size { width, height } = found.size();
    let rim = |whole: usize, part: usize| (whole - part) / 2;
    witness(&Sight::Found(Found {
        name,
        place: Place::Alone { summary: &format!("mean IoU {:.0} %", 100.0 * share) },
        shows: "an image coloured by its true classes, and by the predicted ones",
        key: Some("left: ground truth; right: prediction; pixels without class are dark"),
        badness: Some(if share.is_nan() { 0.0 } else { 1.0 - share }),
        draw: &|| {
            let seen = &sample.image;
            let corner = (rim(seen.width(), width), rim(seen.height(), height));
            let part = seen.crop(zoo_datasets::Rect::new(corner.0, corner.1, width, height));
            let part = part.unwrap_or_else(|| seen.clone());
            strip(&[draw_labels(&part, &middle(&sample.labels, found.size())), draw_labels(&part, found)], 2)
        },
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_datasets::segmentation::Labelled;

    /// Four pixels and two classes. Logits of the second pixel (class 0) and of the last one (no class) are NaN.
    #[test]
    fn pixels_without_prediction_are_misses() {
        let size = Size::new(4, 1);
        let labels = LabelMap::new(size, vec![0, 0, 1, VOID]).unwrap();
        let sample = Labelled { image: zoo_datasets::Image::filled(size, [0; 3]), labels };
        let image = HeldOutImage { name: "four pixels".into(), sample };
        let logits = [1.0, f32::NAN, 0.0, f32::NAN, 0.0, 0.0, 1.0, 0.0];
        let mut loss = CrossEntropy::default();
        let (found, counts) = taken(&image, &logits, &[2, 1, 4], &mut loss).unwrap();
        assert_eq!(found.values(), [0, VOID, 1, VOID]);
        assert_eq!((counts.samples(0), counts.samples(1)), (2, 1));
        assert!((pixel_accuracy(&counts).value - 2.0 / 3.0).abs() < 1e-15);
        assert!((mean_iou(&counts).value - f64::midpoint(1.0 / 2.0, 1.0)).abs() < 1e-15);
        assert!(loss.value().is_nan());
    }
}

//! Precision, recall and their harmonic mean.

use rayon::prelude::*;
use zoo_datasets::{
    Grid, SampleLoader, Size,
    drawing::draw_text,
    geometry::Polygon,
    text::{Counts, Detection, compare, detect},
};
use zoo_recipe::schema::TextDetection;

use super::samples::{TextImage, TextImages};
use crate::{
    Evaluation, EvaluationError, Field, Found, HeldOut, Network, Output, Place, Sight, Watch, Witness,
    evaluation::first_input, metrics::text_scores,
};

/// All held-out images.
pub(super) struct HeldOutText {
    pub loader: SampleLoader<TextImages>,
    pub settings: TextDetection,
}

impl HeldOut for HeldOutText {
    fn evaluate(&self, network: &mut dyn Network, watch: Watch<'_>) -> Result<Option<Evaluation>, EvaluationError> {
        let of = zoo_datasets::Samples::len(self.loader.samples());
        let (mut all, mut samples) = (Counts::default(), 0);
        for images in self.loader.epoch(0, 0)? {
            let images = images?;
            // Images of one size go through the network together.
            for group in images.chunk_by(|a, b| a.size == b.size) {
                if watch.is_cancelled() {
                    return Ok(None);
                }
                let found = find(network, group, &self.settings)?;
                for (image, found) in group.iter().zip(&found) {
                    let polygons: Vec<Polygon> = found.iter().map(|detection| detection.polygon.clone()).collect();
                    let counts = compare(&image.regions, &polygons);
                    all += counts;
                    show(image, found, counts, watch.witness);
                }
                samples += group.len() as u64;
                (watch.witness)(&Sight::Progress { what: "samples", done: samples as usize, of });
            }
        }
        if samples == 0 {
            return Err(EvaluationError::NothingEvaluated);
        }
        Ok(Some(Evaluation { samples, loss: None, scores: text_scores(all) }))
    }
}

/// An image with the text that was detected in it.
fn show(
    TextImage { name, image, regions, .. }: &TextImage,
    found: &[Detection],
    counts: Counts,
    witness: &mut Witness<'_>,
) {
    let (there, read) = (regions.iter().filter(|region| !region.ignore).count(), found.len());
    witness(&Sight::Found(Found {
        name,
        place: Place::Alone { summary: &format!("{read} detected of {there}") },
        shows: &format!("outlines of {there} true texts and {read} detected ones"),
        key: Some("thin yellow outlines: ground truth; thick green outlines: prediction"),
        badness: Some(if counts.texts + counts.detections == 0 { 0.0 } else { 1.0 - counts.score().hmean }),
        draw: &|| draw_text(image, regions, found),
    }));
}

/// Detects the text in images of a common size.
fn find(
    network: &mut dyn Network,
    images: &[TextImage],
    settings: &TextDetection,
) -> Result<Vec<Vec<Detection>>, EvaluationError> {
    let (Some(first), n) = (images.first(), images.len()) else { return Ok(Vec::new()) };
    let Size { width, height } = first.size;
    let input = first_input(network)?.name;
    // A separate network for each other image size, for the given number of images.
    let known = network.inputs().iter().any(|input| input.shape == [3, height, width]);
    network.resize(if known { network.batch() } else { n }, &input, &[3, height, width])?;
    let per_run = network.batch();
    let mut found = Vec::with_capacity(n);
    for images in images.chunks(per_run) {
        let pixels = images.iter().flat_map(|image| image.pixels.iter().copied()).collect();
        let mut outputs = network.run(images.len(), vec![Field::real(&input, pixels)])?;
        let output = Output::take(&mut outputs, &settings.probability)?;
        if output.shape != [1, height, width] {
            let message = format!(
                "`{}` is {:?} for images of {height}x{width}, but text detection needs 1x{height}x{width}",
                settings.probability, output.shape
            );
            return Err(EvaluationError::Mismatch(message));
        }
        let maps: Vec<&[f32]> = output.values.chunks_exact(width * height).collect();
        let read = images.par_iter().zip(maps).map(|(image, map)| {
            let shown = Size::new(image.shown.width, image.shown.height);
            let rows = map.chunks_exact(width).take(shown.height).flat_map(|row| &row[..shown.width]);
            let map = Grid::new(shown, rows.copied().collect()).unwrap_or_else(|| Grid::filled(shown, 0.0));
            detect(&map, image.image.size(), settings)
        });
        found.extend(read.collect::<Vec<_>>());
    }
    Ok(found)
}

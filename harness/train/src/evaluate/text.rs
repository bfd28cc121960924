//! Text in images.

use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use zoo_datasets::Grid;
use zoo_datasets::{
    SampleLoader, Size,
    geometry::Polygon,
    text::{Counts, DetectConfig, Detection, compare, detect},
};
use zoo_input::{TextImage, TextImages};
use zoo_recipe::schema::Metric;

use super::{
    Evaluation, Sight, Witness,
    network::{Network, output},
};
use crate::{
    TrainError,
    metrics::{Hmean, Meter, Precision, Recall},
};

/// Precision, recall and hmean over all images of the loader. `probability` is the name of the output that text is read off.
pub(super) fn evaluate(
    network: &mut Network<'_>,
    loader: &SampleLoader<TextImages>,
    (probability, config): (&str, &DetectConfig),
    of: usize,
    cancel: &AtomicBool,
    witness: &mut Witness<'_>,
) -> Result<Option<Evaluation>, TrainError> {
    let (mut hmean, mut precision, mut recall) = (Hmean::default(), Precision::default(), Recall::default());
    let mut samples = 0;
    for images in loader.epoch(0, 0)? {
        let images = images?;
        // Images of one size go through the network together.
        for group in images.chunk_by(|a, b| a.size == b.size) {
            if cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let found = find(network, group, (probability, config))?;
            for (image, found) in group.iter().zip(&found) {
                let TextImage { name, image, regions, .. } = image;
                let polygons: Vec<Polygon> = found.iter().map(|detection| detection.polygon.clone()).collect();
                let counts = compare(regions, &polygons);
                let meters: [&mut dyn Meter<Counts>; 3] = [&mut hmean, &mut precision, &mut recall];
                meters.into_iter().for_each(|meter| meter.add(&counts));
                witness(&Sight::Text { name, image, regions, found });
            }
            samples += group.len() as u64;
            witness(&Sight::Progress { what: "samples", done: samples as usize, of });
        }
    }
    if samples == 0 {
        return Err(TrainError::NothingEvaluated);
    }
    let scores = vec![hmean.score(Metric::Hmean), precision.score(Metric::Precision), recall.score(Metric::Recall)];
    Ok(Some(Evaluation { samples, loss: None, scores }))
}

/// The text in images that come in one size.
fn find(
    network: &mut Network<'_>,
    images: &[TextImage],
    (probability, config): (&str, &DetectConfig),
) -> Result<Vec<Vec<Detection>>, TrainError> {
    let (Some(first), n) = (images.first(), images.len()) else { return Ok(Vec::new()) };
    let Size { width, height } = first.size;
    let input = network.inputs().next().map(|(name, _)| name.to_owned());
    let input = input.ok_or_else(|| TrainError::Mismatch("the network has no input".into()))?;
    // A network of its own for other images than it was made for: as many at once as there are.
    let known = network.inputs().any(|(_, shape)| shape == [3, height, width]);
    network.resize(if known { network.batch() } else { n }, &input, [height, width])?;
    let per_run = network.batch();
    let mut found = Vec::with_capacity(n);
    for images in images.chunks(per_run) {
        let pixels = images.iter().flat_map(|image| image.pixels.iter().copied()).collect();
        let outputs = network.run(images.len(), vec![(&input, pixels)])?;
        let output = output(&outputs, probability)?;
        if output.shape != [1, height, width] {
            let message = format!(
                "`{probability}` is {:?} for images of {height}x{width}: text is read off 1x{height}x{width}",
                output.shape
            );
            return Err(TrainError::Mismatch(message));
        }
        let maps = output.values()?;
        let maps: Vec<&[f32]> = maps.chunks_exact(width * height).collect();
        let read = images.par_iter().zip(maps).map(|(image, map)| {
            let shown = Size::new(image.shown.width, image.shown.height);
            let rows = map.chunks_exact(width).take(shown.height).flat_map(|row| &row[..shown.width]);
            let map = Grid::new(shown, rows.copied().collect()).unwrap_or_else(|| Grid::filled(shown, 0.0));
            detect(&map, image.image.size(), config)
        });
        found.extend(read.collect::<Vec<_>>());
    }
    Ok(found)
}

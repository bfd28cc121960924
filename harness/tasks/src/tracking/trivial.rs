//! The scores of trivial answers that ignore the image, for comparison.

use zoo_datasets::{Mask, SampleLoader, Samples, Size, geometry::Point};
use zoo_recipe::schema::Metric;

use super::{
    evaluate::{Setting, truth_of},
    pairs::HeldOutPairs,
};
use crate::{
    Baseline, EvaluationError,
    metrics::{MaskIou, Masks, Meter, Track, TrackedToTheEnd},
};

/// Trivial answers: a disc of the size of targets at the template's scale, in the centre of the search image or at
/// the target's true position; and a box that stays where it was in the first frame. `progress` is called with the
/// number of samples and sequences done and their total.
///
/// # Errors
/// Samples that cannot be read.
pub(super) fn answers(
    setting: &Setting,
    pairs: SampleLoader<HeldOutPairs>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Baseline>, EvaluationError> {
    let sequences = &setting.sequences;
    let side = setting.tracker.search;
    // A square target and its context, twice as wide, fill the template.
    let radius = setting.tracker.template as f64 / 4.0;
    let middle = Point::new((side as f64 - 1.0) / 2.0, (side as f64 - 1.0) / 2.0);
    let (mut centred, mut placed) = (MaskIou::default(), MaskIou::default());
    let of = pairs.samples().len() + sequences.len();
    let mut done = 0;
    for batch in pairs.epoch(0, 0)? {
        let batch = batch?;
        for pair in batch.iter().filter(|pair| pair.mask_is_known()) {
            let truth = &truth_of(pair, side);
            centred.add(&Masks { found: &disc(side, middle, radius), truth });
            let place = pair.target.map_or(middle, |target| target.centre);
            placed.add(&Masks { found: &disc(side, place, radius), truth });
        }
        done += batch.len();
        progress(done, of);
    }
    let mut kept = TrackedToTheEnd::default();
    for sequence in 0..sequences.len() {
        let Some(start) = sequences.frame(sequence, 0)?.target else { continue };
        let frames = (1..sequences.frames(sequence)).map(|number| sequences.frame(sequence, number));
        let overlaps =
            frames.filter_map(|frame| frame.map(|frame| frame.target.map(|truth| start.iou(&truth))).transpose());
        let overlaps = overlaps.collect::<Result<Vec<f64>, _>>()?;
        if !overlaps.is_empty() {
            kept.add(&Track { overlaps: &overlaps });
        }
        progress(of - sequences.len() + sequence + 1, of);
    }
    let answers = [
        ("a disc in the middle", centred.score(Metric::MaskIou)),
        ("a disc at the true place", placed.score(Metric::MaskIou)),
        ("a box that never moves", kept.score(Metric::Tracked)),
    ];
    let measured = answers.into_iter().filter(|(_, score)| !score.value.is_nan());
    Ok(measured.map(|(answer, score)| Baseline { answer: answer.into(), score }).collect())
}

fn disc(side: usize, centre: Point, radius: f64) -> Mask {
    let mut mask = Mask::filled(Size::square(side), false);
    for y in 0..side {
        for (x, inside) in mask.row_mut(y).iter_mut().enumerate() {
            *inside = centre.distance(Point::new(x as f64, y as f64)) <= radius;
        }
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disc_has_its_area() {
        let area = disc(100, Point::new(49.5, 49.5), 30.0).count() as f64;
        assert!((area / (std::f64::consts::PI * 900.0) - 1.0).abs() < 0.01, "{area}");
    }
}

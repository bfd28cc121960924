//! From the outputs of a network to detections (`postprocess_detections` of torchvision's RetinaNet).

use super::{Corners, Pyramid};
use crate::DataError;
use crate::image::Size;
use zoo_settings::BoxDetection;

/// A detection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Detected {
    /// Its class.
    pub class: usize,
    /// Where it is, in pixels of the network's input.
    pub corners: Corners,
    /// Its score, from 0 to 1.
    pub score: f32,
}

/// The outputs of a network for one image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outputs<'a> {
    /// Logits of all classes of each anchor, one anchor after the other.
    pub logits: &'a [f32],
    /// Number of classes.
    pub classes: usize,
    /// Four offsets of each anchor.
    pub offsets: &'a [f32],
}

/// The detections in an image that takes up `shown` pixels in the upper left corner of the network's input, the highest
/// score first. Of equal scores, that of the first anchor and class comes first. Predictions that are not finite are
/// none.
///
/// # Errors
/// Outputs of another number of anchors.
pub fn detect(
    pyramid: &Pyramid,
    outputs: Outputs<'_>,
    shown: Size,
    settings: &BoxDetection,
) -> Result<Vec<Detected>, DataError> {
    let Outputs { logits, classes, offsets } = outputs;
    let anchors = pyramid.anchors();
    if classes == 0 || logits.len() != classes * anchors.len() || offsets.len() != 4 * anchors.len() {
        let message = format!(
            "{} logits of {classes} classes and {} offsets for {} anchors",
            logits.len(),
            offsets.len(),
            anchors.len()
        );
        return Err(DataError::Config(message));
    }
    let mut found = Vec::new();
    for level in pyramid.levels() {
        let first = level.start * classes;
        let scored = logits[first..level.end * classes].iter().enumerate().filter_map(|(place, logit)| {
            let score = sigmoid(*logit);
            (score > settings.min_score as f32).then_some((score, first + place))
        });
        let mut scored: Vec<(f32, usize)> = scored.collect();
        let order = |a: &(f32, usize), b: &(f32, usize)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        scored.sort_unstable_by(order);
        for (score, place) in scored.into_iter().take(settings.candidates) {
            let (anchor, class) = (place / classes, place % classes);
            let offsets = std::array::from_fn(|i| offsets[4 * anchor + i]);
            let corners = anchors[anchor].decode(offsets).clipped(shown);
            if corners.width().is_finite() && corners.height().is_finite() {
                found.push(Detected { class, corners, score });
            }
        }
    }
    Ok(suppress(found, settings.nms_iou as f32, settings.detections))
}

/// At most `most` detections that no other one of their class with a higher score overlaps by more than `limit`, the
/// highest score first (greedy non-maximum suppression; torchvision's `batched_nms`).
fn suppress(mut found: Vec<Detected>, limit: f32, most: usize) -> Vec<Detected> {
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut kept: Vec<Detected> = Vec::new();
    for candidate in found {
        if kept.len() == most {
            break;
        }
        let covers = |other: &Detected| other.class == candidate.class && other.corners.iou(&candidate.corners) > limit;
        if !kept.iter().any(covers) {
            kept.push(candidate);
        }
    }
    kept
}

fn sigmoid(x: f32) -> f32 {
    // Most predictions are background, far below any threshold.
    if x < -80.0 { 0.0 } else { 1.0 / (1.0 + libm::expf(-x)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(class: usize, left: f32, score: f32) -> Detected {
        Detected { class, corners: Corners::new([left, 0.0, left + 10.0, 10.0]), score }
    }

    /// Boxes of 10 x 10 pixels that are 2 apart overlap by 80/120, those that are 4 apart by 60/140.
    #[test]
    fn the_higher_score_of_a_class_remains() {
        let found = vec![detected(1, 0.0, 0.5), detected(1, 2.0, 0.9), detected(1, 6.0, 0.4), detected(2, 2.0, 0.3)];
        let kept = suppress(found.clone(), 0.5, 9);
        assert_eq!(kept, [found[1], found[2], found[3]]);
        assert_eq!(suppress(found.clone(), 0.7, 9).len(), 4);
        assert_eq!(suppress(found, 0.4, 9), [detected(1, 2.0, 0.9), detected(2, 2.0, 0.3)]);
    }

    #[test]
    fn by_hand() {
        let settings =
            zoo_settings::BoxAnchors { strides: vec![8], sizes: vec![8.0], per_octave: 1, ratios: vec![1.0] };
        let pyramid = Pyramid::new(&settings, Size::square(16)).unwrap();
        // Two classes for each of four anchors around (0, 0), (8, 0), (0, 8) and (8, 8).
        let logits = [-9.0, 0.0, -9.0, f32::NAN, -9.0, -9.0, 2.0, -9.0];
        let mut offsets = [0.0; 16];
        offsets[12] = 0.5;
        let outputs = Outputs { logits: &logits, classes: 2, offsets: &offsets };
        let found = detect(&pyramid, outputs, Size::new(14, 16), &BoxDetection::default()).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].class, found[0].corners), (0, Corners::new([8.0, 4.0, 14.0, 12.0])));
        assert_eq!((found[1].class, found[1].score), (1, 0.5));
        assert_eq!(found[1].corners, Corners::new([0.0, 0.0, 4.0, 4.0]));
        let one = BoxDetection { detections: 1, ..Default::default() };
        assert_eq!(detect(&pyramid, outputs, Size::square(16), &one).unwrap().len(), 1);
        let none = BoxDetection { candidates: 0, ..one.clone() };
        assert_eq!(detect(&pyramid, outputs, Size::square(16), &none).unwrap(), []);
        let short = Outputs { logits: &logits[1..], ..outputs };
        assert!(detect(&pyramid, short, Size::square(16), &one).is_err());
        let broken = Outputs { offsets: &[f32::INFINITY; 16], ..outputs };
        let found = detect(&pyramid, broken, Size::square(16), &BoxDetection::default()).unwrap();
        assert!(found.iter().all(|one| one.corners.width().is_finite()));
    }
}

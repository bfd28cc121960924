//! The targets of anchors: which object each of them should find.

use super::{Corners, Pyramid};
use crate::DataError;
use zoo_settings::BoxPreparation;

/// Label of anchors without an object.
pub const BACKGROUND: f32 = -1.0;

/// Label of anchors that are neither object nor background.
pub const IGNORED: f32 = -2.0;

/// Refuses limits of the overlap (IoU) of anchors and objects that make no sense.
///
/// # Errors
/// Limits outside of 0 to 1, or in the wrong order.
pub fn check_limits(settings: &BoxPreparation) -> Result<(), DataError> {
    let &BoxPreparation { positive_iou, negative_iou, .. } = settings;
    if (0.0..=1.0).contains(&negative_iou) && (negative_iou..=1.0).contains(&positive_iou) {
        return Ok(());
    }
    let message = format!("0 <= negative_iou <= positive_iou <= 1, not {negative_iou} and {positive_iou}");
    Err(DataError::Config(format!("matching of anchors: {message}")))
}

/// What a network should predict for an image: a number per anchor, and four.
#[derive(Debug, Clone, PartialEq)]
pub struct AnchorTargets {
    /// The class of each anchor, [`BACKGROUND`] or [`IGNORED`].
    pub labels: Vec<f32>,
    /// Four offsets of each anchor to its object ([`Corners::encode`]), one anchor after the other; 0 without object.
    pub offsets: Vec<f32>,
}

impl AnchorTargets {
    /// Assigns the anchors of an image to its objects, given by class and box. Each anchor belongs to the object that
    /// it overlaps most (the first of equal ones) if that is enough. For each object, the anchors that overlap it most
    /// belong to an object in any case, to the one that they overlap most (torchvision's `Matcher` with
    /// `allow_low_quality_matches`).
    pub fn new(pyramid: &Pyramid, objects: &[(usize, Corners)], settings: &BoxPreparation) -> Self {
        let anchors = pyramid.anchors();
        let mut best = vec![(0.0_f32, 0_usize); anchors.len()];
        let mut closest = vec![0.0_f32; objects.len()];
        let overlaps: Vec<Vec<f32>> = objects.iter().map(|(_, o)| anchors.iter().map(|a| o.iou(a)).collect()).collect();
        for (number, overlaps) in overlaps.iter().enumerate() {
            for (best, &iou) in best.iter_mut().zip(overlaps) {
                if iou > best.0 {
                    *best = (iou, number);
                }
                closest[number] = closest[number].max(iou);
            }
        }
        let mut targets = Self { labels: vec![BACKGROUND; anchors.len()], offsets: vec![0.0; 4 * anchors.len()] };
        for (index, &(iou, number)) in best.iter().enumerate() {
            let is_closest = || overlaps.iter().zip(&closest).any(|(overlaps, closest)| overlaps[index] == *closest);
            if !objects.is_empty() && (iou >= settings.positive_iou as f32 || is_closest()) {
                let (class, corners) = objects[number];
                targets.labels[index] = class as f32;
                targets.offsets[4 * index..][..4].copy_from_slice(&corners.encode(&anchors[index]));
            } else if iou >= settings.negative_iou as f32 {
                targets.labels[index] = IGNORED;
            }
        }
        targets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Size;

    /// Four anchors of 8x8 pixels around (0, 0), (8, 0), (0, 8) and (8, 8).
    fn pyramid() -> Pyramid {
        let settings =
            zoo_settings::BoxAnchors { strides: vec![8], sizes: vec![8.0], per_octave: 1, ratios: vec![1.0] };
        Pyramid::new(&settings, Size::square(16)).unwrap()
    }

    #[test]
    fn by_hand() {
        let anchors = pyramid();
        // Exactly the last anchor; a box that overlaps the second one by 8 * 4 / (64 + 32 - 32) = 0.5; and one that
        // overlaps the third by 0.45 and no other.
        let objects = [(3, Corners::new([4.0, 4.0, 12.0, 12.0])), (1, Corners::new([4.0, -4.0, 12.0, 0.0]))];
        let targets = AnchorTargets::new(&anchors, &objects, &BoxPreparation::default());
        assert_eq!(targets.labels, [BACKGROUND, 1.0, BACKGROUND, 3.0]);
        assert_eq!(targets.offsets[12..], [0.0; 4]);
        assert_eq!(targets.offsets[4..8], [0.0, -0.25, 0.0, 0.5_f32.ln()]);
        let none = AnchorTargets::new(&anchors, &[], &BoxPreparation::default());
        assert_eq!(none.labels, [BACKGROUND; 4]);
    }

    #[test]
    fn an_object_has_its_closest_anchors_and_others_are_ignored() {
        let anchors = pyramid();
        // Overlaps the first two anchors by 2 * 8 / (64 + 64 - 16) each.
        let between = [(2, Corners::new([2.0, -4.0, 10.0, 4.0]))];
        let limits = |positive_iou, negative_iou| BoxPreparation { positive_iou, negative_iou, ..Default::default() };
        let strict = limits(0.9, 0.5);
        let found = AnchorTargets::new(&anchors, &between, &strict).labels;
        assert_eq!(found[1], 2.0, "{found:?}");
        let found = AnchorTargets::new(&anchors, &between, &limits(0.9, 0.1)).labels;
        assert_eq!(found, [IGNORED, 2.0, BACKGROUND, BACKGROUND]);
        assert!(check_limits(&limits(0.3, 0.4)).is_err());
        assert!(check_limits(&limits(f64::NAN, 0.4)).is_err());
    }
}

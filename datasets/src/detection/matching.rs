//! The targets of anchors: which object each of them should find.

use super::{Corners, Pyramid};
use crate::DataError;

/// Label of anchors without an object.
pub const BACKGROUND: f32 = -1.0;

/// Label of anchors that are neither object nor background.
pub const IGNORED: f32 = -2.0;

/// How anchors are assigned to objects.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MatchConfig {
    /// Anchors that overlap an object at least this much (IoU) should find it.
    pub object: f32,
    /// Anchors that overlap all objects by less than this are background.
    pub background: f32,
}

impl Default for MatchConfig {
    /// torchvision's RetinaNet (arXiv 1708.02002, section 4).
    fn default() -> Self {
        Self { object: 0.5, background: 0.4 }
    }
}

impl MatchConfig {
    /// Refuses limits that make no sense.
    ///
    /// # Errors
    /// Limits outside of 0 to 1, or in the wrong order.
    pub fn check(&self) -> Result<(), DataError> {
        if (0.0..=1.0).contains(&self.background) && (self.background..=1.0).contains(&self.object) {
            return Ok(());
        }
        Err(DataError::Config(format!("matching of anchors: 0 <= background <= object <= 1, not {self:?}")))
    }
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
    pub fn new(pyramid: &Pyramid, objects: &[(usize, Corners)], config: &MatchConfig) -> Self {
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
            if !objects.is_empty() && (iou >= config.object || is_closest()) {
                let (class, corners) = objects[number];
                targets.labels[index] = class as f32;
                targets.offsets[4 * index..][..4].copy_from_slice(&corners.encode(&anchors[index]));
            } else if iou >= config.background {
                targets.labels[index] = IGNORED;
            }
        }
        targets
    }
}

#[cfg(test)]
mod tests {
    use super::super::PyramidConfig;
    use super::*;
    use crate::image::Size;

    /// Four anchors of 8x8 pixels around (0, 0), (8, 0), (0, 8) and (8, 8).
    fn pyramid() -> Pyramid {
        let config = PyramidConfig { strides: vec![8], sizes: vec![8.0], per_octave: 1, ratios: vec![1.0] };
        Pyramid::new(&config, Size::square(16)).unwrap()
    }

    #[test]
    fn by_hand() {
        let anchors = pyramid();
        // Exactly the last anchor; a box that overlaps the second one by 8 * 4 / (64 + 32 - 32) = 0.5; and one that
        // overlaps the third by 0.45 and no other.
        let objects = [(3, Corners::new([4.0, 4.0, 12.0, 12.0])), (1, Corners::new([4.0, -4.0, 12.0, 0.0]))];
        let targets = AnchorTargets::new(&anchors, &objects, &MatchConfig::default());
        assert_eq!(targets.labels, [BACKGROUND, 1.0, BACKGROUND, 3.0]);
        assert_eq!(targets.offsets[12..], [0.0; 4]);
        assert_eq!(targets.offsets[4..8], [0.0, -0.25, 0.0, 0.5_f32.ln()]);
        let none = AnchorTargets::new(&anchors, &[], &MatchConfig::default());
        assert_eq!(none.labels, [BACKGROUND; 4]);
    }

    #[test]
    fn an_object_has_its_closest_anchors_and_others_are_ignored() {
        let anchors = pyramid();
        // Overlaps the first two anchors by 2 * 8 / (64 + 64 - 16) each.
        let between = [(2, Corners::new([2.0, -4.0, 10.0, 4.0]))];
        let strict = MatchConfig { object: 0.9, background: 0.5 };
        let found = AnchorTargets::new(&anchors, &between, &strict).labels;
        assert_eq!(found[1], 2.0, "{found:?}");
        let limits = MatchConfig { object: 0.9, background: 0.1 };
        let found = AnchorTargets::new(&anchors, &between, &limits).labels;
        assert_eq!(found, [IGNORED, 2.0, BACKGROUND, BACKGROUND]);
        assert!(MatchConfig { object: 0.3, background: 0.4 }.check().is_err());
        assert!(MatchConfig { object: f32::NAN, background: 0.4 }.check().is_err());
    }
}

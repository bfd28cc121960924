//! Training targets of the classification and box branches of SiamMask (`AnchorTargetLayer`).

use super::{Anchors, TargetBox};
use crate::Rng;
use zoo_settings::PairPreparation;

/// Negative anchors of a pair without the target, from the middle of the grid.
const NEGATIVES_WITHOUT_TARGET: usize = 16;

/// Labels of all anchors, in the order of [`Anchors`] (A shapes on a grid of S x S places).
#[derive(Debug, Clone, PartialEq)]
pub struct AnchorLabels {
    /// 1 positive, 0 negative, -1 not labelled; (A, S, S).
    pub class: Vec<f32>,
    /// From anchor to target: x and y of the centres' distance over the anchor's sides, and the logarithms of the
    /// sides' ratios; (4, A, S, S).
    pub delta: Vec<f32>,
    /// 1 / (number of positives + 1e-6) on positive anchors, else 0; (A, S, S).
    pub delta_weight: Vec<f32>,
}

impl AnchorLabels {
    /// Labels for a target in the search image; `None` if the target is not in it.
    pub fn new(anchors: &Anchors, target: Option<&TargetBox>, settings: &PairPreparation, rng: &mut Rng) -> Self {
        let n = anchors.len();
        let mut labels = Self { class: vec![-1.0; n], delta: vec![0.0; 4 * n], delta_weight: vec![0.0; n] };
        let Some(target) = target else {
            let side = anchors.side();
            // Seven places around the middle, in each direction.
            let near = (side / 2).saturating_sub(3)..(side / 2 + 4).min(side);
            let middle = |&i: &usize| near.contains(&(i / side % side)) && near.contains(&(i % side));
            let candidates: Vec<usize> = (0..n).filter(middle).collect();
            for i in some_of(candidates, NEGATIVES_WITHOUT_TARGET, rng) {
                labels.class[i] = 0.0;
            }
            return labels;
        };
        let (mut positive, mut negative) = (Vec::new(), Vec::new());
        for (i, anchor) in anchors.iter().enumerate() {
            let delta = [
                (target.centre.x - anchor.centre.x) / anchor.width,
                (target.centre.y - anchor.centre.y) / anchor.height,
                libm::log(target.width / anchor.width),
                libm::log(target.height / anchor.height),
            ];
            for (part, value) in delta.into_iter().enumerate() {
                labels.delta[part * n + i] = value as f32;
            }
            let overlap = anchor.iou(target);
            if overlap > settings.positive_iou {
                positive.push(i);
            } else if overlap < settings.negative_iou {
                negative.push(i);
            }
        }
        let positive = some_of(positive, settings.positives, rng);
        let negative = some_of(negative, settings.labelled.saturating_sub(positive.len()), rng);
        let weight = (1.0 / (positive.len() as f64 + 1e-6)) as f32;
        for i in positive {
            (labels.class[i], labels.delta_weight[i]) = (1.0, weight);
        }
        for i in negative {
            labels.class[i] = 0.0;
        }
        labels
    }

    /// For each place the largest class of its anchors, -1, 0 or 1; (1, S, S). The mask is learnt where it is 1.
    pub fn mask_weight(&self, anchors: &Anchors) -> Vec<f32> {
        let places = anchors.side() * anchors.side();
        (0..places).map(|place| self.class.iter().skip(place).step_by(places).copied().fold(-1.0, f32::max)).collect()
    }
}

/// `count` of `candidates`, chosen at random; all of them if there are no more.
fn some_of(mut candidates: Vec<usize>, count: usize, rng: &mut Rng) -> Vec<usize> {
    let n = candidates.len();
    for i in 0..count.min(n) {
        candidates.swap(i, i + rng.below(n - i));
    }
    candidates.truncate(count);
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Point;

    fn anchors() -> Anchors {
        Anchors::new(&zoo_settings::Anchors::default(), 25, 127.0)
    }

    fn of(labels: &AnchorLabels, class: f32) -> usize {
        labels.class.iter().filter(|&&c| c == class).count()
    }

    #[test]
    fn a_square_target_in_the_middle() {
        let target = TargetBox { centre: Point::new(127.0, 127.0), width: 64.0, height: 64.0 };
        let labels = AnchorLabels::new(&anchors(), Some(&target), &PairPreparation::default(), &mut Rng::new(0, 0, 0));
        // Square anchors moved by (8, 8) overlap by 56^2 / (2 * 64^2 - 56^2) = 0.62, by (16, 8) by less than 0.6: with
        // (16, 0), which overlaps by 0.6 exactly, left out, these are nine.
        assert_eq!((of(&labels, 1.0), of(&labels, 0.0), of(&labels, -1.0)), (9, 55, 3125 - 64));
        let middle = 2 * 625 + 12 * 25 + 12;
        assert_eq!(labels.class[middle], 1.0);
        assert_eq!([0, 1, 2, 3].map(|part| labels.delta[part * 3125 + middle]), [0.0; 4]);
        // The place to the right has its centre 8 pixels to the right.
        assert_eq!(labels.delta[middle + 1], -0.125);
        assert!((labels.delta_weight[middle] - 1.0 / 9.0).abs() < 1e-6);
        let tall = 3 * 625 + 12 * 25 + 12;
        assert!((labels.delta[2 * 3125 + tall] - (64.0_f32 / 40.0).ln()).abs() < 1e-6);
        let weight = labels.mask_weight(&anchors());
        assert_eq!((weight.len(), weight.iter().filter(|&&w| w == 1.0).count()), (625, 9));
    }

    #[test]
    fn positives_are_limited() {
        let target = TargetBox { centre: Point::new(120.0, 130.0), width: 64.0, height: 64.0 };
        let settings = PairPreparation { positives: 3, labelled: 10, positive_iou: 0.4, ..Default::default() };
        let labels = AnchorLabels::new(&anchors(), Some(&target), &settings, &mut Rng::new(0, 0, 0));
        assert_eq!((of(&labels, 1.0), of(&labels, 0.0)), (3, 7));
    }

    #[test]
    fn a_pair_without_the_target_has_negatives_in_the_middle() {
        let labels = AnchorLabels::new(&anchors(), None, &PairPreparation::default(), &mut Rng::new(0, 0, 0));
        assert_eq!((of(&labels, 1.0), of(&labels, 0.0)), (0, 16));
        for (i, _) in labels.class.iter().enumerate().filter(|(_, c)| **c == 0.0) {
            assert!((9..16).contains(&(i / 25 % 25)) && (9..16).contains(&(i % 25)));
        }
        assert!(labels.mask_weight(&anchors()).iter().all(|&w| w <= 0.0));
        assert!(labels.delta.iter().chain(&labels.delta_weight).all(|&v| v == 0.0));
    }
}

//! Intersection over union of label maps, per class.

use super::Confusion;
use zoo_recipe::schema::{Metric, Score};

/// Mean intersection over union of all classes that occur or are predicted. `pixels` counts the pixels of all images
/// by true and predicted class (PASCAL VOC's segmentation challenge; torchvision's `references/segmentation`). A pixel
/// without prediction is missing from its true class. NaN without pixels.
pub fn mean_iou(pixels: &Confusion) -> Score {
    let predicted = pixels.counts.values().flat_map(|row| row.keys().copied());
    let largest = pixels.true_classes().into_iter().chain(predicted).max();
    let shares = (0..=largest.unwrap_or(0)).filter_map(|class| {
        let found: u64 = pixels.counts.keys().map(|other| pixels.count(*other, class)).sum();
        let both = pixels.count(class, class);
        let either = pixels.samples(class) + found - both;
        (either > 0).then(|| both as f64 / either as f64)
    });
    let (sum, n) = shares.fold((0.0, 0), |(sum, n), share| (sum + share, n + 1));
    Score { metric: Metric::MeanIou, value: sum / f64::from(n), of: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Classes 0 and 1 have IoU 3/5 and 1/3. Class 2 does not occur; class 3 is predicted once, for a pixel of
    /// another class.
    #[test]
    fn by_hand() {
        let mut pixels = Confusion::new(&[]);
        for (class, found, count) in [(0, 0, 3), (0, 1, 1), (1, 1, 1), (1, 0, 1)] {
            pixels.count_in(class, found, count);
        }
        assert!((mean_iou(&pixels).value - f64::midpoint(3.0 / 5.0, 1.0 / 3.0)).abs() < 1e-15);
        pixels.count_in(0, 3, 1);
        assert!((mean_iou(&pixels).value - (3.0 / 6.0 + 1.0 / 3.0 + 0.0) / 3.0).abs() < 1e-15);
        // Two pixels of class 1 without prediction: 1/5; and one of class 4, of which there is no other.
        pixels.unpredicted = [(1, 2), (4, 1)].into();
        assert!((mean_iou(&pixels).value - (3.0 / 6.0 + 1.0 / 5.0 + 0.0 + 0.0) / 4.0).abs() < 1e-15);
        assert!(mean_iou(&Confusion::new(&[])).value.is_nan());
    }
}

//! Recall, precision and their harmonic mean by the ICDAR 2015 protocol (incidental scene text, task 1).

use super::TextRegion;
use crate::geometry::{Polygon, intersection_area, iou};

/// Least overlap of a match (exceeded), and least part of a detection on ignored text to be ignored itself (exceeded).
const MIN_OVERLAP: f64 = 0.5;

/// Matches of one image, or of many when added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Detections that belong to a text, one to one.
    pub matched: usize,
    /// Texts that count.
    pub texts: usize,
    /// Detections that count.
    pub detections: usize,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.matched += other.matched;
        self.texts += other.texts;
        self.detections += other.detections;
    }
}

impl std::iter::Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |mut sum, counts| {
            sum += counts;
            sum
        })
    }
}

/// Quality of detections over a data set, as fractions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Part of the texts that were found.
    pub recall: f64,
    /// Part of the detections that are texts.
    pub precision: f64,
    /// Harmonic mean of both.
    pub hmean: f64,
}

impl Counts {
    /// The score over everything counted. Without texts recall is 0, without detections precision is 0, as in the
    /// protocol's script.
    pub fn score(self) -> Score {
        let part = |n: usize| if n == 0 { 0.0 } else { self.matched as f64 / n as f64 };
        let (recall, precision) = (part(self.texts), part(self.detections));
        let sum = recall + precision;
        Score { recall, precision, hmean: if sum == 0.0 { 0.0 } else { 2.0 * recall * precision / sum } }
    }
}

/// Compares the detections of one image with its texts.
///
/// A detection with more than half of its area on one ignored text is ignored. Others are matched in order, each text
/// with the first unmatched detection whose intersection over union exceeds 0.5. Self-intersecting polygons are ignored
/// on both sides.
pub fn compare(texts: &[TextRegion], detections: &[Polygon]) -> Counts {
    let texts: Vec<&TextRegion> = texts.iter().filter(|text| text.polygon.is_simple()).collect();
    let (ignored, texts): (Vec<&TextRegion>, Vec<&TextRegion>) = texts.into_iter().partition(|text| text.ignore);
    let on_ignored = |detection: &Polygon| {
        ignored.iter().any(|text| intersection_area(&text.polygon, detection) > MIN_OVERLAP * detection.area())
    };
    let mut free: Vec<&Polygon> =
        detections.iter().filter(|detection| detection.is_simple() && !on_ignored(detection)).collect();
    let counted = free.len();
    for text in &texts {
        if let Some(found) = free.iter().position(|detection| iou(&text.polygon, detection) > MIN_OVERLAP) {
            free.remove(found);
        }
    }
    Counts { matched: counted - free.len(), texts: texts.len(), detections: counted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Point;

    fn text(x: f64, width: f64, ignore: bool) -> TextRegion {
        TextRegion { polygon: Polygon::rectangle(x, 0.0, width, 10.0), text: String::new(), ignore }
    }

    fn found(x: f64, width: f64) -> Polygon {
        Polygon::rectangle(x, 0.0, width, 10.0)
    }

    #[test]
    fn matches_are_one_to_one_and_must_overlap_by_more_than_half() {
        let texts = [text(0.0, 20.0, false), text(100.0, 20.0, false), text(200.0, 20.0, false)];
        // Twice the first, the second by exactly a half (20 of 40), the third missed, one on nothing.
        let detections = [found(0.0, 19.0), found(1.0, 19.0), found(100.0, 40.0), found(300.0, 10.0)];
        let counts = compare(&texts, &detections);
        assert_eq!(counts, Counts { matched: 1, texts: 3, detections: 4 });
        let score = counts.score();
        assert_eq!((score.recall, score.precision), (1.0 / 3.0, 0.25));
        assert!((score.hmean - 2.0 / 7.0).abs() < 1e-12);
    }

    #[test]
    fn ignored_text_costs_nothing() {
        let texts = [text(0.0, 20.0, true), text(100.0, 20.0, false)];
        // 11 of 20 on ignored text: left out. 10 of 20: counts, and is wrong.
        let counts = compare(&texts, &[found(9.0, 20.0), found(10.0, 20.0), found(100.0, 20.0)]);
        assert_eq!(counts, Counts { matched: 1, texts: 1, detections: 2 });
    }

    #[test]
    fn nothing_on_either_side() {
        assert_eq!(compare(&[], &[]).score(), Score { recall: 0.0, precision: 0.0, hmean: 0.0 });
        assert_eq!(compare(&[], &[found(0.0, 5.0)]), Counts { matched: 0, texts: 0, detections: 1 });
        let crossed = Polygon::quad([(0.0, 0.0), (9.0, 9.0), (9.0, 0.0), (0.0, 9.0)].map(|(x, y)| Point::new(x, y)));
        let region = TextRegion { polygon: crossed.clone(), text: String::new(), ignore: false };
        assert_eq!(compare(&[region], &[crossed]), Counts::default());
    }

    #[test]
    fn counts_add_up_over_images() {
        let one = Counts { matched: 1, texts: 2, detections: 1 };
        let all: Counts = [one, one].into_iter().sum();
        assert_eq!(all.score(), Score { recall: 0.5, precision: 1.0, hmean: 2.0 / 3.0 });
    }
}

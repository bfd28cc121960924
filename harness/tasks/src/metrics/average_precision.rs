//! Average precision of boxes, as pycocotools computes it (`COCOeval`).

use zoo_datasets::detection::{BoundingBox, Object, Role};
use zoo_recipe::schema::{Metric, Score};

/// A detected box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoredBox {
    /// Its class.
    pub class: usize,
    /// Where it is, in pixels of the image.
    pub bounds: BoundingBox,
    /// Its score; more is more certain.
    pub score: f64,
}

/// The true and the detected boxes of an image.
#[derive(Clone, Copy, Debug)]
pub struct ImageBoxes<'a> {
    /// The ground truth.
    pub truth: &'a [Object],
    /// The prediction, in any order.
    pub found: &'a [ScoredBox],
}

/// Number of thresholds of the IoU.
const THRESHOLDS: usize = 10;

/// Number of recalls at which the precision is read.
const RECALLS: usize = 101;

/// Most detections of a class in an image; those with lower scores do not count.
const MOST: usize = 100;

/// Ranges of the area of objects: all, small, medium, large.
const AREAS: [[f64; 2]; 4] = [[0.0, 1e10], [0.0, 1024.0], [1024.0, 9216.0], [9216.0, 1e10]];

/// Entry `i` of NumPy's `linspace(start, stop, n)`.
fn linspace(start: f64, stop: f64, n: usize, i: usize) -> f64 {
    if i + 1 == n { stop } else { i as f64 * ((stop - start) / (n - 1) as f64) + start }
}

/// A detection, judged at each threshold.
#[derive(Clone, Copy, Debug)]
struct Judged {
    score: f64,
    /// Whether it found an object.
    right: [bool; THRESHOLDS],
    /// Whether it is neither right nor wrong.
    ignored: [bool; THRESHOLDS],
}

/// The detections of a class, and the number of objects that should be found.
#[derive(Clone, Debug, Default)]
struct Class {
    judged: Vec<Judged>,
    objects: usize,
}

/// Average precision and recall over all images so far. The order of images decides which of equal scores comes first;
/// pycocotools sorts images by their numbers.
#[derive(Clone, Debug)]
pub struct AveragePrecision {
    /// For each range of areas, the classes.
    areas: [Vec<Class>; AREAS.len()],
}

impl AveragePrecision {
    /// No images yet.
    pub fn new(classes: usize) -> Self {
        Self { areas: std::array::from_fn(|_| vec![Class::default(); classes]) }
    }

    /// Takes in an image. Boxes of classes that do not exist are left out.
    pub fn add(&mut self, &ImageBoxes { truth, found }: &ImageBoxes<'_>) {
        for class in 0..self.areas[0].len() {
            let truth: Vec<&Object> = truth.iter().filter(|object| object.class == class).collect();
            let mut found: Vec<&ScoredBox> = found.iter().filter(|one| one.class == class).collect();
            if truth.is_empty() && found.is_empty() {
                continue;
            }
            found.sort_by(|a, b| b.score.total_cmp(&a.score));
            found.truncate(MOST);
            let overlaps: Vec<Vec<f64>> =
                found.iter().map(|one| truth.iter().map(|object| overlap(&one.bounds, object)).collect()).collect();
            for (area, classes) in AREAS.iter().zip(&mut self.areas) {
                judge(&truth, &found, &overlaps, *area, &mut classes[class]);
            }
        }
    }

    /// The metrics, in display order, without those of areas that no object has.
    pub fn scores(&self) -> Vec<Score> {
        let precision = |area: usize| self.mean(area, 0..THRESHOLDS, precision);
        let all = [
            (Metric::Map, precision(0)),
            (Metric::Map50, self.mean(0, 0..1, self::precision)),
            (Metric::Map75, self.mean(0, 5..6, self::precision)),
            (Metric::MapSmall, precision(1)),
            (Metric::MapMedium, precision(2)),
            (Metric::MapLarge, precision(3)),
            (Metric::Mar100, self.mean(0, 0..THRESHOLDS, recall)),
        ];
        all.into_iter().filter_map(|(metric, value)| Some(Score { metric, value: value?, of: None })).collect()
    }

    /// The mean of a figure over thresholds and over the classes that have objects.
    fn mean(&self, area: usize, thresholds: std::ops::Range<usize>, figure: fn(&Class, usize) -> f64) -> Option<f64> {
        let classes = self.areas[area].iter().filter(|class| class.objects > 0);
        let sorted = classes.map(|class| {
            let mut class = class.clone();
            class.judged.sort_by(|a, b| b.score.total_cmp(&a.score));
            class
        });
        let of_class = |class: Class| thresholds.clone().map(|t| figure(&class, t)).sum::<f64>();
        let (sum, n) = sorted.fold((0.0, 0), |(sum, n), class| (sum + of_class(class), n + thresholds.len()));
        (n > 0).then(|| sum / n as f64)
    }
}

/// Overlap with a true box: over a crowd, the share of the detection inside it.
fn overlap(found: &BoundingBox, object: &Object) -> f64 {
    match object.role {
        Role::Crowd if found.area() > 0.0 => found.intersection(&object.bounds) / found.area(),
        Role::Crowd => 0.0,
        Role::Single | Role::Difficult => found.iou(&object.bounds),
    }
}

/// Judges the detections of a class in an image, the highest score first (`evaluateImg`). Each takes the object that it
/// overlaps most and that is not taken yet, and an ignored one only if there is no other.
fn judge(truth: &[&Object], found: &[&ScoredBox], overlaps: &[Vec<f64>], [least, most]: [f64; 2], class: &mut Class) {
    let outside = |area: f64| area < least || area > most;
    let ignored: Vec<bool> = truth.iter().map(|object| object.role != Role::Single || outside(object.area)).collect();
    let mut order: Vec<usize> = (0..truth.len()).collect();
    order.sort_by_key(|object| ignored[*object]);
    let neither = [false; THRESHOLDS];
    let start = class.judged.len();
    class.judged.extend(found.iter().map(|one| Judged { score: one.score, right: neither, ignored: neither }));
    class.objects += ignored.iter().filter(|ignored| !**ignored).count();
    for threshold in 0..THRESHOLDS {
        let least_overlap = linspace(0.5, 0.95, THRESHOLDS, threshold).min(1.0 - 1e-10);
        let mut taken = vec![false; truth.len()];
        for ((one, overlaps), judged) in found.iter().zip(overlaps).zip(&mut class.judged[start..]) {
            let mut best: Option<usize> = None;
            for &object in &order {
                if taken[object] && truth[object].role != Role::Crowd {
                    continue;
                }
                if best.is_some_and(|best| !ignored[best] && ignored[object]) {
                    break;
                }
                // The last one of equal overlaps.
                if overlaps[object] >= best.map_or(least_overlap, |best| overlaps[best]) {
                    best = Some(object);
                }
            }
            match best {
                Some(object) => {
                    taken[object] = true;
                    judged.right[threshold] = !ignored[object];
                    judged.ignored[threshold] = ignored[object];
                }
                None => judged.ignored[threshold] = outside(one.bounds.area()),
            }
        }
    }
}

/// Right and wrong detections down to each score.
fn counts(class: &Class, threshold: usize) -> impl Iterator<Item = (f64, f64)> {
    let counted = class.judged.iter().filter(move |judged| !judged.ignored[threshold]);
    counted.scan((0.0, 0.0), move |(right, wrong), judged| {
        let count = if judged.right[threshold] { &mut *right } else { &mut *wrong };
        *count += 1.0;
        Some((*right, *wrong))
    })
}

/// The mean over 101 recalls of the highest precision at that recall or a larger one (`accumulate`).
fn precision(class: &Class, threshold: usize) -> f64 {
    let (recalls, mut precisions): (Vec<f64>, Vec<f64>) = counts(class, threshold)
        .map(|(right, wrong)| (right / class.objects as f64, right / (wrong + right + f64::EPSILON)))
        .unzip();
    for i in (1..precisions.len()).rev() {
        precisions[i - 1] = precisions[i - 1].max(precisions[i]);
    }
    let at = |i: usize| {
        let place = recalls.partition_point(|recall| *recall < linspace(0.0, 1.0, RECALLS, i));
        precisions.get(place).copied().unwrap_or(0.0)
    };
    (0..RECALLS).map(at).sum::<f64>() / RECALLS as f64
}

/// Share of the objects that are found.
fn recall(class: &Class, threshold: usize) -> f64 {
    counts(class, threshold).last().map_or(0.0, |(right, _)| right / class.objects as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(x: f64, role: Role) -> Object {
        let bounds = BoundingBox { x, y: 0.0, width: 10.0, height: 10.0 };
        Object { class: 0, bounds, area: 100.0, role }
    }

    fn scored(x: f64, score: f64) -> ScoredBox {
        ScoredBox { class: 0, bounds: object(x, Role::Single).bounds, score }
    }

    fn map(truth: &[Object], found: &[ScoredBox]) -> f64 {
        let mut meter = AveragePrecision::new(1);
        meter.add(&ImageBoxes { truth, found });
        meter.scores()[0].value
    }

    #[test]
    fn by_hand() {
        let truth = [object(0.0, Role::Single), object(100.0, Role::Single)];
        assert_eq!(map(&truth, &[]), 0.0);
        assert!((map(&truth, &[scored(0.0, 0.9), scored(100.0, 0.8)]) - 1.0).abs() < 1e-9);
        // Half of the objects: precision 1 at the recalls 0 to 0.5, 51 of 101.
        assert!((map(&truth, &[scored(0.0, 0.9)]) - 51.0 / 101.0).abs() < 1e-9);
        // A wrong one before the right one: precision 1/2 there.
        let found = [scored(50.0, 0.95), scored(0.0, 0.9)];
        assert!((map(&truth, &found) - 0.5 * 51.0 / 101.0).abs() < 1e-9);
        // Twice the same object: the second one is wrong, after the first.
        let found = [scored(0.0, 0.95), scored(0.0, 0.9), scored(100.0, 0.8)];
        assert!((map(&truth, &found) - (51.0 + 50.0 * 2.0 / 3.0) / 101.0).abs() < 1e-9);
        // Shifted by 2 of 10 pixels, the IoU is 80/120: right at the thresholds 0.5, 0.55, 0.6 and 0.65.
        assert!((map(&truth[..1], &[scored(2.0, 0.9)]) - 0.4).abs() < 1e-9);
    }

    #[test]
    fn what_is_ignored_is_neither_right_nor_wrong() {
        let found = [scored(0.0, 0.9), scored(50.0, 0.95), scored(50.0, 0.85)];
        let with = |role| map(&[object(0.0, Role::Single), object(50.0, role)], &found);
        assert!((with(Role::Crowd) - 1.0).abs() < 1e-9);
        // The second detection of a difficult object is wrong, but comes after the right one.
        assert!((with(Role::Difficult) - 1.0).abs() < 1e-9);
        let meter = AveragePrecision::new(3);
        assert_eq!(meter.scores(), []);
        let mut only_small = AveragePrecision::new(3);
        only_small.add(&ImageBoxes { truth: &[object(0.0, Role::Single)], found: &[] });
        let metrics: Vec<Metric> = only_small.scores().iter().map(|score| score.metric).collect();
        assert_eq!(metrics, [Metric::Map, Metric::Map50, Metric::Map75, Metric::MapSmall, Metric::Mar100]);
    }
}

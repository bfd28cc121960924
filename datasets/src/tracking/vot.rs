//! Accuracy, robustness and expected average overlap by VOT's supervised protocol (Kristan et al., "The visual object
//! tracking VOT2016 challenge results"; numbers as in pysot's toolkit).

use super::TargetBox;
use crate::geometry::{Polygon, clip_to, iou};
use crate::image::Size;

/// The outcome of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    /// The tracker was (re)started here.
    Started,
    /// The tracker's region overlapped the truth by this much, more than 0.
    Tracked(f64),
    /// There was no overlap: a failure.
    Lost,
    /// Between a failure and the next start.
    Skipped,
}

/// A tracker's way through one sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct SequenceResult {
    /// The outcome of each frame.
    pub outcomes: Vec<Outcome>,
}

/// Frames from a failure to the next start.
const SKIP: usize = 5;

/// Frames after a start that do not count for accuracy.
const BURN_IN: usize = 10;

/// Runs a tracker over a sequence whose regions are `truth`, in frames of size `frame`. It is started on the first
/// frame and, five frames after each failure, again.
///
/// `track(number, start)` returns the tracker's region in a frame; with `start`, it is initialised there (and its
/// result is ignored).
///
/// # Errors
/// Those of `track`.
pub fn run_supervised<E>(
    truth: &[Polygon],
    frame: Size,
    mut track: impl FnMut(usize, Option<TargetBox>) -> Result<Polygon, E>,
) -> Result<SequenceResult, E> {
    let mut outcomes = Vec::with_capacity(truth.len());
    let mut start = 0;
    for (number, region) in truth.iter().enumerate() {
        outcomes.push(if number < start {
            Outcome::Skipped
        } else if number == start {
            track(number, Some(TargetBox::from_polygon(region)))?;
            Outcome::Started
        } else {
            match overlap(&track(number, None)?, region, frame) {
                overlap if overlap > 0.0 => Outcome::Tracked(overlap),
                _ => {
                    start = number + SKIP;
                    Outcome::Lost
                }
            }
        });
    }
    Ok(SequenceResult { outcomes })
}

/// Intersection over union of two regions inside a frame.
fn overlap(a: &Polygon, b: &Polygon, frame: Size) -> f64 {
    match (clip_to(a, frame), clip_to(b, frame)) {
        (Some(a), Some(b)) => iou(&a, &b),
        _ => 0.0,
    }
}

impl SequenceResult {
    /// Number of failures.
    pub fn failures(&self) -> usize {
        self.outcomes.iter().filter(|outcome| **outcome == Outcome::Lost).count()
    }

    /// Overlaps of tracked frames, without those of the first ten frames from each start on.
    fn settled(&self) -> impl Iterator<Item = f64> {
        let mut since = 0;
        self.outcomes.iter().filter_map(move |outcome| {
            since = if *outcome == Outcome::Started { 0 } else { since + 1 };
            match outcome {
                Outcome::Tracked(overlap) if since >= BURN_IN => Some(*overlap),
                Outcome::Tracked(_) | Outcome::Started | Outcome::Lost | Outcome::Skipped => None,
            }
        })
    }

    /// The part of the sequence from each start on.
    fn fragments(&self) -> Vec<Fragment> {
        let starts = self.outcomes.iter().enumerate().filter(|(_, outcome)| **outcome == Outcome::Started);
        starts.map(|(start, _)| self.fragment(start)).collect()
    }

    /// The part from a start to the failure or the end. After a failure, overlaps are 0: without end if the sequence is
    /// long enough for another start, otherwise to the end of the sequence (`_calculate_eao` of pysot's toolkit).
    fn fragment(&self, start: usize) -> Fragment {
        let mut overlaps = vec![1.0];
        for (number, outcome) in self.outcomes.iter().enumerate().skip(start + 1) {
            match outcome {
                Outcome::Tracked(overlap) => overlaps.push(*overlap),
                Outcome::Lost if number + SKIP <= self.outcomes.len() => {
                    return Fragment { overlaps, zeros_follow: true };
                }
                Outcome::Lost => overlaps.resize(self.outcomes.len() - start, 0.0),
                Outcome::Started | Outcome::Skipped => break,
            }
        }
        Fragment { overlaps, zeros_follow: false }
    }
}

/// A part of a sequence from a start of the tracker on.
#[derive(Debug, Clone, PartialEq)]
struct Fragment {
    /// The overlap in each frame.
    overlaps: Vec<f64>,
    /// Whether it is followed by zeros without end.
    zeros_follow: bool,
}

impl Fragment {
    /// Mean overlap in frames 2 to `length`; `None` if it is shorter.
    fn mean(&self, length: usize) -> Option<f64> {
        let within = &self.overlaps[1..self.overlaps.len().min(length)];
        let reaches = self.zeros_follow || self.overlaps.len() >= length;
        reaches.then(|| within.iter().sum::<f64>() / (length - 1) as f64)
    }
}

/// Least overlap in the last frame of a target that was kept.
const KEPT: f64 = 0.2;

/// True if a tracker that is started once never loses its target altogether and has it in the end: `overlaps`, one for
/// each frame after the first, are all above 0, and the last is 0.2 or more. Not a measure of VOT, but a summary for
/// short sequences.
pub fn kept_to_the_end(overlaps: &[f64]) -> bool {
    overlaps.iter().all(|&overlap| overlap > 0.0) && overlaps.last().is_some_and(|&last| last >= KEPT)
}

/// Mean overlap of all tracked frames that count; `None` if there are none.
pub fn accuracy(results: &[SequenceResult]) -> Option<f64> {
    let (sum, n) =
        results.iter().flat_map(SequenceResult::settled).fold((0.0, 0_usize), |(sum, n), o| (sum + o, n + 1));
    (n > 0).then(|| sum / n as f64)
}

/// Failures per 100 frames; 0 without frames.
pub fn robustness(results: &[SequenceResult]) -> f64 {
    let frames: usize = results.iter().map(|result| result.outcomes.len()).sum();
    let failures: usize = results.iter().map(SequenceResult::failures).sum();
    if frames == 0 { 0.0 } else { 100.0 * failures as f64 / frames as f64 }
}

/// The overlap to be expected on sequences of `lengths` frames (VOT2016: 108 to 371, VOT2017 and 2018: 100 to 356), the
/// mean over these lengths; `None` if no part of the results is long enough.
///
/// For a length n, all parts of the results that are long enough count with the mean of their overlaps in frames 2 to
/// n. A part that ends in a failure is continued by zeros and so long enough, unless the sequence was over before the
/// tracker could start again. All parts have the same weight, wherever they start in a sequence.
pub fn expected_average_overlap(results: &[SequenceResult], lengths: std::ops::RangeInclusive<usize>) -> Option<f64> {
    let fragments: Vec<Fragment> = results.iter().flat_map(SequenceResult::fragments).collect();
    let longest = results.iter().map(|result| result.outcomes.len()).max()?;
    let mean_at = |length: usize| {
        if length == 1 {
            return Some(1.0);
        }
        let means = fragments.iter().filter_map(|fragment| fragment.mean(length));
        let (sum, n) = means.fold((0.0, 0_usize), |(sum, n), mean| (sum + mean, n + 1));
        (n > 0).then(|| sum / n as f64)
    };
    let (low, high) = ((*lengths.start()).max(1), (*lengths.end()).min(longest));
    let (sum, n) = (low..=high).filter_map(mean_at).fold((0.0, 0_usize), |(sum, n), mean| (sum + mean, n + 1));
    (n > 0).then(|| sum / n as f64)
}

#[cfg(test)]
mod tests {
    use super::Outcome::{Lost, Skipped, Started, Tracked};
    use super::*;

    fn result(outcomes: &[Outcome]) -> SequenceResult {
        SequenceResult { outcomes: outcomes.to_vec() }
    }

    #[test]
    fn a_lost_tracker_starts_again_after_five_frames() {
        let truth: Vec<Polygon> = (0..12).map(|i| Polygon::rectangle(f64::from(i), 5.0, 10.0, 10.0)).collect();
        let mut starts = Vec::new();
        let result = run_supervised(&truth, Size::new(100, 100), |number, start| {
            starts.extend(start.map(|target| (number, target.centre.x)));
            // Half a box behind, and far away in frame 3.
            let x = if number == 3 { 60.0 } else { number as f64 - 5.0 };
            Ok::<_, ()>(Polygon::rectangle(x, 5.0, 10.0, 10.0))
        });
        let result = result.unwrap();
        assert_eq!(starts, [(0, 5.0), (8, 13.0)]);
        let kinds: String = result
            .outcomes
            .iter()
            .map(|outcome| match outcome {
                Started => 'S',
                Tracked(_) => 't',
                Lost => 'L',
                Skipped => '-',
            })
            .collect();
        assert_eq!((kinds.as_str(), result.failures()), ("SttL----Sttt", 1));
        let Tracked(overlap) = result.outcomes[11] else { panic!("tracked") };
        assert!((overlap - 1.0 / 3.0).abs() < 1e-6);
    }

    #[test]
    fn regions_count_inside_the_frame_only() {
        // Outside the frame one reaches further than the other: 5.5 of 10 columns are inside.
        let (a, b) = (Polygon::rectangle(-5.0, 0.0, 10.0, 10.0), Polygon::rectangle(-50.0, 0.0, 55.0, 10.0));
        assert!((overlap(&a, &b, Size::new(50, 50)) - 1.0).abs() < 1e-6);
        assert_eq!(overlap(&Polygon::rectangle(90.0, 0.0, 9.0, 9.0), &b, Size::new(50, 50)), 0.0);
    }

    #[test]
    fn accuracy_leaves_out_the_first_ten_frames() {
        let mut outcomes = vec![Started];
        outcomes.extend([Tracked(0.1); 9]);
        outcomes.extend([Tracked(0.6), Tracked(0.8), Lost]);
        assert!((accuracy(&[result(&outcomes)]).unwrap() - 0.7).abs() < 1e-12);
        assert_eq!(accuracy(&[result(&[Started, Tracked(0.5)])]), None);
        assert!((robustness(&[result(&outcomes), result(&[Started; 12])]) - 4.0).abs() < 1e-12);
        assert_eq!(robustness(&[]), 0.0);
    }

    #[test]
    fn a_kept_target_is_never_lost_and_there_in_the_end() {
        assert!(kept_to_the_end(&[0.9, 0.01, 0.2]));
        assert!(!kept_to_the_end(&[0.9, 0.0, 0.9]) && !kept_to_the_end(&[0.9, 0.19]) && !kept_to_the_end(&[]));
    }

    /// Two parts: one of four frames that ends well, one that fails in its third frame.
    #[test]
    fn expected_average_overlap_by_hand() {
        let results = [
            result(&[Started, Tracked(0.8), Tracked(0.6), Tracked(0.4)]),
            result(&[Started, Tracked(0.5), Lost, Skipped]),
        ];
        // Length 2: (0.8 + 0.5) / 2 = 0.65. 3: (0.7 + 0.25) / 2 = 0.475. 4: (0.6 + 0.5 / 3) / 2 = 0.38333.
        let at = |length: usize| expected_average_overlap(&results, length..=length).unwrap();
        for (length, expected) in [(1, 1.0), (2, 0.65), (3, 0.475), (4, 0.383_333_333)] {
            assert!((at(length) - expected).abs() < 1e-6, "{length}");
        }
        let all = expected_average_overlap(&results, 2..=100).unwrap();
        assert!((all - (0.65 + 0.475 + 0.383_333_333) / 3.0).abs() < 1e-6);
        assert_eq!(expected_average_overlap(&results, 5..=9), None);
        assert_eq!(expected_average_overlap(&[], 1..=9), None);
        // Frame 2 is lost and frame 6 is a new start: zeros follow the first part. The second part ends well and does
        // not count beyond its length. Length 3: (0 + 0.9) / 2 = 0.45. 8: 0.
        let restarted = [Started, Lost, Skipped, Skipped, Skipped, Skipped, Started, Tracked(0.9), Tracked(0.9)];
        let restarted = [result(&restarted)];
        assert_eq!(expected_average_overlap(&restarted, 3..=3), Some(0.45));
        assert_eq!(expected_average_overlap(&restarted, 8..=8), Some(0.0));
    }

    /// A failure five frames before the end, where a start has no frame left, and one after it. The second part ends
    /// with its sequence; `eao_benchmark.py` gives the same values.
    #[test]
    fn zeros_follow_a_failure_if_the_tracker_could_start_again() {
        let long = result(&[vec![Started], vec![Tracked(0.5); 8]].concat());
        let early = result(&[Started, Tracked(0.8), Lost, Skipped, Skipped, Skipped, Skipped]);
        let late = result(&[Started, Tracked(0.8), Lost, Skipped, Skipped, Skipped]);
        let at = |other: &SequenceResult, length: usize| {
            expected_average_overlap(&[long.clone(), other.clone()], length..=length).unwrap()
        };
        // Within both sequences: length 6 is (0.5 + 0.8 / 5) / 2 = 0.33.
        for other in [&early, &late] {
            assert!((at(other, 6) - 0.33).abs() < 1e-12);
        }
        // Beyond them: length 9 is (0.5 + 0.8 / 8) / 2 = 0.3 with zeros, 0.5 without the ended part.
        assert!((at(&early, 9) - 0.3).abs() < 1e-12);
        assert!((at(&late, 9) - 0.5).abs() < 1e-12);
    }
}

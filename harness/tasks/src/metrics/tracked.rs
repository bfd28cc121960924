//! Share of sequences in which the target is never lost.

use super::{Mean, Meter};
use zoo_datasets::tracking::kept_to_the_end;

/// The result of tracking a target through one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Track<'a> {
    /// Intersection over union of the predicted and the true box, for each frame after the first in which the target
    /// is known.
    pub overlaps: &'a [f64],
}

/// Share of the sequences in which the target is never lost completely and is still tracked in the end
/// ([`kept_to_the_end`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct TrackedToTheEnd(Mean);

impl Meter<Track<'_>> for TrackedToTheEnd {
    fn add(&mut self, track: &Track<'_>) {
        self.0.add(if kept_to_the_end(track.overlaps) { 1.0 } else { 0.0 });
    }

    fn value(&self) -> f64 {
        self.0.value()
    }

    fn of(&self) -> Option<u64> {
        Some(self.0.n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let mut meter = TrackedToTheEnd::default();
        for overlaps in [[0.9, 0.5], [0.0, 0.9], [0.9, 0.1], [0.1, 0.2]] {
            meter.add(&Track { overlaps: &overlaps });
        }
        assert_eq!((meter.value(), meter.of()), (0.5, Some(4)));
    }
}

//! Overlap of boxes in tracking.

use super::{Mean, Meter, Track};

/// Mean intersection over union of predicted and true box over all frames of all sequences, including those in which
/// the target is lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overlap(Mean);

impl Meter<Track<'_>> for Overlap {
    fn add(&mut self, track: &Track<'_>) {
        track.overlaps.iter().for_each(|overlap| self.0.add(*overlap));
    }

    fn value(&self) -> f64 {
        self.0.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_count_alike() {
        let mut meter = Overlap::default();
        meter.add(&Track { overlaps: &[1.0, 0.5, 0.0] });
        meter.add(&Track { overlaps: &[0.5] });
        assert_eq!(meter.value(), 0.5);
    }
}

//! Random flips.

use super::plan::Op;
use crate::Rng;

/// Left and right swapped with a probability (`torchvision.transforms.RandomHorizontalFlip`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HorizontalFlip {
    /// Probability of mirroring.
    pub probability: f64,
}

impl HorizontalFlip {
    pub(super) fn plan(self, rng: &mut Rng) -> Vec<Op> {
        if rng.chance(self.probability) { vec![Op::Mirror] } else { Vec::new() }
    }
}

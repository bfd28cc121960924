//! Random flips.

use super::plan::Op;
use crate::Rng;

/// Left and right swapped with a probability (`torchvision.transforms.RandomHorizontalFlip`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HorizontalFlip {
    /// Probability of mirroring.
    pub probability: f64,
    /// Whether the probability is that of the first epoch, and each further epoch mirrors the images that the previous
    /// one did not (arXiv 2404.00498, section 3.6).
    pub alternate: bool,
}

impl HorizontalFlip {
    pub(super) fn plan(self, rng: &mut Rng) -> Vec<Op> {
        let mirrored = match self.alternate {
            false => rng.chance(self.probability),
            true => rng.of_all_epochs().chance(self.probability) != (rng.epoch() % 2 == 1),
        };
        if mirrored { vec![Op::Mirror] } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_epoch_mirrors_the_rest() {
        let flip = HorizontalFlip { probability: 0.3, alternate: true };
        let mirrored = |epoch| -> Vec<bool> {
            (0..1000).map(|sample| !flip.plan(&mut Rng::new(5, epoch, sample)).is_empty()).collect()
        };
        let [first, second, third] = [mirrored(0), mirrored(1), mirrored(2)];
        assert!(first.iter().zip(&second).all(|(a, b)| a != b));
        assert_eq!(first, third);
        let share = first.iter().filter(|mirrored| **mirrored).count();
        assert!((260..340).contains(&share), "{share} of 1000 with a probability of 0.3");
    }
}

//! Random flips.

use zoo_settings::HorizontalFlip;

use super::plan::Op;
use super::{Transform, is_probability};
use crate::Rng;
use crate::image::Size;

impl Transform for HorizontalFlip {
    fn check(&self) -> Result<(), String> {
        is_probability(self.p)
    }

    fn plan(&self, _from: Size, rng: &mut Rng) -> Vec<Op> {
        let mirrored = match self.alternate {
            false => rng.chance(self.p),
            true => rng.of_all_epochs().chance(self.p) != (rng.epoch() % 2 == 1),
        };
        if mirrored { vec![Op::Mirror] } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_epoch_mirrors_the_rest() {
        let flip = HorizontalFlip { p: 0.3, alternate: true };
        let mirrored = |epoch| -> Vec<bool> {
            (0..1000).map(|sample| !flip.plan(Size::square(1), &mut Rng::new(5, epoch, sample)).is_empty()).collect()
        };
        let [first, second, third] = [mirrored(0), mirrored(1), mirrored(2)];
        assert!(first.iter().zip(&second).all(|(a, b)| a != b));
        assert_eq!(first, third);
        let share = first.iter().filter(|mirrored| **mirrored).count();
        assert!((260..340).contains(&share), "{share} of 1000 with a probability of 0.3");
    }
}

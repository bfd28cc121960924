//! Random brightness, contrast, saturation and hue.

use zoo_settings::ColorJitter;

use super::Transform;
use super::adjust::Adjust;
use super::plan::Op;
use crate::Rng;
use crate::image::Size;

/// Operations with a range of 0 are skipped.
impl Transform for ColorJitter {
    fn check(&self) -> Result<(), String> {
        let within = [self.brightness, self.contrast, self.saturation];
        if !within.iter().all(|within| *within >= 0.0 && within.is_finite()) {
            return Err("brightness, contrast and saturation must be at least 0".to_owned());
        }
        let sane = (0.0..=0.5).contains(&self.hue);
        if sane { Ok(()) } else { Err(format!("a hue of {} is not between 0 and 0.5", self.hue)) }
    }

    fn plan(&self, _from: Size, rng: &mut Rng) -> Vec<Op> {
        let &Self { brightness, contrast, saturation, hue } = self;
        let mut factor =
            |within: f64| (within > 0.0).then(|| rng.uniform((1.0 - within).max(0.0), 1.0 + within) as f32);
        let drawn = [
            factor(brightness).map(Adjust::Brightness),
            factor(contrast).map(Adjust::Contrast),
            factor(saturation).map(Adjust::Saturation),
            // Truncated and wrapped, as in torchvision's type conversion.
            (hue > 0.0).then(|| Adjust::Hue((rng.uniform(-hue, hue) * 255.0) as i32 as u8)),
        ];
        let mut ops: Vec<Op> = drawn.into_iter().flatten().map(Op::Adjust).collect();
        for left in (1..ops.len()).rev() {
            ops.swap(left, rng.below(left + 1));
        }
        ops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_stay_in_their_ranges_and_every_order_comes() {
        let jitter = ColorJitter { brightness: 0.4, contrast: 1.5, saturation: 0.0, hue: 0.1 };
        let mut orders = std::collections::HashSet::new();
        for sample in 0..500 {
            let ops = jitter.plan(Size::square(1), &mut Rng::new(1, 0, sample));
            let mut order = Vec::new();
            for op in &ops {
                match op {
                    Op::Adjust(Adjust::Brightness(factor)) if (0.6..=1.4).contains(factor) => order.push(0),
                    Op::Adjust(Adjust::Contrast(factor)) if (0.0..=2.5).contains(factor) => order.push(1),
                    Op::Adjust(Adjust::Hue(turn)) if *turn <= 25 || *turn >= 231 => order.push(2),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(order.len(), 3);
            orders.insert(order);
        }
        assert_eq!(orders.len(), 6);
        assert!(
            ColorJitter { brightness: 0.0, contrast: 0.0, ..jitter }
                .plan(Size::square(1), &mut Rng::new(0, 0, 0))
                .len()
                == 1
        );
    }
}

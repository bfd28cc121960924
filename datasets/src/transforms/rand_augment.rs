//! Random operations of one magnitude.

use zoo_settings::RandAugment;

use super::Transform;
use super::adjust::Adjust;
use super::plan::Op;
use crate::Rng;
use crate::image::Size;

/// Number of operations in the list.
pub(super) const OPERATIONS: usize = 14;

/// The list and ranges of `torchvision.transforms.RandAugment`. Geometric operations use the nearest pixel and leave
/// black borders.
impl Transform for RandAugment {
    fn check(&self) -> Result<(), String> {
        let &Self { operations: _, magnitude, bins } = self;
        let sane = bins >= 2 && magnitude < bins;
        if sane { Ok(()) } else { Err(format!("magnitude {magnitude} must be below bins {bins}, and bins at least 2")) }
    }

    fn plan(&self, from: Size, rng: &mut Rng) -> Vec<Op> {
        let (ranges, magnitude) = (ranges(from), [self.magnitude, self.bins]);
        (0..self.operations).filter_map(|_| ranges.operation(rng.below(OPERATIONS), magnitude, from, rng)).collect()
    }
}

fn ranges(from: Size) -> Ranges {
    let [width, height] = [from.width, from.height].map(|side| 150.0 / 331.0 * side as f64);
    Ranges { shear: 0.3, translation: [width, height], rotation: 30.0, factor: 0.9, bits: 4.0 }
}

/// Largest magnitudes of operations.
pub(super) struct Ranges {
    /// Pixels per pixel of the other axis.
    pub(super) shear: f64,
    /// Pixels to the right and downwards.
    pub(super) translation: [f64; 2],
    /// Degrees.
    pub(super) rotation: f64,
    /// Distance from 1 of the factors of brightness, saturation, contrast and sharpness.
    pub(super) factor: f64,
    /// Bits that `Posterize` removes.
    pub(super) bits: f32,
}

impl Ranges {
    /// An operation by its number in torchvision's list, with this magnitude of so many and a random sign; `None` for
    /// the identity.
    pub(super) fn operation(&self, number: usize, magnitude: [usize; 2], from: Size, rng: &mut Rng) -> Option<Op> {
        let &Self { translation: [right, down], factor, .. } = self;
        let mut signed = |most: f64| {
            let value = f64::from(evenly([0.0, most as f32], magnitude));
            if rng.chance(0.5) { -value } else { value }
        };
        let op = match number {
            1 => Op::Affine(shear(signed(self.shear), 0.0)),
            2 => Op::Affine(shear(0.0, signed(self.shear))),
            // Whole pixels, truncated.
            3 => Op::Affine([1.0, 0.0, -signed(right).trunc(), 0.0, 1.0, 0.0]),
            4 => Op::Affine([1.0, 0.0, 0.0, 0.0, 1.0, -signed(down).trunc()]),
            5 => Op::Affine(rotation(signed(self.rotation), from)),
            6 => Op::Adjust(Adjust::Brightness((1.0 + signed(factor)) as f32)),
            7 => Op::Adjust(Adjust::Saturation((1.0 + signed(factor)) as f32)),
            8 => Op::Adjust(Adjust::Contrast((1.0 + signed(factor)) as f32)),
            9 => Op::Adjust(Adjust::Sharpness((1.0 + signed(factor)) as f32)),
            10 => {
                let [index, bins] = magnitude.map(|number| number as f32);
                Op::Adjust(Adjust::Posterize(8 - (index / ((bins - 1.0) / self.bits)).round_ties_even() as u32))
            }
            11 => Op::Adjust(Adjust::Solarize(f64::from(evenly([255.0, 0.0], magnitude)))),
            12 => Op::Adjust(Adjust::AutoContrast),
            13 => Op::Adjust(Adjust::Equalize),
            _ => return None,
        };
        Some(op)
    }
}

/// One of `count` values from `first` to `last` at equal distances, as `torch.linspace` computes it.
fn evenly([first, last]: [f32; 2], [index, count]: [usize; 2]) -> f32 {
    let step = (last - first) / (count - 1) as f32;
    if index < count / 2 { first + step * index as f32 } else { last - step * (count - 1 - index) as f32 }
}

/// The inverse matrix of a shear about the corner: `torchvision.transforms.functional.affine`.
fn shear(x: f64, y: f64) -> [f64; 6] {
    [1.0, x, 0.0, y, 1.0, 0.0]
}

/// The inverse matrix of a counter-clockwise rotation about the centre, in degrees: Pillow's `Image.rotate`.
fn rotation(degrees: f64, from: Size) -> [f64; 6] {
    let angle = -degrees.to_radians();
    let (sin, cos) = (libm::sin(angle), libm::cos(angle));
    let (x, y) = (from.width as f64 / 2.0, from.height as f64 / 2.0);
    [cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::fnv1a64;
    use crate::transforms::adjust::tests::picture;
    use crate::transforms::plan::Plan;
    use std::collections::BTreeSet;

    /// FNV-1a hashes of the pixels of torchvision 0.29 for both signs, printed by `golden/export/augment.py`.
    const THEIRS: [&[u64]; OPERATIONS] = [
        &[0x9795_0010_a5df_3553],
        &[0x95ac_51ba_889c_f792, 0xf009_aae2_6967_b3f8],
        &[0xec01_f156_2e4f_20f0, 0x8534_347f_4146_646b],
        &[0xfdc1_5591_ee21_a54e, 0x6cc0_adc3_0780_5dd4],
        &[0x16d1_fcee_aed5_fac9, 0xa803_4544_5218_c7c4],
        &[0xd12c_ce64_42b9_f84e, 0x9076_cda7_6db0_7a9d],
        &[0xa773_b0d7_f9e6_2a42, 0xdc82_97d1_d867_e196],
        &[0x5853_6d49_9e0f_8b8c, 0xf907_621b_22f9_7928],
        &[0x4973_df8b_c6f8_d2f9, 0x8726_dcac_9ece_d0b9],
        &[0x55d7_e136_d240_a973, 0xf8b0_93d6_393b_acf5],
        &[0xbde4_0a6b_e4e9_d845],
        &[0x8741_72f7_80e6_9b21],
        &[0x7508_5b75_bae0_be41],
        &[0x3c34_4918_f94e_a70e],
    ];

    #[test]
    fn operations_are_torchvisions_to_the_bit() {
        let picture = picture();
        for (number, theirs) in THEIRS.iter().enumerate() {
            let ours = (0..20).map(|sample| {
                let op = ranges(picture.size()).operation(number, [9, 31], picture.size(), &mut Rng::new(0, 0, sample));
                let plan = Plan::new(picture.size(), op.as_slice(), None);
                fnv1a64(plan.run(picture.clone()).pixels())
            });
            assert_eq!(ours.collect::<BTreeSet<_>>(), theirs.iter().copied().collect(), "operation {number}");
        }
    }
}

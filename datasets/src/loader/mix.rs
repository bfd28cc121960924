//! Mixup and CutMix: each image of a batch is mixed with the one before it.

use super::Batch;
use crate::image::{Rect, Size};
use crate::{DataError, Rng};

/// Mixup (Zhang et al., arXiv 1710.09412) and CutMix (Yun et al., arXiv 1905.04899) of whole batches, as
/// `torchvision.transforms.v2.MixUp` and `CutMix` do it: image `i` is mixed with image `i - 1`, the first with the
/// last, all with the same share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mix {
    /// The share of an image under mixup is drawn from Beta(`mixup`, `mixup`); 0: no mixup.
    pub mixup: f64,
    /// The share under CutMix is drawn from Beta(`cutmix`, `cutmix`); 0: no CutMix. With both, each batch gets one of
    /// them with equal probability.
    pub cutmix: f64,
    /// Probability that a batch is mixed.
    pub probability: f64,
}

/// The second class of each image of a mixed batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Mixed {
    /// Classes of the images that were mixed in, one per image.
    pub labels: Vec<u32>,
    /// Share of [`Batch::labels`] in the label of each image; the class that was mixed in has the rest.
    pub shares: Vec<f32>,
}

/// How one batch is mixed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Draw {
    /// Not at all.
    Unmixed,
    /// The weighted sum of two images, of which the own image has this share.
    Blend(f64),
    /// This rectangle is taken from the other image.
    Paste(Rect),
}

impl Mix {
    /// # Errors
    /// Neither form, parameters below 0 or too large to draw from, or a probability outside [0, 1].
    pub(super) fn check(&self) -> Result<(), DataError> {
        let Self { mixup, cutmix, probability } = *self;
        let valid = |alpha: f64| alpha == 0.0 || (MIN_ALPHA..=MAX_ALPHA).contains(&alpha);
        if !valid(mixup) || !valid(cutmix) || mixup + cutmix == 0.0 || !(0.0..=1.0).contains(&probability) {
            let reason = format!("mixup {mixup} and cutmix {cutmix} with probability {probability}");
            return Err(DataError::Config(reason));
        }
        Ok(())
    }

    /// Mixes the images of a batch; `before` is the image before its first one, with its class.
    pub(super) fn run(&self, size: Size, rng: &mut Rng, batch: &mut Batch, (image, label): (&[f32], u32)) {
        let draw = self.draw(size, rng);
        let len = image.len();
        for i in (0..batch.n).rev() {
            let (earlier, own) = batch.images.split_at_mut(i * len);
            draw.run(size, &mut own[..len], if i == 0 { image } else { &earlier[(i - 1) * len..] });
        }
        let labels = std::iter::once(label).chain(batch.labels.iter().copied()).take(batch.n).collect();
        let shares = vec![draw.share(size) as f32; batch.n];
        batch.mixed = Some(Mixed { labels, shares });
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Draw {
        if !rng.chance(self.probability) {
            return Draw::Unmixed;
        }
        let cut = self.cutmix > 0.0 && (self.mixup == 0.0 || rng.chance(0.5));
        if !cut {
            return Draw::Blend(beta(self.mixup, rng));
        }
        let share = beta(self.cutmix, rng);
        let centre = [rng.below(size.width), rng.below(size.height)];
        Draw::Paste(rectangle(size, share, centre))
    }
}

impl Draw {
    /// The share of the own image.
    fn share(self, size: Size) -> f64 {
        match self {
            Self::Unmixed => 1.0,
            Self::Blend(share) => share,
            Self::Paste(rect) => 1.0 - rect.size().area() as f64 / size.area() as f64,
        }
    }

    /// Mixes the planes of an image with those of the one before it.
    fn run(self, size: Size, own: &mut [f32], other: &[f32]) {
        match self {
            Self::Unmixed => {}
            Self::Blend(share) => {
                let (share, rest) = (share as f32, (1.0 - share) as f32);
                own.iter_mut().zip(other).for_each(|(own, other)| *own = *own * share + *other * rest);
            }
            Self::Paste(rect) => {
                let planes = own.chunks_exact_mut(size.area()).zip(other.chunks_exact(size.area()));
                for (own, other) in planes {
                    for y in rect.y..rect.bottom() {
                        let row = y * size.width + rect.x..y * size.width + rect.right();
                        own[row.clone()].copy_from_slice(&other[row]);
                    }
                }
            }
        }
    }
}

/// The rectangle around `centre` (x, y) that has a share of 1 - `share` of the image, as far as it is inside
/// (`torchvision.transforms.v2.CutMix.make_params`).
fn rectangle(size: Size, share: f64, [x, y]: [usize; 2]) -> Rect {
    let half = 0.5 * (1.0 - share).sqrt();
    let [half_width, half_height] = [size.width, size.height].map(|side| (half * side as f64) as usize);
    let (left, top) = (x.saturating_sub(half_width), y.saturating_sub(half_height));
    let (right, bottom) = ((x + half_width).min(size.width), (y + half_height).min(size.height));
    Rect::new(left, top, right - left, bottom - top)
}

/// Below it almost all draws are 0 or 1.
pub(super) const MIN_ALPHA: f64 = 0.01;
/// Jöhnk's method accepts one draw in 70 at 4.
pub(super) const MAX_ALPHA: f64 = 4.0;

/// A number with the distribution Beta(`alpha`, `alpha`) (Jöhnk, "Erzeugung von betaverteilten und gammaverteilten
/// Zufallszahlen", Metrika 8, 1964).
fn beta(alpha: f64, rng: &mut Rng) -> f64 {
    loop {
        let [a, b] = [rng.unit(), rng.unit()].map(|u| libm::pow(u, 1.0 / alpha));
        // Both can be 0 by underflow.
        if a + b > 0.0 && a + b <= 1.0 {
            return a / (a + b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::fnv1a64;

    const SIZE: Size = Size::new(10, 8);

    /// Mean and variance of Beta(a, a) are 1/2 and 1/(4 (2 a + 1)).
    #[test]
    fn shares_have_the_moments_of_the_beta_distribution() {
        for alpha in [0.2, 1.0, 4.0] {
            let n = 40_000;
            let drawn: Vec<f64> = (0..n).map(|i| beta(alpha, &mut Rng::new(3, 0, i))).collect();
            let mean = drawn.iter().sum::<f64>() / n as f64;
            let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
            let expected = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            // Five standard errors of the mean.
            assert!((mean - 0.5).abs() < 5.0 * (expected / n as f64).sqrt(), "{alpha}: {mean}");
            assert!((variance / expected - 1.0).abs() < 0.03, "{alpha}: {variance}");
        }
    }

    /// The draws do not depend on the mathematical functions of the platform, which differ in last bits.
    #[test]
    fn shares_are_the_same_everywhere() {
        let draws = (0..2_000).flat_map(|i| beta(0.7, &mut Rng::new(5, 0, i)).to_le_bytes());
        assert_eq!(fnv1a64(&draws.collect::<Vec<_>>()), 0x3300_e9df_db70_8261);
    }

    /// `golden/export/augment.py`: torchvision's `MixUp` and `CutMix` on the same numbers, bit for bit.
    #[test]
    fn batches_are_mixed_as_in_torchvision() {
        let image = |i: usize| -> Vec<f32> {
            (0..3 * SIZE.area()).map(|k| ((i * 240 + k) * 37 % 256) as f32 / 64.0 - 2.0).collect()
        };
        let hash = |draw: Draw| {
            let mut own = image(1);
            draw.run(SIZE, &mut own, &image(0));
            fnv1a64(&own.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())
        };
        assert_eq!(hash(Draw::Blend(0.3)), 0xf7a7_92af_0b75_961b);
        for (share, centre, corners, pixels) in [
            (0.3, [4, 4], [0, 1, 8, 7], 0x5c48_50d4_6ad6_08df),
            (0.75, [9, 0], [7, 0, 10, 2], 0xb21f_2936_b1ec_4421),
            (0.999, [5, 5], [5, 5, 5, 5], 0x0a82_0052_fa23_e47d),
        ] {
            let rect = rectangle(SIZE, share, centre);
            assert_eq!([rect.x, rect.y, rect.right(), rect.bottom()], corners, "{share} {centre:?}");
            assert_eq!(hash(Draw::Paste(rect)), pixels);
        }
        assert_eq!(Draw::Paste(rectangle(SIZE, 0.75, [9, 0])).share(SIZE), 0.925);
    }
}

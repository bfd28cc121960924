//! Counter-based random numbers for augmentation and generated data.

use crate::hash::{GOLDEN_GAMMA, splitmix64};

/// Random numbers as a pure function of their purpose.
///
/// A stream is named by (seed, epoch, sample), so results do not depend on the number of threads, on the order in which
/// samples are processed, or on the position at which an interrupted epoch is resumed. The key chains splitmix64 over
/// the three words; draw `i` is `splitmix64(key + (i+1) * GOLDEN_GAMMA)`, as `h` in [`hash`](crate::hash). Only integer
/// and exactly rounded f64 operations are used, so streams agree between platforms.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
    seed: u64,
    epoch: u64,
    sample: u64,
}

impl Rng {
    /// The stream of `sample` in `epoch` under `seed`.
    pub const fn new(seed: u64, epoch: u64, sample: u64) -> Self {
        let mut key = 0;
        let words = [seed, epoch, sample];
        let mut i = 0;
        while i < words.len() {
            key = splitmix64(key ^ words[i]).wrapping_add(GOLDEN_GAMMA);
            i += 1;
        }
        Self { state: splitmix64(key), seed, epoch, sample }
    }

    /// The epoch of the stream.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// A stream of the sample that is the same in every epoch, and independent of those of the epochs.
    pub const fn of_all_epochs(&self) -> Self {
        Self::new(self.seed, u64::MAX, self.sample)
    }

    /// The next 64 random bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        splitmix64(self.state)
    }

    /// Uniform in [0, 1), a multiple of 2^-53.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in [low, high); `low` if the interval is empty.
    #[inline]
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// As [`uniform`](Self::uniform), between the ends of a range.
    #[inline]
    pub fn within(&mut self, [low, high]: [f64; 2]) -> f64 {
        self.uniform(low, high)
    }

    /// Uniform integer of a range, both ends included.
    pub fn count(&mut self, [low, high]: [usize; 2]) -> usize {
        low + self.below(high - low + 1)
    }

    /// Uniform integer in 0..n (0 for n = 0), without bias (Lemire, "Fast random integer generation in an
    /// interval", ACM TOMACS 29, 2019).
    #[inline]
    pub fn below(&mut self, n: usize) -> usize {
        let n = n as u64;
        loop {
            let product = u128::from(self.bits()) * u128::from(n);
            if product as u64 >= n.wrapping_neg().checked_rem(n).unwrap_or(0) {
                return (product >> 64) as usize;
            }
        }
    }

    /// True with probability `p`.
    #[inline]
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Approximately normal with mean 0 and deviation 1: the sum of the eight bytes of one draw, centred and scaled
    /// (Irwin-Hall; tails end at 4.9 deviations). Chosen over Box-Muller because it needs no library function.
    #[inline]
    pub fn normal(&mut self) -> f32 {
        // Sum of bytes: pairwise in 16-bit lanes, then across lanes by multiplication.
        let bits = self.bits();
        let pairs = (bits & 0x00FF_00FF_00FF_00FF) + ((bits >> 8) & 0x00FF_00FF_00FF_00FF);
        let sum = pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48;
        // Variance of a uniform byte: (256^2 - 1) / 12.
        const SCALE: f32 = 0.004_784_196;
        (sum as f32 - 1020.0) * SCALE
    }
}

/// The seeded order of `n` samples in `epoch`: a Fisher-Yates shuffle, independent of threads.
pub fn shuffled(n: usize, seed: u64, epoch: u64) -> Vec<usize> {
    // u64::MAX is not a sample's index, so the order shares no draws with any sample's augmentation.
    let mut rng = Rng::new(seed, epoch, u64::MAX);
    let mut order: Vec<usize> = (0..n).collect();
    for last in (1..n).rev() {
        order.swap(last, rng.below(last + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_depend_on_every_word() {
        let first = |seed, epoch, sample| Rng::new(seed, epoch, sample).bits();
        let all = [first(0, 0, 0), first(1, 0, 0), first(0, 1, 0), first(0, 0, 1), first(1, 1, 0), first(0, 1, 1)];
        for (i, a) in all.iter().enumerate() {
            assert!(!all[..i].contains(a));
        }
    }

    #[test]
    fn draws_have_their_distributions() {
        const DRAWS: usize = 100_000;
        let mut rng = Rng::new(4, 0, 0);
        let normal: Vec<f64> = (0..DRAWS).map(|_| f64::from(rng.normal())).collect();
        let mean = normal.iter().sum::<f64>() / DRAWS as f64;
        let variance = normal.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / DRAWS as f64;
        // Four standard errors: 1 / sqrt(n), and sqrt(2 / n).
        assert!(mean.abs() < 0.013 && (variance - 1.0).abs() < 0.018, "{mean} {variance}");
        let mut counts = [0_usize; 7];
        (0..DRAWS).for_each(|_| counts[rng.below(7)] += 1);
        assert!(counts.iter().all(|&n| n.abs_diff(DRAWS / 7) < 450), "{counts:?}");
        assert!((0..DRAWS).map(|_| rng.unit()).all(|x| (0.0..1.0).contains(&x)));
        assert_eq!(rng.below(0), 0);
    }
}

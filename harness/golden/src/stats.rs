//! Statistics over all elements of a tensor, in f64 for every element type.

use rayon::prelude::*;
use zoo_engine::{Isa, Loops};

/// Statistics over all elements of a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Mean.
    pub mean: f64,
    /// Standard deviation, divided by n.
    pub std: f64,
    /// Largest magnitude; NaN if any element is.
    pub absmax: f64,
    /// Euclidean norm.
    pub l2: f64,
}

/// Squares of numbers below this one lose digits, or are zero.
pub(crate) const SQUARED: f64 = 1e-140;
/// Elements per task. Sums are split by this number and never by the number of threads.
const CHUNK: usize = 1 << 15;
/// Parallel sums in a task, so that an addition does not wait for the previous one.
const LANES: usize = 8;

/// Sums over a part of the elements.
#[derive(Clone, Copy, Default)]
struct Sums {
    sum: f64,
    squares: f64,
    absmax: f64,
}

impl Stats {
    /// Statistics of `values` in f32 or f64. Deviations are summed around the mean of each part, and the deviation of
    /// that mean is added (Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance", 1983). So a
    /// deviation that is much smaller than the mean is accurate.
    pub fn of<T: Copy + Into<f64> + Sync>(values: &[T]) -> Self {
        let n = values.len() as f64;
        let isa = Isa::best();
        let part = |values: &[T]| {
            let sums = isa.run(InLanes { values, f: |x| x });
            let mean = sums.sum / values.len() as f64;
            let centred = isa.run(InLanes { values, f: |x| x - mean }).squares;
            (sums, mean, centred)
        };
        let parts: Vec<(Sums, f64, f64)> = values.par_chunks(CHUNK).map(part).collect();
        let mut total = parts.iter().fold(Sums::default(), |total, (sums, ..)| join(total, *sums));
        // Comparisons ignore NaN. The sum of squares is NaN exactly if an element is.
        if total.squares.is_nan() {
            total.absmax = f64::NAN;
        }
        if total.absmax > 0.0 && total.absmax < SQUARED {
            let scaled: Vec<f64> = values.iter().map(|x| (*x).into() / total.absmax).collect();
            let Self { mean, std, l2, .. } = Self::of(&scaled);
            let [mean, std, l2] = [mean, std, l2].map(|x| x * total.absmax);
            return Self { mean, std, absmax: total.absmax, l2 };
        }
        let mean = total.sum / n;
        let of_parts = values.chunks(CHUNK).zip(&parts);
        let centred =
            of_parts.map(|(values, (_, of_part, centred))| centred + values.len() as f64 * (of_part - mean).powi(2));
        let std = (centred.sum::<f64>() / n).sqrt();
        Self { mean, std, absmax: total.absmax, l2: total.squares.sqrt() }
    }
}

/// Sums of a function of the elements in a chunk.
struct InLanes<'a, T, F> {
    values: &'a [T],
    f: F,
}

impl<T: Copy + Into<f64>, F: Fn(f64) -> f64> Loops for InLanes<'_, T, F> {
    type Output = Sums;

    #[inline(always)]
    fn run(self) -> Sums {
        let mut lanes = Lanes::default();
        let (whole, rest) = self.values.as_chunks::<LANES>();
        for chunk in whole {
            lanes.add(chunk, &self.f);
        }
        lanes.add(rest, &self.f);
        let Lanes { sum, squares, absmax } = lanes;
        Sums {
            sum: sum.into_iter().fold(0.0, |all, sum| all + sum),
            squares: squares.into_iter().fold(0.0, |all, squares| all + squares),
            absmax: absmax.into_iter().fold(0.0, f64::max),
        }
    }
}

/// Parallel sums: one vector each.
#[derive(Default)]
struct Lanes {
    sum: [f64; LANES],
    squares: [f64; LANES],
    absmax: [f64; LANES],
}

impl Lanes {
    /// Adds a function of at most one value to each lane. Without `zip`, whose parts are calls where a crate has
    /// several codegen units.
    #[inline(always)]
    fn add<T: Copy + Into<f64>>(&mut self, values: &[T], f: &impl Fn(f64) -> f64) {
        let mut of = [0.0; LANES];
        for (lane, value) in values.iter().enumerate() {
            of[lane] = f((*value).into());
        }
        for (lane, x) in of.iter().enumerate() {
            self.sum[lane] += x;
        }
        for (lane, x) in of.iter().enumerate() {
            self.squares[lane] += x * x;
        }
        for (lane, x) in of.iter().enumerate() {
            self.absmax[lane] = if x.abs() > self.absmax[lane] { x.abs() } else { self.absmax[lane] };
        }
    }
}

fn join(a: Sums, b: Sums) -> Sums {
    Sums { sum: a.sum + b.sum, squares: a.squares + b.squares, absmax: a.absmax.max(b.absmax) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_numbers_by_hand() {
        let stats = Stats::of(&[1.0f32, -3.0, 5.0, 5.0]);
        assert_eq!(stats, Stats { mean: 2.0, std: (44.0f64 / 4.0).sqrt(), absmax: 5.0, l2: 60f64.sqrt() });
    }

    #[test]
    fn chunks_and_lanes_miss_no_element() {
        for n in [1, 7, 8, 9, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 13] {
            let stats = Stats::of(&(0..n).map(|i| i as f64).collect::<Vec<_>>());
            let last = (n - 1) as f64;
            assert_eq!(stats.mean, last / 2.0);
            assert_eq!(stats.absmax, last);
            let squares = last * (last + 1.0) * (2.0 * last + 1.0) / 6.0;
            assert!((stats.l2 * stats.l2 - squares).abs() <= 1e-12 * squares, "{n}");
        }
    }

    #[test]
    fn tiny_numbers_have_a_norm() {
        let stats = Stats::of(&[3e-200, -4e-200]);
        let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 1e-12;
        assert!(near(stats.l2, 5e-200) && near(stats.mean, -0.5e-200) && near(stats.std, 3.5e-200), "{stats:?}");
    }

    #[test]
    fn a_nan_anywhere_is_seen_and_an_infinity_stays_one() {
        for place in [0, 7, 8, 19, CHUNK + 3] {
            let mut values = vec![1.0f32; CHUNK + 20];
            values[place] = f32::NAN;
            let stats = Stats::of(&values);
            assert!([stats.mean, stats.std, stats.absmax, stats.l2].iter().all(|x| x.is_nan()), "{place}");
            values[place] = f32::NEG_INFINITY;
            assert_eq!(Stats::of(&values).absmax, f64::INFINITY);
        }
    }
}

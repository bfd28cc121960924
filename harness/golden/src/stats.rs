//! Statistics over all elements of a tensor, in f64 whatever the tensor's type.

use rayon::prelude::*;

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

/// Elements that are summed by one task. Sums are split by this and never by the number of threads.
const CHUNK: usize = 1 << 15;
/// Sums that run side by side in a task, so that an addition does not wait for the one before.
const LANES: usize = 8;

/// Sums of a part of the elements.
#[derive(Clone, Copy, Default)]
struct Sums {
    sum: f64,
    squares: f64,
    absmax: f64,
}

impl Stats {
    /// Statistics of `values`, of f32 or f64; in two passes, so that a deviation far smaller than the mean is exact.
    pub fn of<T: Copy + Into<f64> + Sync>(values: &[T]) -> Self {
        let n = values.len() as f64;
        let total = total(values, |x| x);
        let mean = total.sum / n;
        let centred = self::total(values, |x| x - mean).squares;
        Self { mean, std: (centred / n).sqrt(), absmax: total.absmax, l2: total.squares.sqrt() }
    }
}

/// Sums of a function of all elements.
fn total<T: Copy + Into<f64> + Sync>(values: &[T], f: impl Fn(f64) -> f64 + Sync) -> Sums {
    let parts: Vec<Sums> = values.par_chunks(CHUNK).map(|chunk| sums(chunk, &f)).collect();
    let mut total = parts.into_iter().fold(Sums::default(), join);
    // Comparisons pass over a NaN; the sum of squares does not, and nothing else makes it one.
    if total.squares.is_nan() {
        total.absmax = f64::NAN;
    }
    total
}

fn sums<T: Copy + Into<f64>>(values: &[T], f: &impl Fn(f64) -> f64) -> Sums {
    let add = |to: &mut Sums, value: &T| {
        let x = f((*value).into());
        to.sum += x;
        to.squares += x * x;
        to.absmax = if x.abs() > to.absmax { x.abs() } else { to.absmax };
    };
    let mut lanes = [Sums::default(); LANES];
    let whole = values.chunks_exact(LANES);
    let rest = whole.remainder();
    for chunk in whole {
        lanes.iter_mut().zip(chunk).for_each(|(lane, value)| add(lane, value));
    }
    lanes.iter_mut().zip(rest).for_each(|(lane, value)| add(lane, value));
    lanes.into_iter().fold(Sums::default(), join)
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

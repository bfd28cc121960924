//! Splitting of work such that results do not depend on the number of threads.
//!
//! Two rules make a kernel deterministic: how work is cut into pieces depends on the shape only, and results of
//! pieces are combined in the order of the pieces. Threads then only decide who computes a piece, and when.

use rayon::prelude::*;
use std::ops::Range;

/// `count` ranges that cut `0..len` into pieces whose lengths differ by one at most, longer ones first.
pub fn pieces(len: usize, count: usize) -> impl ExactSizeIterator<Item = Range<usize>> {
    (0..count).map(move |index| piece(len, count, index))
}

/// Piece `index` of `count` pieces of `0..len`.
#[must_use]
pub fn piece(len: usize, count: usize, index: usize) -> Range<usize> {
    let (base, longer) = (len / count, len % count);
    let start = index * base + index.min(longer);
    start..start + base + usize::from(index < longer)
}

/// Runs `task(0)`, ..., `task(count - 1)` on the current pool; returns their results in that order.
pub fn map<R: Send>(count: usize, task: impl Fn(usize) -> R + Sync + Send) -> Vec<R> {
    (0..count).into_par_iter().with_max_len(1).map(task).collect()
}

/// Runs `task(0)`, ..., `task(count - 1)` on the current pool.
pub fn for_each(count: usize, task: impl Fn(usize) + Sync + Send) {
    (0..count).into_par_iter().with_max_len(1).for_each(task);
}

/// Sum of `task(range)` over fixed pieces of about `piece_len` of `0..len`, added in the order of the pieces.
pub fn sum(len: usize, piece_len: usize, task: impl Fn(Range<usize>) -> f64 + Sync + Send) -> f64 {
    let count = len.div_ceil(piece_len.max(1));
    map(count, |index| task(piece(len, count, index))).into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_cover_without_overlap_and_are_even(len in 0usize..1000, count in 1usize..50) {
            let all: Vec<_> = pieces(len, count).collect();
            prop_assert_eq!(all.len(), count);
            prop_assert_eq!(all[0].start, 0);
            prop_assert_eq!(all[count - 1].end, len);
            for pair in all.windows(2) {
                prop_assert_eq!(pair[0].end, pair[1].start);
                prop_assert!(pair[0].len() == pair[1].len() || pair[0].len() == pair[1].len() + 1);
            }
        }
    }

    #[test]
    fn sum_has_the_same_bits_for_any_number_of_threads() {
        let data: Vec<f64> = (0..10_000).map(|i| 1.0 / (1.0 + i as f64)).collect();
        let [one, others @ ..] = [1, 2, 3, 4].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| sum(data.len(), 77, |r| data[r].iter().sum())).to_bits()
        });
        assert_eq!(others, [one; 3]);
    }
}

//! Memory for what travels, used again and again.

use std::sync::{Arc, Mutex, PoisonError};

/// Vectors that nobody needs at present.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool(Arc<Mutex<Vec<Vec<f32>>>>);

/// Values below which memory is not kept: the allocator keeps it as well.
const SMALL: usize = 1 << 14;

impl Pool {
    /// A vector with room for so many values; what it holds is left over.
    pub(crate) fn take(&self, len: usize) -> Vec<f32> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = kept.iter().enumerate().filter(|(_, vector)| len >= SMALL && vector.capacity() >= len);
        let least = fitting.min_by_key(|(_, vector)| vector.capacity()).map(|(n, _)| n);
        least.map_or_else(|| Vec::with_capacity(len), |n| kept.swap_remove(n))
    }

    /// Keeps a vector for later.
    pub(crate) fn give(&self, vector: Vec<f32>) {
        if vector.capacity() >= SMALL {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(vector);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_vector_that_fits_comes_back() {
        let pool = Pool::default();
        pool.give(vec![1.0; 4 * SMALL]);
        pool.give(vec![1.0; 2 * SMALL]);
        pool.give(vec![1.0; 3]);
        let vector = pool.take(2 * SMALL);
        assert!((2 * SMALL..4 * SMALL).contains(&vector.capacity()));
        assert!(pool.take(SMALL).capacity() >= 4 * SMALL);
        assert!(pool.take(SMALL).capacity() < 4 * SMALL, "none is left");
    }
}

//! Sums of products in f64, with the squares of partial sums: what a kernel in f32 rounds on its way.

use crate::{
    C0,
    simd::{Simd, vectorised},
};

/// Rows of a tile: its sums and squares fill three quarters of the registers of AVX-512.
pub const ROWS: usize = 6;

/// Of one row and [`C0`] columns: the sums, and the sums of the squares of their partial sums.
pub type Totals = [[f64; C0]; 2];

vectorised! {
    /// Adds a run of products to all rows of `totals`. `right` has a row of [`C0`] columns for each term, `left` the
    /// same terms of [`ROWS`] rows, tile by tile.
    ///
    /// Each run is summed from zero, and then added to the sums that are there. Of the partial sums of the run every
    /// `stride`-th is squared, and the last; what they are added up to counts `later` times.
    pub fn add_run(
        simd,
        left: &[[f64; ROWS]],
        right: &[[f64; C0]],
        stride: usize,
        later: f64,
        totals: &mut [Totals],
    ) -> () {
        for (left, totals) in left.chunks_exact(right.len().max(1)).zip(totals.chunks_exact_mut(ROWS)) {
            if simd.registers() < 32 {
                // Half of 16 registers hold the sums and squares of one row.
                (0..ROWS).for_each(|row| add_rows::<_, 1>(simd, row, left, right, stride, later, totals));
            } else {
                add_rows::<_, ROWS>(simd, 0, left, right, stride, later, totals);
            }
        }
    }
}

/// Adds a run to `R` rows of a tile at a time, from `first` on.
#[inline(always)]
fn add_rows<S: Simd, const R: usize>(
    simd: S,
    first: usize,
    left: &[[f64; ROWS]],
    right: &[[f64; C0]],
    stride: usize,
    later: f64,
    totals: &mut [Totals],
) {
    let (zero, later) = (simd.load_f64(&[0.0; C0]), simd.load_f64(&[later; C0]));
    let (mut sums, mut squares) = ([zero; R], [zero; R]);
    let stride = stride.max(1);
    for (left, right) in left.chunks(stride).zip(right.chunks(stride)) {
        for (left, right) in left.iter().zip(right) {
            let right = simd.load_f64(right);
            for row in 0..R {
                sums[row] = simd.mul_add_f64(simd.load_f64(&[left[first + row]; C0]), right, sums[row]);
            }
        }
        for row in 0..R {
            squares[row] = simd.mul_add_f64(sums[row], sums[row], squares[row]);
        }
    }
    for ((total, sum), square) in totals[first..first + R].iter_mut().zip(sums).zip(squares) {
        let sum = simd.add_f64(simd.load_f64(&total[0]), sum);
        let square = simd.add_f64(simd.load_f64(&total[1]), square);
        let weighted = simd.mul_add_f64(sum, later, zero);
        *total = [simd.array_f64(sum), simd.array_f64(simd.mul_add_f64(weighted, sum, square))];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    /// Three terms of each row: `r + 1` times `c`, then 1 times 2, then 1 times 5.
    #[test]
    fn partial_sums_are_squared_as_they_grow() {
        let left = [std::array::from_fn(|row| (row + 1) as f64), [1.0; ROWS], [1.0; ROWS]];
        let right = [std::array::from_fn(|column| column as f64), [2.0; C0], [5.0; C0]];
        let cases = Isa::available().into_iter().flat_map(|isa| [1, 2, 3, 16].map(|stride| (isa, stride)));
        for (isa, stride) in cases {
            let mut totals = vec![[[10.0; C0], [1000.0; C0]]; ROWS];
            add_run(isa, &left, &right, stride, 3.0, &mut totals);
            for (row, [sums, squares]) in totals.iter().enumerate() {
                for column in 0..C0 {
                    let first = ((row + 1) * column) as f64;
                    let partial = [first, first + 2.0, first + 7.0];
                    let squared = |n: &usize| (n + 1).is_multiple_of(stride) || n + 1 == partial.len();
                    let of_run: f64 = (0..3).filter(squared).map(|n| partial[n] * partial[n]).sum();
                    let sum = 10.0 + partial[2];
                    assert_eq!(sums[column], sum);
                    assert_eq!(squares[column], 1000.0 + of_run + 3.0 * sum * sum);
                }
            }
        }
    }
}

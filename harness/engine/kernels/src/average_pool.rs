//! Average pools of blocked tensors: sliding windows, adaptive ones, and the whole map.
//!
//! Sums are formed in f64 and rounded once. Source: `torch.nn.functional.avg_pool2d`, `adaptive_avg_pool2d`.

use crate::{
    Blocked, C0, Isa,
    planes::{expect_len, planes_per_task},
    simd::{Lanes, pixels, pixels_mut, vectorised},
    window::{Axis, PoolError, Window},
};
use rayon::prelude::*;
use std::{cell::Cell, ops::Range};

/// An average pool whose windows are known to be possible.
#[derive(Clone, Debug, PartialEq)]
pub struct AveragePool {
    input: Blocked,
    rows: Vec<Span>,
    columns: Vec<Span>,
}

/// One window along one axis.
#[derive(Clone, Debug, PartialEq)]
struct Span {
    /// The positions that it sees.
    inside: Range<usize>,
    /// One over the number of positions it counts.
    weight: f64,
}

impl Span {
    fn new(inside: Range<usize>, count: usize) -> Self {
        Self { inside, weight: 1.0 / count as f64 }
    }
}

impl AveragePool {
    /// Sliding windows; `count_include_pad` says whether zeros of the padding count as values.
    ///
    /// # Errors
    /// [`PoolError`] if an extent is zero, or a window is dilated, too large or holds nothing but padding.
    pub fn sliding(input: Blocked, window: Window, count_include_pad: bool) -> Result<Self, PoolError> {
        if window.dilation != [1, 1] {
            return Err(PoolError::Dilation);
        }
        let [rows, columns] = Axis::both(window, input)?.map(|axis| {
            (0..axis.windows)
                .map(|window| {
                    let (inside, counted) = axis.span(window);
                    let count = if count_include_pad { counted } else { inside.len() };
                    Span::new(inside, count)
                })
                .collect()
        });
        Ok(Self { input, rows, columns })
    }

    /// Windows for an output of `height` x `width`: window `i` of `o` over an extent `n` sees `i * n / o` to
    /// `ceil((i + 1) * n / o)`.
    ///
    /// # Errors
    /// [`PoolError::Zero`] if an extent is zero.
    pub fn adaptive(input: Blocked, [height, width]: [usize; 2]) -> Result<Self, PoolError> {
        if input.h.min(input.w) == 0 {
            return Err(PoolError::Zero("the map"));
        }
        if height.min(width) == 0 {
            return Err(PoolError::Zero("the output"));
        }
        let axis = |extent: usize, windows: usize| {
            (0..windows)
                .map(|i| {
                    let inside = i * extent / windows..((i + 1) * extent).div_ceil(windows);
                    let count = inside.len();
                    Span::new(inside, count)
                })
                .collect()
        };
        Ok(Self { input, rows: axis(input.h, height), columns: axis(input.w, width) })
    }

    /// Extent of the input.
    #[must_use]
    pub const fn input(&self) -> Blocked {
        self.input
    }

    /// Extent of the output.
    #[must_use]
    pub fn output(&self) -> Blocked {
        Blocked::new(self.input.n, self.input.c, self.rows.len(), self.columns.len())
    }
}

/// Mean of every window.
///
/// # Panics
/// If a length does not match the pool.
pub fn average_pool(isa: Isa, pool: &AveragePool, x: &[f32], y: &mut [f32]) {
    check(pool, x.len(), y.len());
    if y.is_empty() {
        return;
    }
    y.par_chunks_exact_mut(pool.output().plane_len())
        .with_min_len(planes_per_task(pool.input()))
        .zip(x.par_chunks_exact(pool.input().plane_len()))
        .for_each(|(y, x)| means(isa, pool, pixels(x), pixels_mut(y)));
}

/// Gradient of [`average_pool`].
///
/// # Panics
/// If a length does not match the pool.
pub fn average_pool_gradient(isa: Isa, pool: &AveragePool, dy: &[f32], dx: &mut [f32]) {
    check(pool, dx.len(), dy.len());
    if dy.is_empty() {
        return;
    }
    let seen = [seen_by(&pool.rows, pool.input().h), seen_by(&pool.columns, pool.input().w)];
    dx.par_chunks_exact_mut(pool.input().plane_len())
        .with_min_len(planes_per_task(pool.input()))
        .zip(dy.par_chunks_exact(pool.output().plane_len()))
        .for_each(|(dx, dy)| spread(isa, &seen, pool.output().w, pixels(dy), pixels_mut(dx)));
}

#[track_caller]
fn check(pool: &AveragePool, input: usize, output: usize) {
    expect_len("the input or its gradient", input, pool.input().len());
    expect_len("the output or its gradient", output, pool.output().len());
}

/// For every position the windows that see it, in order, each with its weight.
fn seen_by(spans: &[Span], extent: usize) -> Vec<Vec<(usize, f64)>> {
    let mut seen = vec![Vec::new(); extent];
    for (window, span) in spans.iter().enumerate() {
        for position in span.inside.clone() {
            seen[position].push((window, span.weight));
        }
    }
    seen
}

vectorised! {
    /// Means of the windows of a plane.
    fn means(simd, pool: &AveragePool, x: &[Lanes], y: &[Cell<Lanes>]) -> () {
        let zero = simd.load_f64(&[0.0; C0]);
        for (y, row) in y.chunks_exact(pool.columns.len()).zip(&pool.rows) {
            for (y, column) in y.iter().zip(&pool.columns) {
                let mut sum = zero;
                for i in row.inside.clone() {
                    for x in &x[i * pool.input.w..][column.inside.clone()] {
                        sum = simd.add_f64(sum, simd.widen(simd.load(x)));
                    }
                }
                let weight = simd.load_f64(&[row.weight * column.weight; C0]);
                simd.store(simd.narrow(simd.mul_add_f64(sum, weight, zero)), y);
            }
        }
    }
}

vectorised! {
    /// Input gradient of a plane: every pixel adds its share of the windows that see it, in their order.
    fn spread(simd, seen: &[Vec<Vec<(usize, f64)>>; 2], width: usize, dy: &[Lanes], dx: &[Cell<Lanes>]) -> () {
        let [rows, columns] = seen;
        let zero = simd.load_f64(&[0.0; C0]);
        for (dx, by_row) in dx.chunks_exact(columns.len()).zip(rows) {
            for (dx, by_column) in dx.iter().zip(columns) {
                let mut sum = zero;
                for (row, row_weight) in by_row {
                    for (column, column_weight) in by_column {
                        let dy = simd.widen(simd.load(&dy[row * width + column]));
                        sum = simd.mul_add_f64(dy, simd.load_f64(&[row_weight * column_weight; C0]), sum);
                    }
                }
                simd.store(simd.narrow(sum), dx);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{blocked, expect_blocked, same_bits_on_any_threads};

    /// Per output axis: which positions each window sees and what it divides by, written out from PyTorch's rule.
    type Rule<'a> = dyn Fn(usize, usize) -> (Range<usize>, usize) + 'a;

    fn reference(shape: Blocked, out: Blocked, rule: &Rule<'_>, x: &[f64], dy: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let mut y = Vec::new();
        let mut dx = vec![0.0; x.len()];
        for map in 0..shape.n * shape.c {
            for (row, column) in (0..out.h).flat_map(|r| (0..out.w).map(move |c| (r, c))) {
                let ((rows, row_count), (columns, column_count)) = (rule(0, row), rule(1, column));
                let count = (row_count * column_count) as f64;
                let share = dy[y.len()] / count;
                let mut sum = 0.0;
                for (h, w) in rows.flat_map(|h| columns.clone().map(move |w| (h, w))) {
                    let at = (map * shape.h + h) * shape.w + w;
                    sum += x[at];
                    dx[at] += share;
                }
                y.push(sum / count);
            }
        }
        (y, dx)
    }

    fn check_against(pool: &AveragePool, rule: &Rule<'_>) {
        let (shape, out) = (pool.input(), pool.output());
        let (x, exact_x) = blocked(shape, 1);
        let (dy, exact_dy) = blocked(out, 2);
        let (exact_y, exact_dx) = reference(shape, out, rule, &exact_x, &exact_dy);
        for isa in Isa::available() {
            let (mut y, mut dx) = (vec![f32::NAN; out.len()], vec![f32::NAN; shape.len()]);
            average_pool(isa, pool, &x, &mut y);
            average_pool_gradient(isa, pool, &dy, &mut dx);
            expect_blocked("y", out, &y, &exact_y, 1e-7);
            expect_blocked("dx", shape, &dx, &exact_dx, 1e-7);
        }
    }

    #[test]
    fn sliding_windows_are_pytorch_s() {
        let cases = [
            (Blocked::new(2, 20, 9, 11), Window { pad: [1; 4], ..Window::new([3, 3], [2, 2]) }),
            (Blocked::new(1, 16, 8, 8), Window::new([2, 2], [2, 2])),
            (Blocked::new(2, 3, 12, 6), Window { pad: [1; 4], ceil: true, ..Window::new([3, 3], [2, 2]) }),
            (Blocked::new(1, 33, 7, 6), Window { pad: [1, 0, 2, 1], ..Window::new([3, 4], [1, 3]) }),
        ];
        for (shape, window) in cases {
            for include in [true, false] {
                let pool = AveragePool::sliding(shape, window, include).unwrap();
                check_against(&pool, &|axis, i| {
                    let extent = [shape.h, shape.w][axis];
                    let (near, far) = (window.pad[2 * axis], window.pad[2 * axis + 1]);
                    let start = i * window.stride[axis];
                    let end = (start + window.kernel[axis]).min(extent + near + far);
                    let inside = start.saturating_sub(near)..end.saturating_sub(near).min(extent);
                    let count = if include { end - start } else { inside.len() };
                    (inside, count)
                });
            }
        }
    }

    #[test]
    fn adaptive_windows_are_pytorch_s() {
        for (shape, out) in [
            (Blocked::new(2, 20, 7, 7), [3, 3]),
            (Blocked::new(1, 5, 6, 6), [6, 6]),
            (Blocked::new(1, 17, 5, 4), [7, 3]),
            (Blocked::new(3, 33, 7, 5), [1, 1]),
        ] {
            let pool = AveragePool::adaptive(shape, out).unwrap();
            check_against(&pool, &|axis, i| {
                let (extent, out) = ([shape.h, shape.w][axis], out[axis]);
                let start = (i as f64 * extent as f64 / out as f64).floor() as usize;
                let end = ((i + 1) as f64 * extent as f64 / out as f64).ceil() as usize;
                (start..end, end - start)
            });
        }
    }

    /// More taps than 16 bits count, which only positions of maxima need.
    #[test]
    #[cfg_attr(miri, ignore = "large on purpose")]
    fn windows_of_any_size_have_a_mean() {
        let shape = Blocked::new(1, 3, 258, 257);
        let pool = AveragePool::sliding(shape, Window::new([257; 2], [1; 2]), true).unwrap();
        assert_eq!(pool.output(), Blocked::new(1, 3, 2, 1));
        check_against(&pool, &|_, i| (i..i + 257, 257));
    }

    #[test]
    fn impossible_pools_are_refused() {
        let input = Blocked::new(1, 1, 4, 4);
        let dilated = Window { dilation: [2, 1], ..Window::new([2, 2], [1, 1]) };
        assert_eq!(AveragePool::sliding(input, dilated, true), Err(PoolError::Dilation));
        assert_eq!(AveragePool::adaptive(input, [0, 1]), Err(PoolError::Zero("the output")));
        assert_eq!(AveragePool::adaptive(Blocked::new(1, 1, 0, 4), [1, 1]), Err(PoolError::Zero("the map")));
    }

    #[test]
    fn threads_do_not_matter() {
        let shape = Blocked::new(3, 37, 19, 21);
        let (x, _) = blocked(shape, 3);
        let pool = AveragePool::adaptive(shape, [5, 6]).unwrap();
        let (dy, _) = blocked(pool.output(), 4);
        same_bits_on_any_threads(|isa| {
            let (mut y, mut dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
            average_pool(isa, &pool, &x, &mut y);
            average_pool_gradient(isa, &pool, &dy, &mut dx);
            vec![y, dx]
        });
    }
}

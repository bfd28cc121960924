//! Maximum pool of blocked tensors.
//!
//! As in `torch.nn.functional.max_pool2d` padding never wins, NaN does, and the gradient of a window goes to its first
//! maximum in row-major order (to its last NaN if it has one).

use crate::{
    Blocked, C0, Isa,
    planes::{expect_len, planes_per_task},
    simd::{Lanes, Simd, pixels, pixels_mut, vectorised},
    window::{Axis, PoolError, Window},
};
use rayon::prelude::*;
use std::cell::Cell;

/// A maximum pool whose windows are known to be possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaxPool {
    input: Blocked,
    rows: Axis,
    columns: Axis,
    kernel: [usize; 2],
}

/// Most taps of a window whose maximum has a place in 16 bits, as the gradients need it.
pub const MOST_TAPS: usize = 1 << 16;

impl MaxPool {
    /// Checks the windows.
    ///
    /// # Errors
    /// [`PoolError`] if an extent is zero, or a window is too large or holds nothing but padding.
    pub fn new(input: Blocked, window: Window) -> Result<Self, PoolError> {
        let [rows, columns] = Axis::both(window, input)?;
        Ok(Self { input, rows, columns, kernel: window.kernel })
    }

    /// Extent of the input.
    #[must_use]
    pub const fn input(&self) -> Blocked {
        self.input
    }

    /// Extent of the output.
    #[must_use]
    pub const fn output(&self) -> Blocked {
        Blocked::new(self.input.n, self.input.c, self.rows.windows, self.columns.windows)
    }
}

/// Maximum of every window.
///
/// # Panics
/// If a length does not match the pool.
pub fn max_pool(isa: Isa, pool: &MaxPool, x: &[f32], y: &mut [f32]) {
    check(pool, x.len(), y.len());
    if y.is_empty() {
        return;
    }
    let (input, output) = (pool.input().plane_len(), pool.output().plane_len());
    y.par_chunks_exact_mut(output)
        .with_min_len(planes_per_task(pool.input()))
        .zip(x.par_chunks_exact(input))
        .for_each(|(y, x)| maxima(isa, pool, pixels(x), pixels_mut(y)));
}

/// Gradient of [`max_pool`], which looks for the maxima once more.
///
/// # Panics
/// If a length does not match the pool, or a window has more than [`MOST_TAPS`].
pub fn max_pool_gradient(isa: Isa, pool: &MaxPool, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    check(pool, dx.len(), dy.len());
    check_taps(pool);
    expect_len("the input", x.len(), dx.len());
    if dx.is_empty() {
        return;
    }
    let (input, output) = (pool.input().plane_len(), pool.output().plane_len());
    let seen = Seen::new(pool);
    dx.par_chunks_exact_mut(input)
        .with_min_len(planes_per_task(pool.input()))
        .zip(dy.par_chunks_exact(output).zip(x.par_chunks_exact(input)))
        .for_each_init(
            || vec![0; output],
            |taps, (dx, (dy, x))| {
                taps_of_maxima(isa, pool, pixels(x), taps.as_chunks_mut().0);
                gather(isa, pool, &seen, taps.as_chunks().0, pixels(dy), pixels_mut(dx));
            },
        );
}

#[track_caller]
fn check(pool: &MaxPool, input: usize, output: usize) {
    expect_len("the input or its gradient", input, pool.input().len());
    expect_len("the output or its gradient", output, pool.output().len());
}

#[track_caller]
fn check_taps(pool: &MaxPool) {
    let [height, width] = pool.kernel;
    assert!(height.saturating_mul(width) <= MOST_TAPS, "a window of {height} x {width} taps, at most {MOST_TAPS}");
}

/// For every row and column of the input the windows that see it.
struct Seen {
    rows: Vec<Vec<(usize, usize)>>,
    columns: Vec<Vec<(usize, usize)>>,
}

impl Seen {
    fn new(pool: &MaxPool) -> Self {
        Self { rows: pool.rows.seen_by(), columns: pool.columns.seen_by() }
    }
}

vectorised! {
    /// Maxima of the windows of a plane.
    fn maxima(simd, pool: &MaxPool, x: &[Lanes], y: &[Cell<Lanes>]) -> () {
        let MaxPool { rows, columns, .. } = *pool;
        for (row, y) in y.chunks_exact(columns.windows).enumerate() {
            for (column, y) in y.iter().enumerate() {
                let mut max = simd.splat(f32::NEG_INFINITY);
                for i in rows.taps(row) {
                    let start = rows.position(row, i) * columns.extent;
                    for j in columns.taps(column) {
                        let value = simd.load(&x[start + columns.position(column, j)]);
                        max = simd.select(wins(simd, value, max), value, max);
                    }
                }
                simd.store(max, y);
            }
        }
    }
}

vectorised! {
    /// Taps of the maxima of a plane: the number of each in its window, row-major, in the layout of the output.
    fn taps_of_maxima(simd, pool: &MaxPool, x: &[Lanes], taps: &mut [[u16; C0]]) -> () {
        let MaxPool { rows, columns, kernel: [_, kernel_width], .. } = *pool;
        for (row, taps) in taps.chunks_exact_mut(columns.windows).enumerate() {
            for (column, taps) in taps.iter_mut().enumerate() {
                let mut max = simd.splat(f32::NEG_INFINITY);
                // A window of nothing but minus infinity has its first element as maximum.
                let first = rows.taps(row).start * kernel_width + columns.taps(column).start;
                let mut tap = simd.splat_u32(first as u32);
                for i in rows.taps(row) {
                    let start = rows.position(row, i) * columns.extent;
                    for j in columns.taps(column) {
                        let value = simd.load(&x[start + columns.position(column, j)]);
                        let wins = wins(simd, value, max);
                        max = simd.select(wins, value, max);
                        tap = simd.select_u32(wins, simd.splat_u32((i * kernel_width + j) as u32), tap);
                    }
                }
                simd.store_u16(tap, taps);
            }
        }
    }
}

/// PyTorch's rule: greater, or NaN.
#[inline(always)]
fn wins<S: Simd>(simd: S, value: S::F32, max: S::F32) -> S::Mask {
    simd.or(simd.greater(value, max), simd.is_nan(value))
}

vectorised! {
    /// Input gradient of a plane: every pixel adds the gradients of the windows whose maximum it is, in their order.
    fn gather(simd, pool: &MaxPool, seen: &Seen, taps: &[[u16; C0]], dy: &[Lanes], dx: &[Cell<Lanes>]) -> () {
        let MaxPool { columns, kernel: [_, kernel_width], .. } = *pool;
        let zero = simd.splat(0.0);
        for (dx, by_row) in dx.chunks_exact(columns.extent).zip(&seen.rows) {
            for (dx, by_column) in dx.iter().zip(&seen.columns) {
                let mut sum = zero;
                for (row, i) in by_row {
                    for (column, j) in by_column {
                        let output = row * columns.windows + column;
                        let tap = simd.splat_u32((i * kernel_width + j) as u32);
                        let here = simd.equal_u32(simd.load_u16(&taps[output]), tap);
                        sum = simd.add(sum, simd.select(here, simd.load(&dy[output]), zero));
                    }
                }
                simd.store(sum, dx);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{blocked, expect_blocked, position, same_bits_on_any_threads};

    /// PyTorch's loops (`max_pool2d_with_indices`): output, and the input gradient of `dy`.
    fn reference(shape: Blocked, window: Window, out: Blocked, x: &[f64], dy: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let mut y = Vec::new();
        let mut dx = vec![0.0; x.len()];
        for map in 0..shape.n * shape.c {
            for (row, column) in (0..out.h).flat_map(|r| (0..out.w).map(move |c| (r, c))) {
                let (mut max, mut argmax) = (f64::NEG_INFINITY, None);
                for (i, j) in (0..window.kernel[0]).flat_map(|i| (0..window.kernel[1]).map(move |j| (i, j))) {
                    let h = (row * window.stride[0] + i * window.dilation[0]).wrapping_sub(window.pad[0]);
                    let w = (column * window.stride[1] + j * window.dilation[1]).wrapping_sub(window.pad[2]);
                    if h >= shape.h || w >= shape.w {
                        continue;
                    }
                    let at = (map * shape.h + h) * shape.w + w;
                    if argmax.is_none() || x[at] > max || x[at].is_nan() {
                        (max, argmax) = (x[at], Some(at));
                    }
                }
                dx[argmax.unwrap()] += dy[y.len()];
                y.push(max);
            }
        }
        (y, dx)
    }

    fn cases() -> Vec<(Blocked, Window)> {
        let w = |kernel, stride| Window::new(kernel, stride);
        vec![
            (Blocked::new(2, 20, 9, 11), Window { pad: [1; 4], ..w([3, 3], [2, 2]) }),
            (Blocked::new(1, 16, 8, 8), w([2, 2], [2, 2])),
            (Blocked::new(2, 3, 12, 13), Window { ceil: true, ..w([3, 3], [2, 2]) }),
            (Blocked::new(1, 33, 7, 6), Window { pad: [1, 0, 2, 1], ..w([3, 4], [1, 3]) }),
            (Blocked::new(1, 5, 9, 9), Window { pad: [1; 4], dilation: [2, 2], ..w([3, 2], [1, 2]) }),
            (Blocked::new(3, 17, 7, 7), w([7, 7], [1, 1])),
            (Blocked::new(1, 4, 5, 5), w([2, 2], [3, 3])),
        ]
    }

    /// The kernel's output and gradient.
    fn run(isa: Isa, pool: &MaxPool, x: &[f32], dy: &[f32]) -> Vec<Vec<f32>> {
        let (mut y, mut dx) = (vec![f32::NAN; dy.len()], vec![f32::NAN; x.len()]);
        max_pool(isa, pool, x, &mut y);
        max_pool_gradient(isa, pool, x, dy, &mut dx);
        vec![y, dx]
    }

    #[test]
    fn maxima_and_gradients_are_pytorch_s() {
        for (shape, window) in cases() {
            let pool = MaxPool::new(shape, window).unwrap();
            let out = pool.output();
            let (mut x, mut exact_x) = blocked(shape, 1);
            let (dy, exact_dy) = blocked(out, 2);
            for coarse in [false, true] {
                if coarse {
                    // Few distinct values: nearly every window has ties. Plus infinities and NaN.
                    for (i, exact) in exact_x.iter_mut().enumerate() {
                        *exact = match i % 97 {
                            13 => f64::NAN,
                            14..=16 => f64::NEG_INFINITY,
                            _ => exact.round(),
                        };
                        x[position(shape, i)] = *exact as f32;
                    }
                }
                let (y, dx) = reference(shape, window, out, &exact_x, &exact_dy);
                for isa in Isa::available() {
                    let found = run(isa, &pool, &x, &dy);
                    expect_blocked("y", out, &found[0], &y, 0.0);
                    expect_blocked("dx", shape, &found[1], &dx, 1e-6);
                }
            }
        }
    }

    /// Only the gradients count taps.
    #[test]
    #[cfg_attr(miri, ignore = "large on purpose")]
    fn windows_of_any_size_have_a_maximum() {
        let shape = Blocked::new(1, 3, 257, 258);
        let window = Window::new([257; 2], [1; 2]);
        let pool = MaxPool::new(shape, window).unwrap();
        let (x, exact_x) = blocked(shape, 1);
        let (exact_y, _) = reference(shape, window, pool.output(), &exact_x, &[0.0; 6]);
        for isa in Isa::available() {
            let mut y = vec![f32::NAN; pool.output().len()];
            max_pool(isa, &pool, &x, &mut y);
            expect_blocked("y", pool.output(), &y, &exact_y, 0.0);
        }
    }

    #[test]
    #[should_panic(expected = "a window of 257 x 257 taps, at most 65536")]
    fn a_tap_beyond_16_bits_is_refused() {
        let shape = Blocked::new(1, 1, 257, 257);
        let pool = MaxPool::new(shape, Window::new([257; 2], [1; 2])).unwrap();
        let mut dx = vec![0.0; shape.len()];
        max_pool_gradient(Isa::best(), &pool, &vec![0.0; shape.len()], &[0.0; C0], &mut dx);
    }

    #[test]
    fn a_tie_goes_to_the_first() {
        let shape = Blocked::new(1, 1, 2, 2);
        let pool = MaxPool::new(shape, Window::new([2, 2], [2, 2])).unwrap();
        let mut x = vec![0.0; shape.len()];
        for (i, value) in [1.0, 3.0, 3.0, 3.0].into_iter().enumerate() {
            x[position(shape, i)] = value;
        }
        let mut dy = vec![0.0; pool.output().len()];
        dy[0] = 5.0;
        for isa in Isa::available() {
            expect_blocked("dx", shape, &run(isa, &pool, &x, &dy)[1], &[0.0, 5.0, 0.0, 0.0], 0.0);
        }
    }

    #[test]
    fn threads_do_not_matter() {
        let shape = Blocked::new(3, 37, 19, 21);
        let pool = MaxPool::new(shape, Window { pad: [1; 4], ..Window::new([3, 3], [2, 2]) }).unwrap();
        let (x, _) = blocked(shape, 3);
        let (dy, _) = blocked(pool.output(), 4);
        same_bits_on_any_threads(|isa| run(isa, &pool, &x, &dy));
    }
}

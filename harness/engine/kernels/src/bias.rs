//! BiasAdd: one value added to every image and pixel of a channel, and its gradient, summed in f64.

use crate::{
    Blocked, C0, Isa,
    half::Rounding,
    parallel,
    planes::{expect_len, for_each_plane},
    simd::{Lanes, pixels, pixels_mut, vectorised},
};
use rayon::prelude::*;
use std::cell::Cell;

/// `y = x + bias[c]` for all of channel `c`; without `x` that is what lies in `y`. Lanes beyond the last channel stay
/// zero. `rounding` is how a simulated device holds `y`.
///
/// # Panics
/// If a length does not match the shape.
pub fn bias_add(isa: Isa, shape: Blocked, x: Option<&[f32]>, bias: &[f32], y: &mut [f32], rounding: Option<&Rounding>) {
    expect_len("the input", x.map_or(y.len(), <[f32]>::len), shape.len());
    expect_len("the output", y.len(), shape.len());
    expect_len("the bias", bias.len(), shape.c);
    for_each_plane(shape, y, |n, c1, plane| {
        let mut lanes = [0.0; C0];
        lanes[..shape.lanes(c1)].copy_from_slice(&bias[c1 * C0..][..shape.lanes(c1)]);
        if let Some(x) = x {
            plane.copy_from_slice(&x[shape.plane(n, c1)]);
        }
        add_to_plane(isa, &lanes, pixels_mut(plane));
        rounding.inspect(|rounding| rounding.part(plane));
    });
}

vectorised! {
    fn add_to_plane(simd, bias: &Lanes, plane: &[Cell<Lanes>]) -> () {
        let bias = simd.load(bias);
        for pixel in plane {
            simd.store(simd.add(simd.load(&pixel.get()), bias), pixel);
        }
    }
}

/// Sum of a blocked tensor over images and pixels, per channel.
///
/// # Panics
/// If a length does not match the shape.
pub fn bias_gradient(isa: Isa, shape: Blocked, dy: &[f32], dbias: &mut [f32]) {
    expect_len("the output gradient", dy.len(), shape.len());
    expect_len("the bias gradient", dbias.len(), shape.c);
    let c1 = shape.c1();
    let planes = parallel::map(shape.n * c1, |i| plane_sum(isa, pixels(&dy[shape.plane(i / c1, i % c1)])));
    for (c, dbias) in dbias.iter_mut().enumerate() {
        *dbias = (0..shape.n).map(|n| planes[n * c1 + c / C0][c % C0]).sum::<f64>() as f32;
    }
}

/// Columns that are summed together.
const COLUMNS: usize = 256;

/// Sum of the rows of a row-major matrix with as many columns as `dbias` has elements.
///
/// # Panics
/// If `dy` is not a whole number of rows.
pub fn bias_gradient_of_rows(isa: Isa, dy: &[f32], dbias: &mut [f32]) {
    let columns = dbias.len();
    assert!(columns > 0 && dy.len().is_multiple_of(columns), "rows of {columns} do not make {} elements", dy.len());
    dbias.par_chunks_mut(COLUMNS).enumerate().for_each(|(i, dbias)| {
        let mut sums = [0.0; COLUMNS];
        for row in dy.chunks_exact(columns) {
            add_row(isa, &row[i * COLUMNS..][..dbias.len()], &mut sums);
        }
        for (dbias, sum) in dbias.iter_mut().zip(sums) {
            *dbias = sum as f32;
        }
    });
}

vectorised! {
    fn plane_sum(simd, dy: &[Lanes]) -> [f64; C0] {
        let mut sum = simd.load_f64(&[0.0; C0]);
        for dy in dy {
            sum = simd.add_f64(sum, simd.widen(simd.load(dy)));
        }
        simd.array_f64(sum)
    }
}

vectorised! {
    fn add_row(_simd, row: &[f32], sums: &mut [f64; COLUMNS]) -> () {
        for (sum, value) in sums.iter_mut().zip(row) {
            *sum += f64::from(*value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{blocked, expect_close, filled, same_bits_on_any_threads};

    #[test]
    fn sums_over_images_and_pixels() {
        for shape in [Blocked::new(3, 33, 5, 7), Blocked::new(2, 3, 1, 1), Blocked::new(1, 16, 4, 4)] {
            let (dy, exact) = blocked(shape, 1);
            let mut expected = vec![0.0; shape.c];
            for (i, value) in exact.iter().enumerate() {
                expected[i / shape.pixels() % shape.c] += value;
            }
            for isa in Isa::available() {
                let mut dbias = vec![f32::NAN; shape.c];
                bias_gradient(isa, shape, &dy, &mut dbias);
                expect_close("dbias", &dbias, &expected, 1e-7);
            }
        }
    }

    #[test]
    fn adds_per_channel_and_leaves_the_filling_zero() {
        let shape = Blocked::new(2, 19, 3, 4);
        let (x, exact) = blocked(shape, 5);
        let bias = filled(shape.c, 6);
        let sum = |(i, x): (usize, &f64)| x + f64::from(bias[i / shape.pixels() % shape.c]);
        let expected: Vec<f64> = exact.iter().enumerate().map(sum).collect();
        for isa in Isa::available() {
            let mut y = x.clone();
            bias_add(isa, shape, None, &bias, &mut y, None);
            let mut apart = vec![f32::NAN; y.len()];
            bias_add(isa, shape, Some(&x), &bias, &mut apart, None);
            assert_eq!(apart, y);
            crate::testing::expect_blocked("sum", shape, &y, &expected, 1e-7);
        }
    }

    #[test]
    fn sums_over_rows() {
        for (rows, columns) in [(1, 5), (7, 1000), (33, 257), (0, 3)] {
            let dy = filled(rows * columns, 2);
            let mut expected = vec![0.0; columns];
            for (i, value) in dy.iter().enumerate() {
                expected[i % columns] += f64::from(*value);
            }
            for isa in Isa::available() {
                let mut dbias = vec![f32::NAN; columns];
                bias_gradient_of_rows(isa, &dy, &mut dbias);
                expect_close("dbias", &dbias, &expected, 1e-7);
            }
        }
    }

    #[test]
    fn threads_do_not_matter() {
        let shape = Blocked::new(5, 40, 30, 31);
        let (dy, _) = blocked(shape, 3);
        same_bits_on_any_threads(|isa| {
            let (mut dbias, mut columns) = (vec![0.0; shape.c], vec![0.0; 5 * 31]);
            bias_gradient(isa, shape, &dy, &mut dbias);
            bias_gradient_of_rows(isa, &dy, &mut columns);
            vec![dbias, columns]
        });
    }
}

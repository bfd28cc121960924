//! Whitening filters: `train.whiten`.

use candle_core::{Device, Tensor};
use zoo_graph::Graph;
use zoo_recipe::schema::Whiten;
use zoo_tasks::{Batch, Numbers};

use crate::TrainError;

/// The initial weight of the convolution, `[2n, channels, height, width]` for patches of n numbers, from batches with
/// at least [`Whiten::images`] images.
///
/// # Errors
/// Images that do not fit the convolution.
pub(crate) fn filters(
    whiten: &Whiten,
    graph: &Graph,
    batches: impl Iterator<Item = Result<Batch, zoo_datasets::DataError>>,
) -> Result<(String, Tensor), TrainError> {
    let weight = format!("{}.weight", whiten.module);
    let shape = graph.find_variable(&weight).map(|id| graph.ty(graph.variable(id).value).shape.to_vec());
    let image = graph.inputs.first().map(|input| graph.ty(input.value).shape.to_vec());
    let (Some(&[filters, channels, height, width]), Some(&[_, _, rows, columns])) =
        (shape.as_deref(), image.as_deref())
    else {
        return Err(TrainError::Mismatch(format!("`{}` is no convolution of images", whiten.module)));
    };
    if height > rows || width > columns {
        let message = format!("images of {rows}x{columns} have no patches of {height}x{width} for `train.whiten`");
        return Err(TrainError::Mismatch(message));
    }
    let patch = Patch { size: [channels, height, width], image: [rows, columns] };
    let mut moments = Moments::new(patch.size.iter().product());
    let mut left = whiten.images;
    for batch in batches {
        let Batch { n, fields } = batch?;
        let Some(Numbers::Real(pixels)) = fields.into_iter().next().map(|field| field.numbers) else { break };
        let len = (pixels.len() / n.max(1)).max(1);
        pixels.chunks_exact(len).take(left).for_each(|image| patch.add(image, &mut moments));
        left = left.saturating_sub(n);
        if left == 0 {
            break;
        }
    }
    let values = moments.whitening(whiten.eps);
    Ok((weight, Tensor::from_vec(values, vec![filters, channels, height, width], &Device::Cpu)?))
}

/// Patches of images.
struct Patch {
    /// Channels, rows, columns.
    size: [usize; 3],
    /// Rows and columns, at least those of a patch.
    image: [usize; 2],
}

impl Patch {
    /// Adds all patches of an image, `[channels, rows, columns]`, each with its numbers in the order of a filter.
    fn add(&self, image: &[f32], moments: &mut Moments) {
        let ([channels, height, width], [rows, columns]) = (self.size, self.image);
        let mut patch = vec![0.0; moments.n];
        for top in 0..=rows - height {
            for left in 0..=columns - width {
                let mut numbers = patch.iter_mut();
                for channel in 0..channels {
                    for row in top..top + height {
                        let from = (channel * rows + row) * columns + left;
                        for (pixel, number) in image[from..from + width].iter().zip(numbers.by_ref()) {
                            *number = f64::from(*pixel);
                        }
                    }
                }
                moments.add(&patch);
            }
        }
    }
}

/// Second moments of vectors of n numbers.
struct Moments {
    n: usize,
    sums: Vec<f64>,
    count: u64,
}

impl Moments {
    fn new(n: usize) -> Self {
        Self { n, sums: vec![0.0; n * n], count: 0 }
    }

    fn add(&mut self, vector: &[f64]) {
        for (row, a) in self.sums.chunks_exact_mut(self.n).zip(vector) {
            row.iter_mut().zip(vector).for_each(|(sum, b)| *sum += a * b);
        }
        self.count += 1;
    }

    /// The eigenvectors, each divided by sqrt(its eigenvalue + eps), by decreasing eigenvalues; then their opposites.
    fn whitening(&self, eps: f64) -> Vec<f32> {
        let moments = self.sums.iter().map(|sum| sum / self.count.max(1) as f64).collect();
        let (values, vectors) = eigen(moments, self.n);
        let mut order: Vec<usize> = (0..self.n).collect();
        order.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
        // The sign of an eigenvector is arbitrary: its largest element is positive.
        let scaled = order.into_iter().flat_map(|k| {
            let column: Vec<f64> = (0..self.n).map(|i| vectors[i * self.n + k]).collect();
            let largest = column.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(1.0);
            let factor = largest.signum() / (values[k].max(0.0) + eps).sqrt();
            column.into_iter().map(move |x| factor * x)
        });
        let half: Vec<f64> = scaled.collect();
        half.iter().copied().chain(half.iter().map(|x| -x)).map(|x| x as f32).collect()
    }
}

/// Eigenvalues of a symmetric matrix of n rows, and its eigenvectors as the columns of a matrix.
///
/// Source: the cyclic method of Jacobi (Golub and Van Loan, Matrix Computations, section 8.5). Patches have a few dozen
/// numbers at most, and this takes as many lines as the use of a library.
fn eigen(mut a: Vec<f64>, n: usize) -> (Vec<f64>, Vec<f64>) {
    const SWEEPS: usize = 60;
    let mut v: Vec<f64> = (0..n * n).map(|i| if i / n == i % n { 1.0 } else { 0.0 }).collect();
    for _ in 0..SWEEPS {
        let off: f64 = (0..n * n).filter(|i| i / n != i % n).map(|i| a[i] * a[i]).sum();
        let all: f64 = a.iter().map(|x| x * x).sum();
        if off <= 1e-30 * all {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                if a[p * n + q] == 0.0 {
                    continue;
                }
                let tau = (a[q * n + q] - a[p * n + p]) / (2.0 * a[p * n + q]);
                let t = tau.signum() / (tau.abs() + (1.0 + tau * tau).sqrt());
                let c = 1.0 / (1.0 + t * t).sqrt();
                let s = t * c;
                let turn = |x: &mut [f64], i: usize, j: usize| {
                    let (xi, xj) = (x[i], x[j]);
                    (x[i], x[j]) = (c * xi - s * xj, s * xi + c * xj);
                };
                (0..n).for_each(|k| turn(&mut a, k * n + p, k * n + q));
                (0..n).for_each(|k| turn(&mut a, p * n + k, q * n + k));
                (0..n).for_each(|k| turn(&mut v, k * n + p, k * n + q));
            }
        }
    }
    ((0..n).map(|i| a[i * n + i]).collect(), v)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A v = lambda v, and the vectors are orthonormal.
        #[test]
        fn eigenvectors(half in proptest::collection::vec(-3.0..3.0, 36)) {
            let n = 6;
            let a: Vec<f64> = (0..n * n).map(|i| half[i] + half[i % n * n + i / n]).collect();
            let (values, v) = eigen(a.clone(), n);
            for k in 0..n {
                for i in 0..n {
                    let product: f64 = (0..n).map(|j| a[i * n + j] * v[j * n + k]).sum();
                    prop_assert!((product - values[k] * v[i * n + k]).abs() < 1e-12);
                }
                for other in 0..n {
                    let dot: f64 = (0..n).map(|i| v[i * n + k] * v[i * n + other]).sum();
                    prop_assert!((dot - f64::from(u8::from(k == other))).abs() < 1e-12);
                }
            }
        }
    }

    /// Two images of two channels, patches of 1x2; the filters as `init_whitening_conv` of cifar10-airbench (legacy,
    /// commit 1b8f794) computes them in f64 with PyTorch 2.15.
    #[test]
    fn filters_are_those_of_airbench() {
        let patch = Patch { size: [2, 1, 2], image: [2, 3] };
        let mut moments = Moments::new(4);
        for image in 0..2 {
            let pixels: Vec<f32> =
                (0..12).map(|i| ((3 * i * i * i + 5 * image * i + 2) % 13) as f32 / 4.0 - 1.0).collect();
            patch.add(&pixels, &mut moments);
        }
        assert_eq!(moments.count, 8);
        let found = moments.whitening(0.01);
        for (found, expected) in found.iter().zip(EXPECTED) {
            assert!((f64::from(*found) - expected).abs() < 1e-6, "{found} instead of {expected}");
        }
        assert!(found[..16].iter().zip(&found[16..]).all(|(a, b)| *a == -b));
    }

    const EXPECTED: [f64; 16] = [
        0.230915854,
        0.385173052,
        0.307548536,
        0.316002498,
        -0.290621492,
        0.531085787,
        -0.456995749,
        0.009802296,
        1.166623175,
        0.116196421,
        -0.615344528,
        -0.395247535,
        0.110912851,
        -0.520854398,
        -0.650375264,
        1.186792842,
    ];
}

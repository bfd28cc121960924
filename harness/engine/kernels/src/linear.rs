//! Linear layers: `y = x W^T + b` and its gradients, row-major, with batches far smaller than the weights.
//!
//! Reading the weights (or writing their gradient) is what takes time, so each is touched once, in long stretches, and
//! never repacked as a whole. Sums run over at most [`DEPTH`] terms before they are added to the result, which keeps
//! rounding errors small; their order depends on the shape only.

use crate::aligned::AlignedBuf;
use crate::isa::Isa;
use crate::micro::product::{Left, Right, Sum, run, tile_rows};
use crate::parallel::pieces;
use crate::simd::Lanes;
use rayon::prelude::*;
use std::cell::RefCell;

/// Terms that are summed before the sum is added to the result.
const DEPTH: usize = 512;

/// Columns that a task of the input gradient works on: 2 KiB of a row of weights.
const COLUMNS: usize = 512;

/// Rows of weights that a task of the input gradient holds at a time.
const ROWS: usize = 64;

thread_local! {
    static SCRATCH: RefCell<AlignedBuf> = RefCell::default();
}

/// Extents of a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    /// Rows of x and y.
    pub batch: usize,
    /// Columns of x and of the weights.
    pub inputs: usize,
    /// Columns of y, rows of the weights.
    pub outputs: usize,
}

impl Linear {
    /// Elements of the workspace of [`forward`]: x, transposed and padded.
    #[must_use]
    pub const fn workspace_len(&self) -> usize {
        self.inputs * self.padded_batch()
    }

    const fn padded_batch(&self) -> usize {
        self.batch.next_multiple_of(LANES)
    }

    fn check(&self, x: usize, weights: usize, y: usize) {
        assert!(self.batch > 0 && self.inputs > 0 && self.outputs > 0, "empty linear layer");
        assert_eq!(x, self.batch * self.inputs, "input");
        assert_eq!(weights, self.outputs * self.inputs, "weights");
        assert_eq!(y, self.batch * self.outputs, "output");
    }
}

const LANES: usize = size_of::<Lanes>() / size_of::<f32>();

/// `y[n, o] = bias[o] + sum over i of x[n, i] * weights[o, i]`.
///
/// # Panics
/// If an extent is zero, or a slice has not the length that the extents or [`Linear::workspace_len`] call for.
pub fn forward(
    isa: Isa,
    layer: Linear,
    x: &[f32],
    weights: &[f32],
    bias: Option<&[f32]>,
    workspace: &mut [f32],
    y: &mut [f32],
) {
    layer.check(x.len(), weights.len(), y.len());
    assert_eq!(workspace.len(), layer.workspace_len(), "workspace");
    let Linear { batch, inputs, outputs } = layer;
    let padded = layer.padded_batch();
    workspace.par_chunks_mut(LANES * padded).enumerate().for_each(|(chunk, rows)| {
        for (input, row) in (chunk * LANES..).zip(rows.chunks_exact_mut(padded)) {
            for (n, value) in row.iter_mut().enumerate() {
                *value = if n < batch { x[n * inputs + input] } else { 0.0 };
            }
        }
    });
    let transposed = &*workspace;
    // A task computes some columns of y, transposed; its part of y is not contiguous, so it is returned.
    let rows_of_task = tile_rows(isa);
    let columns: Vec<Vec<f32>> = weights
        .par_chunks(rows_of_task * inputs)
        .with_max_len(1)
        .map(|weights| {
            let rows = weights.len() / inputs;
            let mut sums = vec![0.0; rows * padded];
            for terms in pieces(inputs, inputs.div_ceil(DEPTH)) {
                let left = Left { data: &weights[terms.start..], row_pitch: inputs, column_pitch: 1 };
                let right = Right { data: &transposed[terms.start * padded..], row_pitch: padded };
                let sum = Sum { data: &mut sums, row_pitch: padded, accumulate: terms.start > 0 };
                run(isa, left, right, sum, [rows, padded, terms.len()]);
            }
            sums
        })
        .collect();
    y.par_chunks_exact_mut(outputs).enumerate().for_each(|(n, row)| {
        for (row, sums) in row.chunks_mut(rows_of_task).zip(&columns) {
            for (value, sums) in row.iter_mut().zip(sums.chunks_exact(padded)) {
                *value = sums[n];
            }
        }
        if let Some(bias) = bias {
            for (value, bias) in row.iter_mut().zip(bias) {
                *value += bias;
            }
        }
    });
}

/// `dx[n, i] = sum over o of dy[n, o] * weights[o, i]`.
///
/// # Panics
/// If an extent is zero, or a slice has not the length that the extents call for.
pub fn input_gradient(isa: Isa, layer: Linear, dy: &[f32], weights: &[f32], dx: &mut [f32]) {
    layer.check(dx.len(), weights.len(), dy.len());
    let Linear { batch, inputs, outputs } = layer;
    let parts: Vec<Vec<f32>> = (0..inputs.div_ceil(COLUMNS))
        .into_par_iter()
        .with_max_len(1)
        .map(|chunk| {
            let columns = chunk * COLUMNS..((chunk + 1) * COLUMNS).min(inputs);
            let padded = columns.len().next_multiple_of(LANES);
            let mut sums = vec![0.0; batch * padded];
            SCRATCH.with_borrow_mut(|scratch| {
                scratch.grow(ROWS * COLUMNS);
                for terms in pieces(outputs, outputs.div_ceil(ROWS)) {
                    for (row, output) in scratch.chunks_exact_mut(padded).zip(terms.clone()) {
                        let (values, rest) = row.split_at_mut(columns.len());
                        values.copy_from_slice(&weights[output * inputs..][columns.clone()]);
                        rest.fill(0.0);
                    }
                    let left = Left { data: &dy[terms.start..], row_pitch: outputs, column_pitch: 1 };
                    let right = Right { data: scratch, row_pitch: padded };
                    let sum = Sum { data: &mut sums, row_pitch: padded, accumulate: terms.start > 0 };
                    run(isa, left, right, sum, [batch, padded, terms.len()]);
                }
            });
            sums
        })
        .collect();
    dx.par_chunks_exact_mut(inputs).enumerate().for_each(|(n, row)| {
        for (row, sums) in row.chunks_mut(COLUMNS).zip(&parts) {
            let padded = row.len().next_multiple_of(LANES);
            row.copy_from_slice(&sums[n * padded..][..row.len()]);
        }
    });
}

/// `dw[o, i] = sum over n of dy[n, o] * x[n, i]`. The bias gradient is the sum of dy over n.
///
/// # Panics
/// If an extent is zero, or a slice has not the length that the extents call for.
pub fn weight_gradient(isa: Isa, layer: Linear, dy: &[f32], x: &[f32], dw: &mut [f32]) {
    layer.check(x.len(), dw.len(), dy.len());
    let Linear { batch, inputs, outputs } = layer;
    let whole = inputs - inputs % LANES;
    let rows_of_task = tile_rows(isa);
    dw.par_chunks_mut(rows_of_task * inputs).with_max_len(1).enumerate().for_each(|(task, dw)| {
        let rows = dw.len() / inputs;
        let dy = &dy[task * rows_of_task..];
        for terms in pieces(batch, batch.div_ceil(DEPTH)) {
            let accumulate = terms.start > 0;
            if whole > 0 {
                let left = Left { data: &dy[terms.start * outputs..], row_pitch: 1, column_pitch: outputs };
                let right = Right { data: &x[terms.start * inputs..], row_pitch: inputs };
                let sum = Sum { data: dw, row_pitch: inputs, accumulate };
                run(isa, left, right, sum, [rows, whole, terms.len()]);
            }
            for (o, row) in dw.chunks_exact_mut(inputs).enumerate() {
                for (i, value) in row.iter_mut().enumerate().skip(whole) {
                    let products = terms.clone().map(|n| dy[n * outputs + o] * x[n * inputs + i]);
                    let sum: f32 = products.sum();
                    *value = if accumulate { *value + sum } else { sum };
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{filled, same_bits_on_any_threads};

    /// Batches below and above a vector, extents that are no multiple of anything, more terms than one sum takes.
    const CASES: [[usize; 3]; 7] =
        [[1, 1, 1], [3, 7, 5], [8, 64, 10], [17, 100, 33], [32, 1100, 62], [5, 530, 97], [600, 18, 15]];

    fn layer([batch, inputs, outputs]: [usize; 3]) -> Linear {
        Linear { batch, inputs, outputs }
    }

    fn run_all(isa: Isa, layer: Linear) -> [Vec<f32>; 3] {
        let Linear { batch, inputs, outputs } = layer;
        let [x, w, dy] = [batch * inputs, inputs * outputs, batch * outputs].map(|len| filled(len, len as u64));
        let bias = filled(outputs, 9);
        let [mut y, mut dx, mut dw] = [dy.len(), x.len(), w.len()].map(|len| vec![f32::NAN; len]);
        let mut workspace = vec![f32::NAN; layer.workspace_len()];
        forward(isa, layer, &x, &w, Some(&bias), &mut workspace, &mut y);
        input_gradient(isa, layer, &dy, &w, &mut dx);
        weight_gradient(isa, layer, &dy, &x, &mut dw);
        [y, dx, dw]
    }

    /// `|found - sum| <= 4 eps * (sum of the terms' magnitudes)`.
    fn expect(name: &str, found: &[f32], terms: impl Fn(usize) -> Vec<f64>) {
        for (i, &value) in found.iter().enumerate() {
            let terms = terms(i);
            let (sum, magnitude) = terms.iter().fold((0.0, 0.0), |(s, m), t| (s + t, m + t.abs()));
            let error = (f64::from(value) - sum).abs();
            assert!(error <= 4.0 * f64::from(f32::EPSILON) * magnitude, "{name}[{i}]: {value} instead of {sum}");
        }
    }

    #[test]
    fn products_match_sums_in_f64() {
        for case in CASES {
            let layer = layer(case);
            let Linear { batch, inputs, outputs } = layer;
            let [x, w, dy] = [batch * inputs, inputs * outputs, batch * outputs]
                .map(|len| filled(len, len as u64).into_iter().map(f64::from).collect::<Vec<_>>());
            let bias = filled(outputs, 9);
            for isa in Isa::available() {
                let [y, dx, dw] = run_all(isa, layer);
                expect("y", &y, |at| {
                    let (n, o) = (at / outputs, at % outputs);
                    let products = (0..inputs).map(|i| x[n * inputs + i] * w[o * inputs + i]);
                    products.chain([f64::from(bias[o])]).collect()
                });
                expect("dx", &dx, |at| {
                    let (n, i) = (at / inputs, at % inputs);
                    (0..outputs).map(|o| dy[n * outputs + o] * w[o * inputs + i]).collect()
                });
                expect("dw", &dw, |at| {
                    let (o, i) = (at / inputs, at % inputs);
                    (0..batch).map(|n| dy[n * outputs + o] * x[n * inputs + i]).collect()
                });
            }
        }
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        for case in CASES {
            same_bits_on_any_threads(|isa| run_all(isa, layer(case)).to_vec());
        }
    }
}

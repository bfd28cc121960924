//! Linear layers: `y = x W^T + b` and its gradients, row-major, with batches far smaller than the weights.
//!
//! Reading the weights (or writing their gradient) is what takes time, so each is touched once, in long stretches, and
//! never repacked as a whole. Sums run over at most `DEPTH` terms before they are added to the result, which keeps
//! rounding errors small; their order depends on the shape only.

use crate::aligned::AlignedBuf;
use crate::isa::Isa;
use crate::micro::product::{Left, MAX_TILE_ROWS, Right, Sum, run, tile_rows};
use crate::parallel::pieces;
use rayon::prelude::*;
use std::cell::RefCell;

/// Terms that are summed before the sum is added to the result.
const DEPTH: usize = 512;

/// Columns that a task of the input gradient works on: 2 KiB of a row of weights.
const COLUMNS: usize = 512;

/// Rows of weights that a task of the input gradient holds at a time.
const ROWS: usize = 64;

/// Columns that a task of the weight gradient works on at a time: those of a tile.
const PANEL: usize = 2 * LANES;

/// f32 lanes of a vector.
const LANES: usize = crate::C0;

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
    /// Elements of the workspace of each product, which holds a copy of its small operand.
    #[must_use]
    pub const fn workspace_len(&self) -> usize {
        let longer = if self.inputs > self.outputs { self.inputs } else { self.outputs };
        longer.next_multiple_of(PANEL) * self.padded_batch()
    }

    const fn padded_batch(&self) -> usize {
        self.batch.next_multiple_of(LANES)
    }

    fn check(&self, x: usize, weights: usize, y: usize, workspace: usize) {
        assert!(self.batch > 0 && self.inputs > 0 && self.outputs > 0, "empty linear layer");
        assert_eq!(x, self.batch * self.inputs, "input");
        assert_eq!(weights, self.outputs * self.inputs, "weights");
        assert_eq!(y, self.batch * self.outputs, "output");
        assert_eq!(workspace, self.workspace_len(), "workspace");
    }
}

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
    layer.check(x.len(), weights.len(), y.len(), workspace.len());
    let Linear { batch, inputs, outputs } = layer;
    let padded = layer.padded_batch();
    let transposed = transpose(x, [batch, inputs], padded, workspace);
    // A task computes some columns of y. They are no contiguous part of it, so the task returns them.
    let rows_of_task = tile_rows(isa);
    let columns: Vec<Vec<f32>> = weights
        .par_chunks(rows_of_task * inputs)
        .with_max_len(1)
        .map(|weights| {
            let mut sums = vec![0.0; weights.len() / inputs * padded];
            SCRATCH.with_borrow_mut(|scratch| {
                for terms in pieces(inputs, inputs.div_ceil(DEPTH)) {
                    let rows = weights.chunks_exact(inputs).map(|row| &row[terms.clone()]);
                    let (copy, extent) = copy_rows(rows, terms.len(), scratch);
                    let left = Left::Strided { data: copy, row_pitch: extent[1], column_pitch: 1 };
                    let right = Right { data: &transposed[terms.start * padded..], row_pitch: padded };
                    let sum = Sum { data: &mut sums, row_pitch: padded, accumulate: terms.start > 0 };
                    run(isa, left, right, sum, [extent[0], padded, terms.len()]);
                }
            });
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
/// If an extent is zero, or a slice has not the length that the extents or [`Linear::workspace_len`] call for.
pub fn input_gradient(isa: Isa, layer: Linear, dy: &[f32], weights: &[f32], workspace: &mut [f32], dx: &mut [f32]) {
    layer.check(dx.len(), weights.len(), dy.len(), workspace.len());
    let Linear { batch, inputs, outputs } = layer;
    let transposed = transpose(dy, [batch, outputs], batch, workspace);
    let parts: Vec<Vec<f32>> = (0..inputs.div_ceil(COLUMNS))
        .into_par_iter()
        .with_max_len(1)
        .map(|chunk| {
            let columns = chunk * COLUMNS..((chunk + 1) * COLUMNS).min(inputs);
            let padded = columns.len().next_multiple_of(LANES);
            let mut sums = vec![0.0; batch * padded];
            SCRATCH.with_borrow_mut(|scratch| {
                for terms in pieces(outputs, outputs.div_ceil(ROWS)) {
                    let rows = terms.clone().map(|output| &weights[output * inputs..][columns.clone()]);
                    let (copy, extent) = copy_rows(rows, columns.len(), scratch);
                    let left =
                        Left::Strided { data: &transposed[terms.start * batch..], row_pitch: 1, column_pitch: batch };
                    let right = Right { data: copy, row_pitch: extent[1] };
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
/// If an extent is zero, or a slice has not the length that the extents or [`Linear::workspace_len`] call for.
pub fn weight_gradient(isa: Isa, layer: Linear, dy: &[f32], x: &[f32], workspace: &mut [f32], dw: &mut [f32]) {
    layer.check(x.len(), dw.len(), dy.len(), workspace.len());
    let Linear { batch, inputs, outputs } = layer;
    // Panels of some columns of x, each in one piece.
    let panels = &mut workspace[..inputs.next_multiple_of(PANEL) * batch];
    panels.par_chunks_exact_mut(PANEL * batch).enumerate().for_each(|(panel, rows)| {
        let columns = panel * PANEL..((panel + 1) * PANEL).min(inputs);
        for (n, row) in rows.chunks_exact_mut(PANEL).enumerate() {
            let (values, rest) = row.split_at_mut(columns.len());
            values.copy_from_slice(&x[n * inputs..][columns.clone()]);
            rest.fill(0.0);
        }
    });
    let panels = &*panels;
    let rows_of_task = tile_rows(isa);
    dw.par_chunks_mut(rows_of_task * inputs).with_max_len(1).enumerate().for_each(|(task, dw)| {
        let rows = dw.len() / inputs;
        let dy = &dy[task * rows_of_task..];
        let mut last = [0.0; MAX_TILE_ROWS * PANEL];
        for (panel, right) in panels.chunks_exact(PANEL * batch).enumerate() {
            let width = (inputs - panel * PANEL).min(PANEL);
            let (to, row_pitch) =
                if width == PANEL { (&mut dw[panel * PANEL..], inputs) } else { (&mut last[..], PANEL) };
            for terms in pieces(batch, batch.div_ceil(DEPTH)) {
                let left = Left::Strided { data: &dy[terms.start * outputs..], row_pitch: 1, column_pitch: outputs };
                let right = Right { data: &right[terms.start * PANEL..], row_pitch: PANEL };
                let sum = Sum { data: &mut *to, row_pitch, accumulate: terms.start > 0 };
                run(isa, left, right, sum, [rows, PANEL, terms.len()]);
            }
            if width < PANEL {
                for (row, values) in dw.chunks_exact_mut(inputs).zip(last.chunks_exact(PANEL)) {
                    row[panel * PANEL..].copy_from_slice(&values[..width]);
                }
            }
        }
    });
}

/// The transpose of a `[rows, columns]` matrix, with rows of `pitch` elements, zero beyond the matrix.
fn transpose<'w>(matrix: &[f32], [rows, columns]: [usize; 2], pitch: usize, workspace: &'w mut [f32]) -> &'w [f32] {
    let transposed = &mut workspace[..columns * pitch];
    transposed.par_chunks_mut(LANES * pitch).enumerate().for_each(|(chunk, out)| {
        for (column, out) in (chunk * LANES..).zip(out.chunks_exact_mut(pitch)) {
            for (row, value) in out.iter_mut().enumerate() {
                *value = if row < rows { matrix[row * columns + column] } else { 0.0 };
            }
        }
    });
    transposed
}

/// Copies rows to scratch memory; returns the copy, the number of rows and their distance there. Rows of a large matrix
/// often lie a multiple of 4 KiB apart, where they would push each other out of the first-level cache.
fn copy_rows<'r, 's>(
    rows: impl Iterator<Item = &'r [f32]>,
    len: usize,
    scratch: &'s mut AlignedBuf,
) -> (&'s [f32], [usize; 2]) {
    let pitch = len.next_multiple_of(PANEL) + LANES;
    let mut count = 0;
    for row in rows {
        scratch.grow((count + 1) * pitch);
        let (values, rest) = scratch[count * pitch..][..pitch].split_at_mut(len);
        values.copy_from_slice(row);
        rest.fill(0.0);
        count += 1;
    }
    (&scratch[..count * pitch], [count, pitch])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{affordable, filled, same_bits_on_any_threads};

    /// Batches below and above a vector, extents that are no multiple of anything, more terms than one sum takes.
    const CASES: [[usize; 3]; 7] =
        [[1, 1, 1], [3, 7, 5], [8, 64, 10], [17, 100, 33], [32, 1100, 62], [5, 530, 97], [600, 18, 15]];

    fn layers() -> impl Iterator<Item = Linear> {
        let cases = CASES.into_iter().filter(|[batch, inputs, outputs]| affordable(batch * inputs * outputs));
        cases.map(|[batch, inputs, outputs]| Linear { batch, inputs, outputs })
    }

    fn run_all(isa: Isa, layer: Linear) -> [Vec<f32>; 3] {
        let Linear { batch, inputs, outputs } = layer;
        let [x, w, dy] = [batch * inputs, inputs * outputs, batch * outputs].map(|len| filled(len, len as u64));
        let bias = filled(outputs, 9);
        let [mut y, mut dx, mut dw] = [dy.len(), x.len(), w.len()].map(|len| vec![f32::NAN; len]);
        let mut workspace = vec![f32::NAN; layer.workspace_len()];
        forward(isa, layer, &x, &w, Some(&bias), &mut workspace, &mut y);
        workspace.fill(f32::NAN);
        input_gradient(isa, layer, &dy, &w, &mut workspace, &mut dx);
        workspace.fill(f32::NAN);
        weight_gradient(isa, layer, &dy, &x, &mut workspace, &mut dw);
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
        for layer in layers() {
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
        for layer in layers() {
            same_bits_on_any_threads(|isa| run_all(isa, layer).to_vec());
        }
    }
}

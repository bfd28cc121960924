//! Constants of the translation: shapes and averaging matrices.

use crate::message::{Element, Tensor};
use zoo_graph::ops::adaptive_range;

/// A tensor of real numbers.
pub(crate) fn floats(name: String, shape: &[usize], values: &[f32]) -> Tensor {
    let raw_data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let dims = shape.iter().map(|extent| *extent as i64).collect();
    Tensor { dims, data_type: Element::F32 as i32, name, raw_data }
}

/// A tensor of integers in one dimension.
pub(crate) fn integers(name: String, values: &[i64]) -> Tensor {
    let raw_data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Tensor { dims: vec![values.len() as i64], data_type: Element::I64 as i32, name, raw_data }
}

/// One integer, without an axis.
pub(crate) fn integer(name: String, value: i64) -> Tensor {
    Tensor { dims: Vec::new(), ..integers(name, &[value]) }
}

/// The matrix `[out, n]` whose rows average the windows of PyTorch's adaptive pooling.
pub(crate) fn averages(out: usize, n: usize) -> Vec<f32> {
    let mut matrix = vec![0.0; out * n];
    for row in 0..out {
        let range = adaptive_range(row, out, n);
        let share = 1.0 / range.len() as f32;
        matrix[row * n..(row + 1) * n][range].fill(share);
    }
    matrix
}

/// The transpose of a matrix with `columns` columns.
pub(crate) fn transposed(matrix: &[f32], columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|column| matrix.iter().skip(column).step_by(columns).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_overlap_as_pytorch_s() {
        // Rows 0..2, 1..4, 3..5 of five: floor(i*5/3) to ceil((i+1)*5/3).
        let third = 1.0 / 3.0;
        let rows = [[0.5, 0.5, 0.0, 0.0, 0.0], [0.0, third, third, third, 0.0], [0.0, 0.0, 0.0, 0.5, 0.5]];
        assert_eq!(averages(3, 5), rows.concat());
    }

    #[test]
    fn transposing_twice_is_nothing() {
        let matrix = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let turned = transposed(&matrix, 3);
        assert_eq!(turned, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!(transposed(&turned, 2), matrix);
    }
}

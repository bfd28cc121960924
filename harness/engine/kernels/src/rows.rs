//! Moves of whole rows: boxes of row-major tensors, and rows of tables by their numbers.

use crate::parallel::pieces;
use rayon::prelude::*;

/// Elements that a task copies at least.
const GRAIN: usize = 1 << 14;

/// Tasks among which the rows of a table are shared out.
const TASKS: usize = 32;

/// Copies the box of these extents that begins at `from` in `x` to where `to` is in `y`.
///
/// # Panics
/// If the box does not lie inside of both.
pub fn copy_box(
    size: &[usize],
    x_shape: &[usize],
    from: &[usize],
    x: &[f32],
    y_shape: &[usize],
    to: &[usize],
    y: &mut [f32],
) {
    let inside = |start: &[usize], shape: &[usize]| {
        start.len() == size.len()
            && shape.len() == size.len()
            && start.iter().zip(size).zip(shape).all(|((start, size), shape)| start + size <= *shape)
    };
    assert!(inside(from, x_shape) && inside(to, y_shape), "a box outside of its tensor");
    let (mut run, mut axis) = (1, size.len());
    // Whole axes at the end are one run with what is before them.
    while axis > 0 {
        axis -= 1;
        run *= size[axis];
        if size[axis] != x_shape[axis] || size[axis] != y_shape[axis] {
            break;
        }
    }
    let start = |shape: &[usize], first: &[usize], index: usize| {
        let (mut rest, mut stride, mut start) = (index, shape[axis..].iter().product::<usize>(), 0);
        for n in (0..axis).rev() {
            start += (first[n] + rest % size[n]) * stride;
            rest /= size[n];
            stride *= shape[n];
        }
        let own = first.get(axis).map_or(0, |first| first * shape[axis + 1..].iter().product::<usize>());
        start + own
    };
    for index in 0..size[..axis].iter().product() {
        let values = &x[start(x_shape, from, index)..][..run];
        y[start(y_shape, to, index)..][..run].copy_from_slice(values);
    }
}

/// An index that is none of a table's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRow {
    /// Place among the indices.
    pub place: usize,
    /// The index.
    pub index: u32,
    /// Rows of the table.
    pub rows: usize,
}

/// Requires that every index is that of a row.
///
/// # Errors
/// The first that is not.
pub fn expect_rows(indices: &[u32], rows: usize) -> Result<(), NoRow> {
    let wrong = indices.iter().position(|index| *index as usize >= rows);
    wrong.map_or(Ok(()), |place| Err(NoRow { place, index: indices[place], rows }))
}

/// Rows of `width` elements by their numbers.
///
/// # Errors
/// An index that names no row.
///
/// # Panics
/// If a length does not fit `width`.
pub fn gather(width: usize, table: &[f32], indices: &[u32], y: &mut [f32]) -> Result<(), NoRow> {
    assert_eq!(y.len(), indices.len() * width, "result");
    expect_rows(indices, table.len() / width.max(1))?;
    let rows = y.par_chunks_exact_mut(width.max(1)).with_min_len(GRAIN.div_ceil(width.max(1)));
    rows.zip(indices).for_each(|(row, index)| row.copy_from_slice(&table[*index as usize * width..][..width]));
    Ok(())
}

/// The gradient of [`gather`]: each row of the table is the sum of the rows of `dy` that were read from it, in their
/// order.
///
/// # Errors
/// An index that names no row.
///
/// # Panics
/// If a length does not fit `width`.
pub fn scatter_add(width: usize, dy: &[f32], indices: &[u32], table: &mut [f32]) -> Result<(), NoRow> {
    assert_eq!(dy.len(), indices.len() * width, "gradient");
    let rows = table.len() / width.max(1);
    expect_rows(indices, rows)?;
    let mut rest = table;
    let mut tasks = Vec::new();
    for range in pieces(rows, rows.min(TASKS)) {
        let (part, others) = rest.split_at_mut(range.len() * width);
        rest = others;
        tasks.push((range, part));
    }
    tasks.into_par_iter().for_each(|(range, part)| {
        part.fill(0.0);
        for (index, dy) in indices.iter().zip(dy.chunks_exact(width.max(1))) {
            let index = *index as usize;
            if range.contains(&index) {
                let row = &mut part[(index - range.start) * width..][..width];
                row.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::filled;

    #[test]
    fn boxes_by_hand() {
        let x: Vec<f32> = (0..24u8).map(f32::from).collect();
        let mut y = vec![-1.0; 4];
        copy_box(&[1, 2, 2], &[2, 3, 4], &[1, 1, 2], &x, &[1, 2, 2], &[0; 3], &mut y);
        assert_eq!(y, [18.0, 19.0, 22.0, 23.0]);
        let mut back = vec![0.0; 24];
        copy_box(&[1, 2, 2], &[1, 2, 2], &[0; 3], &y, &[2, 3, 4], &[1, 1, 2], &mut back);
        assert_eq!((back[18], back[23], back.iter().sum::<f32>()), (18.0, 23.0, 82.0));
        let mut rows = vec![0.0; 8];
        copy_box(&[2, 1, 4], &[2, 3, 4], &[0, 2, 0], &x, &[2, 1, 4], &[0; 3], &mut rows);
        assert_eq!(rows, [8.0, 9.0, 10.0, 11.0, 20.0, 21.0, 22.0, 23.0]);
        let mut whole = vec![0.0; 24];
        copy_box(&[2, 3, 4], &[2, 3, 4], &[0; 3], &x, &[2, 3, 4], &[0; 3], &mut whole);
        assert_eq!(whole, x);
    }

    #[test]
    fn rows_by_their_numbers_and_back() {
        let table = filled(4 * 3, 1);
        let indices = [2, 0, 2];
        let mut y = vec![f32::NAN; 9];
        gather(3, &table, &indices, &mut y).unwrap();
        assert_eq!((&y[..3], &y[3..6], &y[6..]), (&table[6..9], &table[..3], &table[6..9]));
        let mut sums = vec![f32::NAN; 12];
        scatter_add(3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], &indices, &mut sums).unwrap();
        assert_eq!(sums, [4.0, 5.0, 6.0, 0.0, 0.0, 0.0, 8.0, 10.0, 12.0, 0.0, 0.0, 0.0]);
        let wrong = NoRow { place: 1, index: 4, rows: 4 };
        assert_eq!(gather(3, &table, &[0, 4, 9], &mut y), Err(wrong));
        assert_eq!(scatter_add(3, &y, &[0, 4, 9], &mut sums), Err(wrong));
    }
}

//! Zeros around the maps of a blocked tensor, and the reverse.

use crate::{
    Blocked, C0,
    planes::{expect_len, for_each_plane},
};

/// Rows and columns on each side of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Margin {
    /// Rows above.
    pub top: usize,
    /// Rows below.
    pub bottom: usize,
    /// Columns before.
    pub left: usize,
    /// Columns after.
    pub right: usize,
}

impl Margin {
    /// The extent of a tensor with the margin around its maps.
    #[must_use]
    pub const fn around(&self, inner: Blocked) -> Blocked {
        Blocked::new(inner.n, inner.c, self.top + inner.h + self.bottom, self.left + inner.w + self.right)
    }
}

/// `y` is `x` with zeros around its maps; `shape` is that of `x`.
///
/// # Panics
/// If a length does not match the shapes.
pub fn pad(shape: Blocked, margin: Margin, x: &[f32], y: &mut [f32]) {
    let outer = margin.around(shape);
    expect_len("the input", x.len(), shape.len());
    expect_len("the padded output", y.len(), outer.len());
    let row = outer.w * C0;
    for_each_plane(outer, y, |n, c1, plane| {
        let (above, rest) = plane.split_at_mut(margin.top * row);
        let (rows, below) = rest.split_at_mut(shape.h * row);
        above.fill(0.0);
        below.fill(0.0);
        let plane = shape.plane(n, c1);
        if shape.w == 0 {
            return rows.fill(0.0);
        }
        for (row, x) in rows.chunks_exact_mut(row).zip(x[plane].chunks_exact(shape.w * C0)) {
            let (left, rest) = row.split_at_mut(margin.left * C0);
            let (middle, right) = rest.split_at_mut(x.len());
            left.fill(0.0);
            middle.copy_from_slice(x);
            right.fill(0.0);
        }
    });
}

/// The inner part of a padded tensor: the gradient of [`pad`]; `shape` is that of the inner part.
///
/// # Panics
/// If a length does not match the shapes.
pub fn crop(shape: Blocked, margin: Margin, padded: &[f32], inner: &mut [f32]) {
    let outer = margin.around(shape);
    expect_len("the padded tensor", padded.len(), outer.len());
    expect_len("the inner part", inner.len(), shape.len());
    for_each_plane(shape, inner, |n, c1, plane| {
        let rows = padded[outer.plane(n, c1)].chunks_exact(outer.w * C0).skip(margin.top);
        for (inner, row) in plane.chunks_exact_mut(shape.w * C0).zip(rows) {
            inner.copy_from_slice(&row[margin.left * C0..][..shape.w * C0]);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{blocked, expect_blocked};

    #[test]
    fn zeros_surround_and_come_off_again() {
        for (top, bottom, left, right) in [(0, 0, 0, 0), (1, 2, 3, 0), (2, 2, 2, 2), (0, 1, 0, 4)] {
            let margin = Margin { top, bottom, left, right };
            for shape in [Blocked::new(2, 20, 3, 5), Blocked::new(1, 16, 1, 1)] {
                let (x, exact) = blocked(shape, 1);
                let outer = margin.around(shape);
                let mut y = vec![f32::NAN; outer.len()];
                pad(shape, margin, &x, &mut y);
                let mut expected = vec![0.0; outer.n * outer.c * outer.pixels()];
                for (i, value) in exact.iter().enumerate() {
                    let (map, h, w) = (i / shape.pixels(), i / shape.w % shape.h, i % shape.w);
                    expected[(map * outer.h + h + top) * outer.w + w + left] = *value;
                }
                expect_blocked("padded", outer, &y, &expected, 0.0);
                let mut inner = vec![f32::NAN; shape.len()];
                crop(shape, margin, &y, &mut inner);
                assert_eq!(inner, x);
            }
        }
    }
}

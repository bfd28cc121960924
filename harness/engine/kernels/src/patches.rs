//! Windows of maps as a batch of maps, in rows of any number of values per pixel: 1 for a row-major map of one plane,
//! C0 for a blocked one.

use crate::planes::expect_len;
use rayon::prelude::*;

/// Planes of `h * w` pixels, and the windows over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patches {
    /// Images.
    pub n: usize,
    /// Planes per image: channels, or blocks of them.
    pub planes: usize,
    /// Height and width of the maps.
    pub map: [usize; 2],
    /// Height and width of a window.
    pub kernel: [usize; 2],
    /// Step of the windows.
    pub stride: [usize; 2],
    /// Zeros above and left of the map.
    pub pad: [usize; 2],
    /// Windows down and across.
    pub out: [usize; 2],
    /// Values per pixel.
    pub lanes: usize,
}

impl Patches {
    fn map_len(&self) -> usize {
        self.map[0] * self.map[1] * self.lanes
    }

    fn patch_len(&self) -> usize {
        self.kernel[0] * self.kernel[1] * self.lanes
    }

    fn places(&self) -> usize {
        self.out[0] * self.out[1]
    }

    /// Values of all maps.
    #[must_use]
    pub fn input_len(&self) -> usize {
        self.n * self.planes * self.map_len()
    }

    /// Values of all windows.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.n * self.places() * self.planes * self.patch_len()
    }

    /// Along an axis, for the window at `place`: its first pixel inside the map, where that lies in the map, and how
    /// many there are.
    fn inside(&self, axis: usize, place: usize) -> (usize, usize, usize) {
        let start = place * self.stride[axis];
        let first = self.pad[axis].saturating_sub(start).min(self.kernel[axis]);
        let from = (start + first).saturating_sub(self.pad[axis]).min(self.map[axis]);
        let count = self.kernel[axis].saturating_sub(first).min(self.map[axis].saturating_sub(from));
        (first, from, count)
    }
}

/// All windows of the first image, row by row, then those of the next.
///
/// # Panics
/// If a length does not match the shape.
pub fn extract(shape: &Patches, x: &[f32], y: &mut [f32]) {
    expect_len("the maps", x.len(), shape.input_len());
    expect_len("the windows", y.len(), shape.output_len());
    if y.is_empty() {
        return;
    }
    let row = shape.kernel[1] * shape.lanes;
    y.par_chunks_exact_mut(shape.patch_len()).with_min_len(8).enumerate().for_each(|(index, y)| {
        let (patch, plane) = (index / shape.planes, index % shape.planes);
        let (image, place) = (patch / shape.places(), patch % shape.places());
        let x = &x[(image * shape.planes + plane) * shape.map_len()..][..shape.map_len()];
        let (top, i, height) = shape.inside(0, place / shape.out[1]);
        let (left, j, width) = shape.inside(1, place % shape.out[1]);
        if (height, width) != (shape.kernel[0], shape.kernel[1]) {
            y.fill(0.0);
        }
        let len = width * shape.lanes;
        for (r, y) in y.chunks_exact_mut(row).skip(top).take(height).enumerate() {
            let from = ((i + r) * shape.map[1] + j) * shape.lanes;
            y[left * shape.lanes..][..len].copy_from_slice(&x[from..][..len]);
        }
    });
}

/// Gradient of [`extract`]: each pixel is the sum over the windows that hold it, in their order.
///
/// # Panics
/// If a length does not match the shape.
pub fn extract_gradient(shape: &Patches, dy: &[f32], dx: &mut [f32]) {
    expect_len("the maps' gradient", dx.len(), shape.input_len());
    expect_len("the windows' gradient", dy.len(), shape.output_len());
    if dx.is_empty() {
        return;
    }
    let row = shape.kernel[1] * shape.lanes;
    dx.par_chunks_exact_mut(shape.map_len()).enumerate().for_each(|(index, dx)| {
        let (image, plane) = (index / shape.planes, index % shape.planes);
        dx.fill(0.0);
        for place in 0..shape.places() {
            let patch = (image * shape.places() + place) * shape.planes + plane;
            let dy = &dy[patch * shape.patch_len()..][..shape.patch_len()];
            let (top, i, height) = shape.inside(0, place / shape.out[1]);
            let (left, j, width) = shape.inside(1, place % shape.out[1]);
            let len = width * shape.lanes;
            for (r, dy) in dy.chunks_exact(row).skip(top).take(height).enumerate() {
                let from = ((i + r) * shape.map[1] + j) * shape.lanes;
                let sums = dx[from..][..len].iter_mut();
                sums.zip(&dy[left * shape.lanes..][..len]).for_each(|(sum, g)| *sum += g);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::filled;

    /// A value of a window by definition: its place in the map, if it is inside.
    fn source(shape: &Patches, at: usize) -> Option<usize> {
        let lane = at % shape.lanes;
        let at = at / shape.lanes;
        let (s, r) = (at % shape.kernel[1], at / shape.kernel[1] % shape.kernel[0]);
        let at = at / (shape.kernel[0] * shape.kernel[1]);
        let (plane, patch) = (at % shape.planes, at / shape.planes);
        let (image, place) = (patch / shape.places(), patch % shape.places());
        let row =
            (place / shape.out[1] * shape.stride[0] + r).checked_sub(shape.pad[0]).filter(|i| *i < shape.map[0])?;
        let column =
            (place % shape.out[1] * shape.stride[1] + s).checked_sub(shape.pad[1]).filter(|j| *j < shape.map[1])?;
        Some((((image * shape.planes + plane) * shape.map[0] + row) * shape.map[1] + column) * shape.lanes + lane)
    }

    #[test]
    fn windows_and_their_gradient_by_definition() {
        for (pad, kernel, stride, out, lanes) in [
            ([0, 0], [3, 2], [1, 2], [4, 3], 1),
            ([2, 3], [4, 5], [2, 3], [4, 3], 1),
            ([1, 0], [3, 3], [3, 2], [2, 2], 16),
            ([5, 5], [2, 2], [1, 1], [15, 14], 1),
            ([0, 0], [1, 1], [1, 1], [6, 6], 16),
        ] {
            let shape = Patches { n: 2, planes: 3, map: [6, 6], kernel, stride, pad, out, lanes };
            let x = filled(shape.input_len(), 1);
            let mut y = vec![f32::NAN; shape.output_len()];
            extract(&shape, &x, &mut y);
            let expected: Vec<f32> = (0..y.len()).map(|at| source(&shape, at).map_or(0.0, |from| x[from])).collect();
            assert_eq!(y, expected, "{shape:?}");
            let dy = filled(y.len(), 2);
            let mut sums = vec![0.0f64; x.len()];
            for (at, g) in dy.iter().enumerate() {
                if let Some(from) = source(&shape, at) {
                    sums[from] += f64::from(*g);
                }
            }
            let mut dx = vec![f32::NAN; x.len()];
            extract_gradient(&shape, &dy, &mut dx);
            crate::testing::expect_close("gradient", &dx, &sums, 1e-6);
        }
    }
}

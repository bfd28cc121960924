//! Bilinear interpolation of planes of numbers.

use crate::image::Size;

/// Planes of `from` pixels scaled to planes of `to` pixels, in f32 and without antialiasing (PyTorch's `interpolate`
/// with `mode="bilinear"` and `align_corners=False`).
///
/// # Panics
/// If `planes` does not consist of whole planes, or a side is 0.
pub fn interpolate(planes: &[f32], from: Size, to: Size) -> Vec<f32> {
    assert!(planes.len().is_multiple_of(from.area()) && from.area() > 0 && to.area() > 0);
    if from == to {
        return planes.to_vec();
    }
    let (rows, columns) = (places(from.height, to.height), places(from.width, to.width));
    let mut scaled = Vec::with_capacity(planes.len() / from.area() * to.area());
    for plane in planes.chunks_exact(from.area()) {
        for &Place { first, second, weight } in &rows {
            let (above, below) = (&plane[first * from.width..], &plane[second * from.width..]);
            scaled.extend(columns.iter().map(|at| (1.0 - weight) * at.mix(above) + weight * at.mix(below)));
        }
    }
    scaled
}

/// Between which pixels along an axis a pixel of the result lies.
struct Place {
    first: usize,
    second: usize,
    /// Weight of the second one.
    weight: f32,
}

impl Place {
    fn mix(&self, row: &[f32]) -> f32 {
        (1.0 - self.weight) * row[self.first] + self.weight * row[self.second]
    }
}

fn places(from: usize, to: usize) -> Vec<Place> {
    let (step, last) = (from as f32 / to as f32, from - 1);
    let place = |i: usize| {
        // PyTorch's compilers round this once.
        let at = step.mul_add(i as f32 + 0.5, -0.5).max(0.0);
        let first = (at as usize).min(last);
        Place { first, second: (first + 1).min(last), weight: (at - first as f32).clamp(0.0, 1.0) }
    };
    (0..to).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let row = [0.0, 4.0];
        assert_eq!(interpolate(&row, Size::new(2, 1), Size::new(4, 1)), [0.0, 1.0, 3.0, 4.0]);
        assert_eq!(interpolate(&row, Size::new(2, 1), Size::new(1, 2)), [2.0, 2.0]);
        // Without antialiasing, only the two pixels around each centre count: 1.5 and 5.5.
        let long = [0.0, 1.0, 8.0, 9.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(interpolate(&long, Size::new(8, 1), Size::new(2, 1)), [4.5, 3.5]);
        assert_eq!(interpolate(&row, Size::new(2, 1), Size::new(2, 1)), row);
    }
}

//! Anchor boxes on the levels of a feature pyramid (torchvision's `AnchorGenerator`).

use std::ops::Range;

use super::Corners;
use crate::DataError;
use crate::image::Size;
use zoo_settings::BoxAnchors;

/// The anchors of an image, level by level, then by row, column, ratio and size: the order of torchvision's heads.
#[derive(Debug, Clone, PartialEq)]
pub struct Pyramid {
    anchors: Vec<Corners>,
    levels: Vec<Range<usize>>,
}

impl Pyramid {
    /// Most anchors of an image.
    const MOST: usize = 1 << 24;

    /// Anchors of an image of `size` pixels.
    ///
    /// # Errors
    /// Levels without size or stride, numbers that are not positive, and too many anchors.
    pub fn new(settings: &BoxAnchors, size: Size) -> Result<Self, DataError> {
        let BoxAnchors { strides, sizes, per_octave, ratios } = settings;
        let positive = |numbers: &[f64]| !numbers.is_empty() && numbers.iter().all(|n| *n > 0.0 && n.is_finite());
        let sane = strides.len() == sizes.len() && !strides.contains(&0) && *per_octave > 0;
        if !sane || !positive(sizes) || !positive(ratios) {
            let message = "each level needs a stride and a size above 0, and there must be ratios above 0";
            return Err(DataError::Config(format!("anchors: {message}, not {settings:?}")));
        }
        let grid = |stride: &usize| (size.height.div_ceil(*stride), size.width.div_ceil(*stride));
        let per_position = per_octave.saturating_mul(ratios.len());
        let counts =
            strides.iter().map(grid).map(|(rows, columns)| rows.saturating_mul(columns).saturating_mul(per_position));
        if counts.fold(0, usize::saturating_add) > Self::MOST {
            return Err(DataError::Config(format!("more than {} anchors per image", Self::MOST)));
        }
        let mut pyramid = Self { anchors: Vec::new(), levels: Vec::new() };
        for (stride, size_of_level) in strides.iter().zip(sizes) {
            let (rows, columns) = grid(stride);
            let sizes = (0..*per_octave).map(|i| size_of_level * libm::exp2(i as f64 / *per_octave as f64));
            let shapes = shapes(&sizes.map(|size| size.trunc() as f32).collect::<Vec<_>>(), ratios);
            // As torchvision: the image divided by the grid.
            let (down, right) = (size.height / rows.max(1), size.width / columns.max(1));
            let start = pyramid.anchors.len();
            for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                let (x, y) = ((column * right) as f32, (row * down) as f32);
                pyramid.anchors.extend(shapes.iter().map(|shape| Corners {
                    left: x + shape.left,
                    top: y + shape.top,
                    right: x + shape.right,
                    bottom: y + shape.bottom,
                }));
            }
            pyramid.levels.push(start..pyramid.anchors.len());
        }
        Ok(pyramid)
    }

    /// All anchors.
    pub fn anchors(&self) -> &[Corners] {
        &self.anchors
    }

    /// The anchors of each level, as a part of [`anchors`](Self::anchors).
    pub fn levels(&self) -> &[Range<usize>] {
        &self.levels
    }
}

/// Anchors around (0, 0), with corners at whole pixels.
fn shapes(sizes: &[f32], ratios: &[f64]) -> Vec<Corners> {
    let of_ratio = |ratio: &f64| {
        let tall = (*ratio as f32).sqrt();
        let wide = 1.0 / tall;
        let of_size = move |size: &f32| {
            let (x, y) = ((wide * size / 2.0).round_ties_even(), (tall * size / 2.0).round_ties_even());
            Corners { left: -x, top: -y, right: x, bottom: y }
        };
        sizes.iter().map(of_size)
    };
    ratios.iter().flat_map(of_ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shapes of the first level of torchvision's RetinaNet, by hand: 32/sqrt(0.5)/2 = 22.6 and so on.
    #[test]
    fn shapes_and_places_by_hand() {
        let config = BoxAnchors::default();
        let pyramid = Pyramid::new(&config, Size::new(100, 64)).unwrap();
        let per_level: Vec<usize> = pyramid.levels().iter().map(|level| level.len() / 9).collect();
        assert_eq!(per_level, [13 * 8, 7 * 4, 4 * 2, 2, 1]);
        assert_eq!(pyramid.anchors()[0], Corners::new([-23.0, -11.0, 23.0, 11.0]));
        // The second row of shapes is square, with sides of 32, 40 and 50.
        let square = |half: f32| Corners::new([-half, -half, half, half]);
        assert_eq!(pyramid.anchors()[3..6], [16.0, 20.0, 25.0].map(square));
        // The second column of the first level is 100 / 13 = 7 pixels away, the second row 8.
        assert_eq!(pyramid.anchors()[9].left, -16.0);
        assert_eq!(pyramid.anchors()[13 * 9].top, -3.0);
    }

    #[test]
    fn settings_without_sense_are_refused() {
        let good = BoxAnchors::default();
        for bad in [
            BoxAnchors { strides: vec![8], ..good.clone() },
            BoxAnchors { strides: vec![8, 16, 32, 64, 0], ..good.clone() },
            BoxAnchors { ratios: Vec::new(), ..good.clone() },
            BoxAnchors { ratios: vec![f64::NAN], ..good.clone() },
            BoxAnchors { strides: Vec::new(), sizes: Vec::new(), ..good.clone() },
            BoxAnchors { per_octave: 0, ..good.clone() },
            BoxAnchors { strides: vec![1; 5], ..good },
        ] {
            assert!(matches!(Pyramid::new(&bad, Size::square(4096)), Err(DataError::Config(_))), "{bad:?}");
        }
    }
}

//! Random erasing.

use zoo_settings::RandomErasing;

use super::random_resized_crop::sides;
use crate::Rng;
use crate::image::{Rect, Size};

/// The rectangle to erase; `None` if none of ten attempts fits into the image.
pub(super) fn rect(erasing: &RandomErasing, image: Size, rng: &mut Rng) -> Option<Rect> {
    if !rng.chance(erasing.p) {
        return None;
    }
    (0..10).find_map(|_| {
        let [height, width] = sides(image, erasing.scale, erasing.ratio, rng);
        (height < image.height && width < image.width).then(|| {
            let y = rng.below(image.height - height + 1);
            Rect::new(rng.below(image.width - width + 1), y, width, height)
        })
    })
}

/// Fills the rectangle in all planes of an image of this size.
pub(super) fn erase(value: f32, rect: Rect, size: Size, planes: &mut [f32]) {
    for plane in planes.chunks_exact_mut(size.area().max(1)) {
        for row in plane.chunks_exact_mut(size.width).skip(rect.y).take(rect.height) {
            row[rect.x..rect.right()].fill(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERASING: RandomErasing = RandomErasing { p: 0.5, scale: [0.02, 0.33], ratio: [0.3, 3.3], value: 0.0 };

    /// In 40000 draws of torchvision's `get_params` on a 224x160 image, the mean area was 0.1704 of the image (standard
    /// deviation 0.088), and the mean height over width 1.1939 (0.78): `golden/export/augment.py`.
    #[test]
    fn rectangles_are_distributed_as_torchvisions() {
        let size = Size::new(224, 160);
        let (mut area, mut shape, mut erased) = (0.0, 0.0, 0);
        for sample in 0..40_000 {
            if let Some(rect) = rect(&ERASING, size, &mut Rng::new(5, 0, sample)) {
                assert!(rect.right() <= size.width && rect.bottom() <= size.height);
                erased += 1;
                area += rect.size().area() as f64 / size.area() as f64;
                shape += rect.height as f64 / rect.width as f64;
            }
        }
        let n = f64::from(erased);
        // Four standard errors.
        assert!((n / 40_000.0 - 0.5).abs() < 0.01, "{n}");
        assert!((area / n - 0.1704).abs() < 0.0031 && (shape / n - 1.1939).abs() < 0.028, "{} {}", area / n, shape / n);
    }

    #[test]
    fn what_is_erased_is_the_rectangle_in_every_plane() {
        let (size, rect) = (Size::new(4, 3), Rect::new(1, 1, 2, 2));
        let mut planes = vec![1.0; 24];
        erase(7.0, rect, size, &mut planes);
        for plane in planes.chunks(12) {
            assert_eq!(plane, [1.0, 1.0, 1.0, 1.0, 1.0, 7.0, 7.0, 1.0, 1.0, 7.0, 7.0, 1.0]);
        }
    }
}

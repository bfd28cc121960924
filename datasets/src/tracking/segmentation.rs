//! Quality of masks by DAVIS ("A benchmark dataset and evaluation methodology for video object segmentation", CVPR
//! 2016).

use crate::grid::{Grid, Mask};

/// Region similarity J: intersection over union; 1 if both masks are empty. Pixels that only one of two masks of
/// different sizes has count as outside the other.
pub fn mask_iou(found: &Mask, truth: &Mask) -> f64 {
    let (mut common, mut either) = (0_usize, 0_usize);
    let (width, height) = (found.width().max(truth.width()), found.height().max(truth.height()));
    for y in 0..height as isize {
        for x in 0..width as isize {
            let (a, b) = (found.get(x, y).unwrap_or(false), truth.get(x, y).unwrap_or(false));
            common += usize::from(a && b);
            either += usize::from(a || b);
        }
    }
    if either == 0 { 1.0 } else { common as f64 / either as f64 }
}

/// Distance within which boundaries match, as a part of the image's diagonal.
const TOLERANCE: f64 = 0.008;

/// Contour accuracy F: harmonic mean of the shares of either boundary that are near the other one (`db_eval_boundary`).
pub fn boundary_f(found: &Mask, truth: &Mask) -> f64 {
    let (width, height) = (truth.width() as f64, truth.height() as f64);
    let reach = (TOLERANCE * (width * width + height * height).sqrt()).ceil() as isize;
    let (a, b) = (boundary(found), boundary(truth));
    let near = |boundary: &Mask, other: &Mask| {
        let total = boundary.count();
        let width = boundary.width();
        let matched = boundary.values().iter().enumerate().filter(|(i, on)| {
            let (x, y) = ((i % width) as isize, (i / width) as isize);
            **on && disk(reach).any(|(dx, dy)| other.get(x + dx, y + dy) == Some(true))
        });
        (matched.count(), total)
    };
    let ((near_truth, all_found), (near_found, all_truth)) = (near(&a, &b), near(&b, &a));
    let (precision, recall) = match (all_found, all_truth) {
        (0, 0) => (1.0, 1.0),
        (0, _) => (1.0, 0.0),
        (_, 0) => (0.0, 1.0),
        _ => (near_truth as f64 / all_found as f64, near_found as f64 / all_truth as f64),
    };
    if precision + recall == 0.0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) }
}

/// Steps to the pixels of a disk.
fn disk(radius: isize) -> impl Iterator<Item = (isize, isize)> {
    let along = move || -radius..=radius;
    along().flat_map(move |dy| along().map(move |dx| (dx, dy))).filter(move |(x, y)| x * x + y * y <= radius * radius)
}

/// Pixels that differ from their neighbour to the right, below, or both (`seg2bmap`).
fn boundary(mask: &Mask) -> Mask {
    let mut edges = Grid::filled(mask.size(), false);
    let (width, height) = (mask.width(), mask.height());
    for y in 0..height {
        for x in 0..width {
            // Beyond the border, a mask is continued.
            let at = |dx: usize, dy: usize| mask.row((y + dy).min(height - 1))[(x + dx).min(width - 1)];
            let here = at(0, 0);
            edges.row_mut(y)[x] = at(1, 0) != here || at(0, 1) != here || at(1, 1) != here;
        }
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Size;

    fn rectangle(x: usize, y: usize, width: usize, height: usize) -> Mask {
        let mut mask = Mask::filled(Size::new(40, 30), false);
        (y..y + height).for_each(|row| mask.row_mut(row)[x..x + width].fill(true));
        mask
    }

    #[test]
    fn region_similarity_by_hand() {
        let (a, b) = (rectangle(0, 0, 10, 10), rectangle(5, 0, 10, 10));
        assert_eq!((mask_iou(&a, &b), mask_iou(&a, &a)), (50.0 / 150.0, 1.0));
        let nothing = rectangle(0, 0, 0, 0);
        assert_eq!((mask_iou(&nothing, &nothing), mask_iou(&a, &nothing)), (1.0, 0.0));
        // Of another size: 4 of 100 pixels.
        let small = Mask::filled(Size::new(2, 2), true);
        assert_eq!(mask_iou(&a, &small), 0.04);
    }

    /// The diagonal of 40 x 30 is 50, so boundaries match within one pixel.
    #[test]
    fn contour_accuracy_by_hand() {
        let truth = rectangle(10, 10, 10, 10);
        assert_eq!(boundary_f(&truth, &truth), 1.0);
        assert_eq!(boundary_f(&rectangle(11, 10, 10, 10), &truth), 1.0);
        assert!(boundary_f(&rectangle(14, 10, 10, 10), &truth) < 0.7);
        let nothing = rectangle(0, 0, 0, 0);
        assert_eq!((boundary_f(&nothing, &nothing), boundary_f(&nothing, &truth)), (1.0, 0.0));
        assert_eq!(boundary_f(&rectangle(30, 20, 5, 5), &truth), 0.0);
    }

    /// A square of 2 x 2: its boundary are the pixels above and to the left of each change, 8 of the 9 around it.
    #[test]
    fn boundaries_lie_above_and_to_the_left() {
        let edges = boundary(&rectangle(10, 10, 2, 2));
        let on: Vec<(usize, usize)> =
            (0..30).flat_map(|y| (0..40).map(move |x| (x, y))).filter(|&(x, y)| edges.row(y)[x]).collect();
        assert_eq!(on, [(9, 9), (10, 9), (11, 9), (9, 10), (11, 10), (9, 11), (10, 11), (11, 11)]);
    }
}

//! Training targets of DB (`MakeSegDetectionData`, `MakeBorderMap`).

use super::TextRegion;
use crate::geometry::{Pixel, Point, Polygon, fill_polygon, offset_polygon};
use crate::grid::Grid;
use crate::image::Size;
use zoo_settings::TextPreparation;

/// Targets of one image, all of its size (HW).
#[derive(Debug, Clone, PartialEq)]
pub struct TextTargets {
    /// 1 inside shrunken text, otherwise 0: the target of the probability map (`gt`).
    pub shrink: Grid<f32>,
    /// 0 on ignored text, where nothing is learnt, else 1 (`mask`).
    pub shrink_mask: Grid<f32>,
    /// The target of the threshold map: largest on the outline of text, decreasing to the smallest value at the
    /// distance by which text is shrunk and expanded (`thresh_map`).
    pub threshold: Grid<f32>,
    /// 1 where `threshold` is learnt: inside grown text (`thresh_mask`).
    pub threshold_mask: Grid<f32>,
    /// For each region, whether it was ignored: by its annotation, or because it is too small or vanishes on shrinking.
    pub ignored: Vec<bool>,
}

impl TextTargets {
    /// Draws the targets of `regions` in an image of `size`. Outlines are limited to the image first.
    pub fn new(size: Size, regions: &[TextRegion], settings: &TextPreparation) -> Self {
        let mut targets = Self {
            shrink: Grid::filled(size, 0.0),
            shrink_mask: Grid::filled(size, 1.0),
            threshold: Grid::filled(size, 0.0),
            threshold_mask: Grid::filled(size, 0.0),
            ignored: Vec::with_capacity(regions.len()),
        };
        for region in regions {
            let polygon = within(&region.polygon, size);
            let learnt = !region.ignore && targets.draw(&polygon, settings);
            if !learnt {
                let corners: Vec<Pixel> = polygon.points().iter().map(|p| p.truncated()).collect();
                fill_polygon(&mut targets.shrink_mask, &corners, 0.0);
            }
            targets.ignored.push(!learnt);
        }
        let [low, high] = settings.threshold.map(|value| value as f32);
        targets.threshold = targets.threshold.map(|nearness| nearness * (high - low) + low);
        targets
    }

    /// Draws one text; false if it is too small.
    fn draw(&mut self, polygon: &Polygon, settings: &TextPreparation) -> bool {
        let bounds = polygon.bounds();
        let (area, perimeter) = (polygon.area(), polygon.perimeter());
        if area < 1.0 || bounds.width().min(bounds.height()) < settings.min_size {
            return false;
        }
        let distance = area * (1.0 - settings.shrink_ratio * settings.shrink_ratio) / perimeter;
        let shrunk = offset_polygon(polygon, -distance);
        let grown = offset_polygon(polygon, distance);
        // Of several parts the reference takes the first, too.
        let (Some(shrunk), Some(grown)) = (shrunk.first(), grown.first()) else { return false };
        fill_polygon(&mut self.shrink, shrunk, 1.0);
        fill_polygon(&mut self.threshold_mask, grown, 1.0);
        self.draw_border(polygon, grown, distance);
        true
    }

    /// Raises the threshold map to `1 - distance to the outline / distance` around `polygon`.
    fn draw_border(&mut self, polygon: &Polygon, grown: &[Pixel], distance: f64) {
        let size = self.threshold.size();
        let range = |values: &mut dyn Iterator<Item = i32>, length: usize| {
            let (low, high) = values.fold((i32::MAX, i32::MIN), |(low, high), v| (low.min(v), high.max(v)));
            (low, low.max(0) as usize..(high.saturating_add(1).max(0) as usize).min(length))
        };
        let (left, columns) = range(&mut grown.iter().map(|p| p.x), size.width);
        let (top, rows) = range(&mut grown.iter().map(|p| p.y), size.height);
        // Coordinates count from the corner of the grown text, as in the reference.
        let polygon = polygon.map(|p| p - Point::new(left.into(), top.into()));
        for y in rows {
            let row = &mut self.threshold.row_mut(y)[columns.clone()];
            for (x, value) in columns.clone().zip(row) {
                let p = Point::new(x as f64 - f64::from(left), y as f64 - f64::from(top));
                let nearest = polygon
                    .sides()
                    .map(|side| (distance_to(p, side) / distance).clamp(0.0, 1.0) as f32)
                    .fold(1.0, f32::min);
                *value = value.max(1.0 - nearest);
            }
        }
    }
}

/// The polygon with coordinates limited to those of pixels, with positive orientation (`validate_polygons`).
fn within(polygon: &Polygon, size: Size) -> Polygon {
    let (right, bottom) = (size.width as f64 - 1.0, size.height as f64 - 1.0);
    polygon.map(|p| Point::new(p.x.clamp(0.0, right.max(0.0)), p.y.clamp(0.0, bottom.max(0.0))))
}

/// Distance from a point to a side, as the reference computes it: to the line where the point sees the side at an
/// obtuse angle, else to the nearer end.
fn distance_to(p: Point, (a, b): (Point, Point)) -> f64 {
    let squared = |v: Point| v.x * v.x + v.y * v.y;
    let (to_a, to_b, side) = (squared(p - a), squared(p - b), squared(a - b));
    let cos = (side - to_a - to_b) / (2.0 * (to_a * to_b).sqrt());
    if cos < 0.0 {
        return to_a.min(to_b).sqrt();
    }
    // On the side itself rounding can make this negative, and on a corner there is no angle.
    let sin_squared = (1.0 - cos * cos).max(0.0);
    let distance = (to_a * to_b * sin_squared / side).sqrt();
    if distance.is_nan() { 0.0 } else { distance }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(polygon: Polygon, ignore: bool) -> TextRegion {
        TextRegion { polygon, text: String::new(), ignore }
    }

    fn targets(regions: &[TextRegion]) -> TextTargets {
        TextTargets::new(Size::new(64, 48), regions, &TextPreparation::default())
    }

    /// 30 x 10: area 300, perimeter 80, so that outlines move by 300 * 0.84 / 80 = 3.15.
    #[test]
    fn a_rectangle_by_hand() {
        let targets = targets(&[region(Polygon::rectangle(10.0, 20.0, 30.0, 10.0), false)]);
        // From (13.15, 23.15) to (36.85, 26.85), rounded, with the outline.
        let inside: Vec<(usize, usize)> = (0..48)
            .flat_map(|y| (0..64).map(move |x| (x, y)))
            .filter(|&(x, y)| targets.shrink.row(y)[x] == 1.0)
            .collect();
        assert_eq!((inside.first(), inside.last()), (Some(&(13, 23)), Some(&(37, 27))));
        assert_eq!(inside.len(), 25 * 5);
        assert!(targets.shrink_mask.values().iter().all(|&v| v == 1.0));
        // On the outline 0.7; two pixels below it 0.3 + 0.4 * (1 - 2 / 3.15); beyond 3.15 it is 0.3.
        let near = |x: usize, y: usize, expected: f32| (targets.threshold.row(y)[x] - expected).abs() < 1e-6;
        assert!(near(25, 30, 0.7) && near(25, 20, 0.7) && near(10, 25, 0.7));
        assert!(near(25, 32, 0.3 + 0.4 * (1.0 - 2.0 / 3.15)));
        assert!(near(25, 25, 0.3) && near(25, 34, 0.3) && near(0, 0, 0.3));
        assert_eq!(targets.threshold_mask.row(17)[25..27], [1.0, 1.0]);
        assert_eq!((targets.threshold_mask.row(16)[25], targets.threshold_mask.row(25)[25]), (0.0, 1.0));
    }

    #[test]
    fn small_or_ignored_text_is_masked() {
        let targets = targets(&[
            region(Polygon::rectangle(5.0, 5.0, 20.0, 7.0), false),
            region(Polygon::rectangle(30.0, 5.0, 20.0, 20.0), true),
            region(Polygon::rectangle(200.0, 5.0, 20.0, 20.0), false),
        ]);
        assert_eq!(targets.ignored, [true, true, true]);
        assert!(targets.shrink.values().iter().all(|&v| v == 0.0));
        assert!(targets.threshold_mask.values().iter().all(|&v| v == 0.0));
        let masked = targets.shrink_mask.values().iter().filter(|&&v| v == 0.0).count();
        // 21 x 8 and 21 x 21 pixels, and the line that is left of the one beyond the right border.
        assert_eq!(masked, 21 * 8 + 21 * 21 + 21);
    }

    #[test]
    fn no_text_gives_empty_targets() {
        let targets = targets(&[]);
        assert!(targets.shrink.values().iter().all(|&v| v == 0.0));
        assert!(targets.shrink_mask.values().iter().all(|&v| v == 1.0));
        assert!(targets.threshold.values().iter().all(|&v| v == 0.3));
    }
}

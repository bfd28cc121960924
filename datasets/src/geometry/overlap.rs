//! Overlap of polygons.

use i_overlay::core::fill_rule::FillRule;
use i_overlay::core::overlay_rule::OverlayRule;
use i_overlay::float::single::SingleFloatOverlay;

use super::{Point, Polygon};
use crate::image::Size;

/// Area of the intersection of two polygons (for self-intersecting polygons, all enclosed area counts).
pub fn intersection_area(a: &Polygon, b: &Polygon) -> f64 {
    if !a.bounds().overlaps(&b.bounds()) {
        return 0.0;
    }
    area(a, b, OverlayRule::Intersect)
}

/// Intersection over union; 0 if neither encloses anything.
pub fn iou(a: &Polygon, b: &Polygon) -> f64 {
    let common = intersection_area(a, b);
    if common == 0.0 {
        return 0.0;
    }
    // The overlap of a polygon with itself is exactly 1, independent of the grid of the library.
    (common / area(a, b, OverlayRule::Union)).min(1.0)
}

/// The largest part of `polygon` inside an image; `None` if none of it is.
///
/// Pixels are squares around their centres here, so that the image reaches from -0.5 to `width - 0.5`.
pub fn clip_to(polygon: &Polygon, size: Size) -> Option<Polygon> {
    let frame = Polygon::rectangle(-0.5, -0.5, size.width as f64, size.height as f64);
    let parts = shapes(polygon, &frame, OverlayRule::Intersect);
    let outlines = parts.into_iter().filter_map(|part| part.into_iter().next());
    let polygons =
        outlines.filter_map(|outline| Polygon::new(outline.into_iter().map(|[x, y]| Point::new(x, y)).collect()).ok());
    polygons.max_by(|a, b| a.area().total_cmp(&b.area()))
}

/// Outlines of each part of the result, holes after the outer one, in the opposite direction.
fn shapes(a: &Polygon, b: &Polygon, rule: OverlayRule) -> Vec<Vec<Vec<[f64; 2]>>> {
    let path = |polygon: &Polygon| polygon.points().iter().map(|p| [p.x, p.y]).collect::<Vec<_>>();
    path(a).overlay(&path(b), rule, FillRule::NonZero)
}

fn area(a: &Polygon, b: &Polygon, rule: OverlayRule) -> f64 {
    let outline = |points: &Vec<[f64; 2]>| {
        let Some(&origin) = points.first() else { return 0.0 };
        let cross = |[ax, ay]: [f64; 2], [bx, by]: [f64; 2]| {
            (ax - origin[0]) * (by - origin[1]) - (ay - origin[1]) * (bx - origin[0])
        };
        let next = points.iter().cycle().skip(1);
        points.iter().zip(next).map(|(&a, &b)| cross(a, b)).sum::<f64>() / 2.0
    };
    shapes(a, b, rule).iter().map(|part| part.iter().map(outline).sum::<f64>().abs()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_that_overlap_by_a_quarter() {
        let (a, b) = (Polygon::rectangle(0.0, 0.0, 2.0, 2.0), Polygon::rectangle(1.0, 1.0, 2.0, 2.0));
        assert!((intersection_area(&a, &b.reversed()) - 1.0).abs() < 1e-6);
        assert!((iou(&a, &b) - 1.0 / 7.0).abs() < 1e-6);
        assert!((iou(&a, &a) - 1.0).abs() < 1e-9);
        assert_eq!(iou(&a, &Polygon::rectangle(2.0, 0.0, 2.0, 2.0)), 0.0);
    }

    #[test]
    fn a_concave_polygon_does_not_count_its_bay() {
        let bay = [(0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (3.0, 4.0), (3.0, 1.0), (1.0, 1.0), (1.0, 4.0), (0.0, 4.0)];
        let bay = Polygon::new(bay.iter().map(|&(x, y)| Point::new(x, y)).collect()).unwrap();
        assert!((intersection_area(&bay, &Polygon::rectangle(0.0, 2.0, 4.0, 1.0)) - 2.0).abs() < 1e-6);
    }

    #[test]
    fn clipping_keeps_what_is_inside() {
        let clipped = clip_to(&Polygon::rectangle(-5.5, 1.5, 10.0, 2.0), Size::new(3, 9)).unwrap();
        assert!((clipped.area() - 6.0).abs() < 1e-6);
        assert_eq!(clip_to(&Polygon::rectangle(20.0, 0.0, 5.0, 5.0), Size::new(3, 3)), None);
    }
}

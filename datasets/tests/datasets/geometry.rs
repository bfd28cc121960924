//! Plane geometry against pyclipper, OpenCV and shapely (`tests/geometry/make.py`).

use proptest::prelude::*;
use serde_json::Value;
use zoo_datasets::geometry::{
    Pixel, Point, Polygon, fill_polygon, find_contours, intersection_area, iou, min_area_rect, offset_polygon,
    simplify_closed,
};
use zoo_datasets::{Grid, Mask, Size};

fn cases(kind: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../geometry/cases.json")).unwrap();
    all[kind].as_array().unwrap().clone()
}

fn points(value: &Value) -> Vec<Point> {
    let point = |p: &Value| Point::new(p[0].as_f64().unwrap(), p[1].as_f64().unwrap());
    value.as_array().unwrap().iter().map(point).collect()
}

fn pixels(value: &Value) -> Vec<Pixel> {
    points(value).iter().map(|p| p.truncated()).collect()
}

fn polygon(value: &Value) -> Polygon {
    Polygon::new(points(value)).unwrap()
}

const SIZE: Size = Size::new(64, 48);

fn bitmap(rows: &Value) -> Mask {
    let rows = rows.as_array().unwrap().iter().map(|row| u64::from_str_radix(row.as_str().unwrap(), 16).unwrap());
    let values = rows.flat_map(|row| (0..64).rev().map(move |bit| row >> bit & 1 == 1)).collect();
    Mask::new(SIZE, values).unwrap()
}

fn filled(outline: &[Pixel]) -> Mask {
    let mut grid = Grid::filled(SIZE, false);
    fill_polygon(&mut grid, outline, true);
    grid
}

#[test]
fn polygons_are_filled_as_by_opencv() {
    for (i, case) in cases("fill").iter().enumerate() {
        let (found, expected) = (filled(&pixels(&case["points"])), bitmap(&case["rows"]));
        let wrong = found.values().iter().zip(expected.values()).filter(|(a, b)| a != b).count();
        assert_eq!(wrong, 0, "case {i}: {}", case["points"]);
    }
}

#[test]
fn polygons_are_moved_as_by_pyclipper() {
    for (i, case) in cases("offset").iter().enumerate() {
        let (polygon, distance) = (polygon(&case["points"]), case["distance"].as_f64().unwrap());
        let by_hand = polygon.area() * (1.0 - 0.4 * 0.4) / polygon.perimeter();
        assert!((by_hand - distance).abs() < 1e-9 * distance);
        for (name, sign) in [("shrunk", -1.0), ("grown", 1.0)] {
            let found = offset_polygon(&polygon, sign * distance);
            let expected = case[name].as_array().unwrap();
            assert_eq!(found.len(), expected.len(), "case {i} {name}");
            for (found, expected) in found.iter().zip(expected) {
                let wrong = filled(found)
                    .values()
                    .iter()
                    .zip(filled(&pixels(expected)).values())
                    .filter(|(a, b)| a != b)
                    .count();
                // Where crossings lie close together, as on curved words, Clipper's own rounding moves a few pixels.
                let allowed = if polygon.points().len() == 4 { 0 } else { 8 };
                assert!(wrong <= allowed, "case {i} {name}: {wrong} pixels, {found:?} {expected}");
            }
        }
    }
}

#[test]
fn outlines_are_those_of_opencv() {
    for (i, case) in cases("contours").iter().enumerate() {
        let found = find_contours(&bitmap(&case["rows"]));
        let expected = case["contours"].as_array().unwrap();
        assert_eq!(found.len(), expected.len(), "case {i}");
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found.pixels, pixels(&expected["points"]), "case {i}");
            assert_eq!(found.area(), expected["area"].as_f64().unwrap());
            let outline = found.points();
            let rect = min_area_rect(&outline).unwrap();
            let sides = [&expected["sides"][0], &expected["sides"][1]].map(|v| v.as_f64().unwrap());
            let area = sides[0] * sides[1];
            assert!((rect.shorter * rect.longer - area).abs() < 1e-4 * (1.0 + area), "case {i}: {rect:?} {sides:?}");
            let n = outline.len();
            let length: f64 = (0..n).map(|j| outline[j].distance(outline[(j + 1) % n])).sum();
            assert_eq!(
                simplify_closed(&outline, 0.02 * length),
                points(&expected["approximation"]),
                "case {i}: {outline:?}"
            );
        }
    }
}

#[test]
fn overlaps_are_those_of_shapely() {
    for case in cases("overlap") {
        let (a, b) = (polygon(&case["a"]), polygon(&case["b"]));
        assert!((intersection_area(&a, &b) - case["common"].as_f64().unwrap()).abs() < 1e-4);
        assert!((iou(&a, &b) - case["iou"].as_f64().unwrap()).abs() < 1e-6);
    }
}

#[test]
fn polygons_that_cross_themselves_are_those_of_shapely() {
    for case in cases("simple") {
        assert_eq!(polygon(&case["points"]).is_simple(), case["simple"].as_bool().unwrap(), "{}", case["points"]);
    }
}

/// Corners anywhere, or on a small grid, where they coincide and lie on lines.
fn any_polygon() -> impl Strategy<Value = Polygon> {
    let near = (-8..40_i32, -8..40_i32).prop_map(|(x, y)| Point::new(x.into(), y.into()));
    let far = (-1e6..1e6_f64, -1e6..1e6_f64).prop_map(|(x, y)| Point::new(x, y));
    let points = prop_oneof![proptest::collection::vec(near, 3..9), proptest::collection::vec(far, 3..5),];
    points.prop_map(|points| Polygon::new(points).unwrap())
}

proptest! {
    #[test]
    fn no_polygon_does_any_harm(a in any_polygon(), b in any_polygon(), distance in -50.0..50.0_f64) {
        for outline in offset_polygon(&a, distance) {
            prop_assert!(outline.len() >= 3);
        }
        let common = intersection_area(&a, &b);
        prop_assert!(common >= 0.0 && (0.0..=1.0).contains(&iou(&a, &b)));
        let rect = min_area_rect(a.points()).unwrap();
        prop_assert!(rect.shorter >= 0.0 && rect.shorter <= rect.longer);
        let corners: Vec<Pixel> = a.points().iter().map(|p| p.truncated()).collect();
        let covered = filled(&corners).count();
        prop_assert!(covered <= SIZE.area());
    }

    /// Growing keeps what there was, shrinking adds nothing (but for half a pixel of rounding).
    #[test]
    fn offsets_enclose_each_other(x in 0..20_i32, y in 0..20_i32, w in 12..40_i32, h in 12..40_i32, d in 1.0..5.0_f64) {
        let polygon = Polygon::rectangle(x.into(), y.into(), w.into(), h.into());
        let of = |distance: f64| -> Polygon {
            let outlines = offset_polygon(&polygon, distance);
            Polygon::new(outlines[0].iter().map(|&p| p.into()).collect()).unwrap()
        };
        let (shrunk, grown) = (of(-d), of(d));
        prop_assert!((intersection_area(&shrunk, &polygon) - shrunk.area()).abs() < 1e-3 * polygon.area());
        prop_assert!((intersection_area(&grown, &polygon) - polygon.area()).abs() < 1e-3 * polygon.area());
    }

    #[test]
    fn outlines_enclose_their_pixels(values in proptest::collection::vec(any::<bool>(), 12 * 9)) {
        let mask = Mask::new(Size::new(12, 9), values).unwrap();
        let contours = find_contours(&mask);
        prop_assert_eq!(contours.is_empty(), mask.count() == 0);
        for contour in contours {
            prop_assert!(contour.pixels.iter().all(|p| mask.get(p.x as isize, p.y as isize) == Some(true)));
            prop_assert!(!simplify_closed(&contour.points(), 1.0).is_empty());
        }
    }
}

//! Plane geometry against pyclipper, OpenCV and shapely (`tests/geometry/make.py`).

use serde_json::Value;
use zoo_datasets::geometry::{
    Pixel, Point, Polygon, fill_polygon, find_contours, intersection_area, iou, min_area_rect, offset_polygon,
    simplify_closed,
};
use zoo_datasets::{Grid, Mask, Size};

fn cases(kind: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("geometry/cases.json")).unwrap();
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

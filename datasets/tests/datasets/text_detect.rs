//! Detection against OpenCV and pyclipper (`tests/text/make.py`), and robustness against any map.

use proptest::prelude::*;
use serde_json::Value;
use zoo_datasets::geometry::{Point, Polygon, iou};
use zoo_datasets::text::{Detection, detect};
use zoo_datasets::{Grid, Size};
use zoo_settings::{TextDetection, TextShape};

const MAP: Size = Size::new(96, 64);
const IMAGE: Size = Size::new(200, 150);

fn probability(levels: &str) -> Grid<f32> {
    let level = |i: usize| u8::from_str_radix(&levels[2 * i..2 * i + 2], 16).unwrap();
    Grid::new(MAP, (0..MAP.area()).map(|i| (f64::from(level(i)) / 255.0) as f32).collect()).unwrap()
}

fn expected(value: &Value) -> Vec<Detection> {
    let point = |p: &Value| Point::new(p[0].as_f64().unwrap(), p[1].as_f64().unwrap());
    let one = |value: &Value| Detection {
        polygon: Polygon::new(value["points"].as_array().unwrap().iter().map(point).collect()).unwrap(),
        score: value["score"].as_f64().unwrap() as f32,
    };
    value.as_array().unwrap().iter().map(one).collect()
}

#[test]
fn detections_are_those_of_the_reference() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../text/detections.json")).unwrap();
    let mut compared = 0;
    for (i, case) in cases.iter().enumerate() {
        let map = probability(case["levels"].as_str().unwrap());
        for (shape, name) in [(TextShape::Box, "boxes"), (TextShape::Polygon, "polygons")] {
            let config = TextDetection { shape, min_score: 0.5, ..Default::default() };
            let (found, expected) = (detect(&map, IMAGE, &config), expected(&case[name]));
            assert_eq!(found.len(), expected.len(), "case {i} {name}");
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found.score - expected.score).abs() < 1e-5, "case {i} {name}: {found:?} {expected:?}");
                // OpenCV's corners are rounded to f32, and halves may then be rounded to the other side.
                let overlap = iou(&found.polygon, &expected.polygon);
                assert!(overlap > 0.97, "case {i} {name}: {overlap} {found:?} {expected:?}");
                compared += 1;
            }
        }
    }
    println!("{compared} detections compared");
    assert!(compared > 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_map_gives_sound_detections(
        values in proptest::collection::vec(prop_oneof![Just(0.0_f32), Just(1.0), any::<f32>()], 24 * 16),
        polygon in any::<bool>(),
    ) {
        let map = Grid::new(Size::new(24, 16), values).unwrap();
        let shape = if polygon { TextShape::Polygon } else { TextShape::Box };
        let config = TextDetection { shape, min_side: 0.0, min_score: 0.0, ..Default::default() };
        for found in detect(&map, IMAGE, &config) {
            prop_assert!(found.polygon.points().len() >= 3);
            let bounds = found.polygon.bounds();
            prop_assert!(bounds.low.x >= 0.0 && bounds.high.x <= 200.0 && bounds.low.y >= 0.0 && bounds.high.y <= 150.0);
        }
    }
}

//! Average precision as pycocotools computes it (`average_precision/make.py`).

use serde_json::Value;
use zoo_datasets::detection::{BoundingBox, Object, Role};
use zoo_tasks::metrics::{AveragePrecision, ImageBoxes, ScoredBox};

/// Number of the image, class, box, and what follows.
fn row(value: &Value) -> (u64, usize, BoundingBox, Vec<f64>) {
    let numbers: Vec<f64> = value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect();
    let bounds = BoundingBox { x: numbers[2], y: numbers[3], width: numbers[4], height: numbers[5] };
    (numbers[0] as u64, numbers[1] as usize, bounds, numbers[6..].to_vec())
}

#[test]
fn figures_are_those_of_pycocotools() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("average_precision/cases.json")).unwrap();
    for case in cases {
        let rows = |key: &str| case[key].as_array().unwrap().iter().map(row).collect::<Vec<_>>();
        let (truth, found) = (rows("truth"), rows("found"));
        let mut meter = AveragePrecision::new(5);
        for image in 1..=case["images"].as_u64().unwrap() {
            let object = |(_, class, bounds, rest): &(u64, usize, BoundingBox, Vec<f64>)| {
                let role = if rest[1] == 0.0 { Role::Single } else { Role::Crowd };
                Object { class: *class, bounds: *bounds, area: rest[0], role }
            };
            let scored = |(_, class, bounds, rest): &(u64, usize, BoundingBox, Vec<f64>)| ScoredBox {
                class: *class,
                bounds: *bounds,
                score: rest[0],
            };
            let truth: Vec<Object> = truth.iter().filter(|row| row.0 == image).map(object).collect();
            let found: Vec<ScoredBox> = found.iter().filter(|row| row.0 == image).map(scored).collect();
            meter.add(&ImageBoxes { truth: &truth, found: &found });
        }
        let stats = case["stats"].as_object().unwrap();
        let scores = meter.scores();
        assert_eq!(scores.len(), stats.len(), "{scores:?}, not {stats:?}");
        for score in scores {
            let expected = stats[score.metric.name()].as_f64().unwrap();
            assert!((score.value - expected).abs() < 1e-9, "{score:?}, not {expected}");
        }
    }
}

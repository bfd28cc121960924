//! Anchors, their targets, detections and inputs as torchvision computes them (`detection/make.py`).

use serde_json::Value;
use zoo_datasets::detection::{
    AnchorTargets, BACKGROUND, BoundingBox, BoxScenes, Corners, Detected, Fit, Outputs, Pyramid, detect,
};
use zoo_datasets::{Annotated, Image, Normalize, Size};
use zoo_settings::{BoxAnchors, BoxDetection, BoxPreparation, BoxedShapes};

fn cases() -> Value {
    serde_json::from_str(include_str!("../detection/cases.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

fn size(value: &Value) -> Size {
    let sides = numbers(value);
    Size::new(sides[0] as usize, sides[1] as usize)
}

fn corners(value: &Value) -> Vec<Corners> {
    numbers(value).as_chunks::<4>().0.iter().map(|corners| Corners::new(*corners)).collect()
}

fn edges(corners: &Corners) -> [f32; 4] {
    [corners.left, corners.top, corners.right, corners.bottom]
}

fn near(found: &[f32], expected: &[f32], distance: f32) {
    assert_eq!(found.len(), expected.len());
    for (place, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= distance, "{place}: {a}, not {b}");
    }
}

fn pyramid(cases: &Value) -> Pyramid {
    Pyramid::new(&BoxAnchors::default(), size(&cases["size"])).unwrap()
}

#[test]
fn anchors_are_torchvisions() {
    let cases = cases();
    assert_eq!(pyramid(&cases).anchors(), corners(&cases["anchors"]));
}

#[test]
fn targets_are_torchvisions() {
    let cases = cases();
    let pyramid = pyramid(&cases);
    for case in cases["matches"].as_array().unwrap() {
        let classes = numbers(&case["labels"]).into_iter().map(|class| class as usize);
        let objects: Vec<(usize, Corners)> = classes.zip(corners(&case["boxes"])).collect();
        let targets = AnchorTargets::new(&pyramid, &objects, &BoxPreparation::default());
        assert_eq!(targets.labels, numbers(&case["found"]));
        let offsets = targets.offsets.chunks(4).zip(&targets.labels).filter(|(_, label)| **label > BACKGROUND);
        let offsets: Vec<f32> = offsets.flat_map(|(offsets, _)| offsets.to_vec()).collect();
        near(&offsets, &numbers(&case["offsets"]), 1e-6);
    }
}

#[test]
fn detections_are_torchvisions() {
    let cases = cases();
    let pyramid = pyramid(&cases);
    for case in cases["detections"].as_array().unwrap() {
        let count = |key: &str| case[key].as_u64().unwrap() as usize;
        let config = BoxDetection { candidates: count("candidates"), detections: count("most"), ..Default::default() };
        let (logits, offsets) = (numbers(&case["logits"]), numbers(&case["offsets"]));
        let outputs = Outputs { logits: &logits, classes: 5, offsets: &offsets };
        let found = detect(&pyramid, outputs, size(&case["shown"]), &config).unwrap();
        let classes: Vec<f32> = found.iter().map(|one| one.class as f32).collect();
        assert_eq!(classes, numbers(&case["labels"]));
        let scores: Vec<f32> = found.iter().map(|one| one.score).collect();
        near(&scores, &numbers(&case["scores"]), 1e-6);
        let boxes: Vec<f32> = found.iter().flat_map(|one| edges(&one.corners)).collect();
        near(&boxes, &numbers(&case["boxes"]), 1e-4);
    }
}

#[test]
fn inputs_are_torchvisions() {
    for case in cases()["inputs"].as_array().unwrap() {
        let pixels = numbers(&case["pixels"]).into_iter().map(|value| value as u8).collect();
        let image = Image::new(size(&case["size"]), pixels).unwrap();
        let fit = Fit { network: Size::square(32), shorter: 24 };
        let fitted = fit.apply(&image, &Normalize::IMAGENET);
        assert_eq!(fitted.shown, size(&case["shown"]));
        near(&fitted.pixels, &numbers(&case["network"]), 2e-6);
        let [left, top, right, bottom] = numbers(&case["boxes"])[..] else { panic!("four corners") };
        let (left, top, right, bottom) = (f64::from(left), f64::from(top), f64::from(right), f64::from(bottom));
        let bounds = BoundingBox { x: left, y: top, width: right - left, height: bottom - top };
        near(&edges(&fitted.corners(bounds)), &numbers(&case["corners"]), 1e-6);
    }
}

#[test]
fn sizes_are_torchvisions() {
    let fit = Fit { network: Size::square(1333), shorter: 800 };
    for case in cases()["sizes"].as_array().unwrap() {
        let sides: Vec<usize> = numbers(case).into_iter().map(|side| side as usize).collect();
        assert_eq!(fit.shown(Size::new(sides[0], sides[1])), Size::new(sides[2], sides[3]));
    }
}

/// A network that predicts exactly its targets detects the objects, and nothing else.
#[test]
fn targets_are_detected_as_their_objects() {
    let scenes = BoxScenes::new(&BoxedShapes::default(), 0, 20).unwrap();
    let config = BoxAnchors { sizes: vec![12.0, 24.0, 48.0, 96.0, 192.0], ..Default::default() };
    let pyramid = Pyramid::new(&config, Size::square(96)).unwrap();
    for index in 0..scenes.len() {
        let (image, objects) = scenes.render(index);
        let truth: Vec<(usize, Corners)> = objects.iter().map(|one| (one.class, one.bounds.into())).collect();
        let targets = AnchorTargets::new(&pyramid, &truth, &BoxPreparation::default());
        let logit = |label: f32, class: usize| if label == class as f32 { 5.0 } else { -5.0 };
        let logits: Vec<f32> =
            targets.labels.iter().flat_map(|label| (0..5).map(|class| logit(*label, class))).collect();
        let outputs = Outputs { logits: &logits, classes: 5, offsets: &targets.offsets };
        let found = detect(&pyramid, outputs, image.size(), &BoxDetection::default()).unwrap();
        assert_eq!(found.len(), objects.len(), "scene {index}");
        for (class, corners) in truth {
            let fits = |one: &Detected| one.class == class && one.corners.iou(&corners) > 0.999;
            assert!(found.iter().any(fits), "scene {index}: {corners:?}");
        }
    }
}

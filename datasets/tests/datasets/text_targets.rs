//! Targets of DB against the authors' target maker, whose maps are in the golden of db_resnet.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use zoo_datasets::Size;
use zoo_datasets::geometry::{Point, Polygon};
use zoo_datasets::text::{TextRegion, TextTargets};

fn numbers(tensors: &SafeTensors<'_>, name: &str) -> Vec<f64> {
    let tensor = tensors.tensor(name).unwrap();
    match tensor.dtype() {
        Dtype::I8 => tensor.data().iter().map(|&b| f64::from(b as i8)).collect(),
        Dtype::F32 => tensor.data().as_chunks::<4>().0.iter().map(|&b| f64::from(f32::from_le_bytes(b))).collect(),
        Dtype::F64 => tensor.data().as_chunks::<8>().0.iter().map(|&b| f64::from_le_bytes(b)).collect(),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn targets_are_those_of_the_authors() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../golden/db_resnet");
    let manifest: Value = serde_json::from_slice(&fs::read(folder.join("step.json")).unwrap()).unwrap();
    let bytes = fs::read(folder.join("step.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let [shrink, mask, threshold, threshold_mask] =
        ["gt", "mask", "thresh_map", "thresh_mask"].map(|name| numbers(&tensors, &format!("input/{name}")));
    let size = Size::square(320);
    for (n, polygons) in manifest["polygons"].as_array().unwrap().iter().enumerate() {
        let region = |value: &Value| {
            let corners = value["corners"].as_array().unwrap();
            let corner = |p: &Value| Point::new(p[0].as_f64().unwrap(), p[1].as_f64().unwrap());
            let polygon = Polygon::new(corners.iter().map(corner).collect()).unwrap();
            TextRegion { polygon, text: String::new(), ignore: value["ignore"].as_bool().unwrap() }
        };
        let regions: Vec<TextRegion> = polygons.as_array().unwrap().iter().map(region).collect();
        let targets = TextTargets::new(size, &regions, &Default::default());
        let ignored: Vec<bool> = manifest["ignored_after_target_making"][n]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v.as_bool().unwrap())
            .collect();
        assert_eq!(targets.ignored, ignored);
        let of_image = |all: &[f64]| all[n * size.area()..(n + 1) * size.area()].to_vec();
        let differing = |found: &[f32], expected: &[f64], tolerance: f64| {
            found.iter().zip(of_image(expected)).filter(|(f, e)| (f64::from(**f) - e).abs() > tolerance).count()
        };
        assert_eq!(differing(targets.shrink.values(), &shrink, 0.0), 0);
        assert_eq!(differing(targets.threshold_mask.values(), &threshold_mask, 0.0), 0);
        assert_eq!(differing(targets.threshold.values(), &threshold, 1e-6), 0);
        // The golden cleared some background pixels in addition: `pixels_masked_for_a_clear_ohem_cut`.
        let expected = of_image(&mask);
        let kept = targets.shrink_mask.values().iter().zip(&expected).filter(|(f, e)| **f == 0.0 && **e == 1.0).count();
        assert_eq!(kept, 0);
        let cleared = targets.shrink_mask.values().iter().filter(|&&v| v == 0.0).count();
        let all = expected.iter().filter(|&&v| v == 0.0).count();
        println!("image {n}: {cleared} masked pixels, {} more for the golden", all - cleared);
    }
}

proptest! {
    /// Whatever the polygons, targets keep their ranges; the threshold map is learnt around shrunken text.
    #[test]
    fn any_text_has_sound_targets(
        corners in proptest::collection::vec((-40.0..120.0_f64, -40.0..120.0_f64), 3..20),
        ignore in any::<bool>(),
    ) {
        let polygon = Polygon::new(corners.into_iter().map(|(x, y)| Point::new(x, y)).collect()).unwrap();
        let region = TextRegion { polygon, text: String::new(), ignore };
        let targets = TextTargets::new(Size::new(80, 60), &[region], &Default::default());
        let either = |v: &f32| *v == 0.0 || *v == 1.0;
        prop_assert!(targets.shrink.values().iter().all(either) && targets.shrink_mask.values().iter().all(either));
        prop_assert!(targets.threshold.values().iter().all(|v| (0.299..0.701).contains(v)));
        let learnt = targets.shrink.values().contains(&1.0);
        prop_assert_eq!(targets.ignored[0], !learnt);
        prop_assert_eq!(targets.shrink_mask.values().contains(&0.0), !learnt);
    }
}

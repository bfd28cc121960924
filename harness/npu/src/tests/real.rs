//! A step of a real NPU, whose table of kernels is not part of this project: tests/fixtures/profiles has its recipe.

use crate::{Calibration, Device, DeviceLibrary, Work, calibrate, measured, profile};
use zoo_measured::Recording;
use zoo_recipe::{Library, LoadOptions, Recipe};

fn of_910b() -> (Recipe, Device, Recording) {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let fixtures = format!("{root}/tests/fixtures/profiles");
    let recipe = Library::new([fixtures]).load("gpt_layer_tp8", &LoadOptions::default()).unwrap().recipe;
    let device = DeviceLibrary::new([format!("{root}/recipes")]).load("ascend910b").unwrap();
    let table = format!("{root}/../shared/data/profiles/gpt-layer-910b-tp8-kernel_details.csv");
    (recipe, device, zoo_measured::open(table.as_ref()).unwrap())
}

#[test]
#[ignore = "needs ../shared"]
fn a_table_of_a_910b_is_matched_to_its_recipe() {
    let (recipe, device, recording) = of_910b();
    let profile = profile(&recipe, &device, Work::Train).unwrap();
    let measured = measured(&recording, &recipe, &device, &profile, Work::Train).unwrap();
    println!("{:.1} % matched", 100.0 * measured.matched_share);
    assert!(measured.matched_share >= 0.95, "{}", measured.matched_share);
}

/// The rates are those of the table in TFLOP/s and GB/s; each range is that of its kernels.
#[test]
#[ignore = "needs ../shared"]
fn a_910b_is_fitted_to_half_of_its_kernels() {
    let (recipe, device, recording) = of_910b();
    let fitted = calibrate(&recipe, &device, &[recording]).unwrap();
    println!("{:#?}\n{:?}", fitted.fitted, fitted.kernels);
    let rates = [
        ("MatMul", 280.0..318.0),
        ("ApplyAdamW", 1160.0..1280.0),
        ("LayerNorm", 560.0..640.0),
        ("Cast", 1080.0..1400.0),
    ];
    for (operator, range) in rates {
        let rate = fitted.operators.iter().find(|rate| rate.operator == operator).unwrap();
        println!("{rate:?}");
        assert!(range.contains(&rate.rate), "{rate:?}");
    }
    let Calibration { before, after, before_by_count, after_by_count, .. } = fitted;
    println!("{before:.3} to {after:.3} by time, {before_by_count:.3} to {after_by_count:.3} by number");
    assert!(after < 0.1 && after_by_count < 0.1);
}

//! Recipes against goldens under other conditions than their own: other salt, batch, size, classes, learning rate.

use std::path::{Path, PathBuf};
use zoo_engine::{Kernels, Level, Options};
use zoo_golden::{
    CheckOptions, Golden, Precision, Report, Stage, Verdict, check,
    mutants::{self, Planting},
};
use zoo_recipe::{Library, LoadOptions, Recipe};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn recipe(name: &str) -> Recipe {
    Library::new([root().join("recipes")]).load(name, &LoadOptions::default()).unwrap().recipe
}

fn options(precision: Precision, kernels: Kernels) -> CheckOptions {
    CheckOptions { precision, engine: Options { kernels, threads: None, level: None }, room: None }
}

fn run(name: &str, fixture: &str, options: &CheckOptions) -> Report {
    let golden = Golden::read(&root().join("tests/fixtures/golden").join(fixture)).unwrap();
    check(&recipe(name), &golden, &root().join("golden").join(name), options, &mut |_| {}).unwrap()
}

fn expect_pass(report: &Report) {
    for stage in &report.stages {
        println!(
            "{:<12} {:>4} {:?} median {:?} worst {:?}",
            stage.stage.to_string(),
            stage.tensors,
            stage.verdict,
            stage.median_ratio,
            stage.worst
        );
    }
    assert_eq!(report.verdict, Verdict::Pass, "{:#?}", report.first_divergence);
}

#[test]
fn resnet50_agrees_in_f64() {
    expect_pass(&run("resnet50", "resnet50-small.json", &options(Precision::F64, Kernels::Reference)));
}

#[test]
fn resnet50_agrees_with_reference_kernels_in_f32() {
    expect_pass(&run("resnet50", "resnet50-small.json", &options(Precision::F32, Kernels::Reference)));
}

#[test]
fn resnet50_agrees_with_fast_kernels() {
    for fusion in [false, true] {
        expect_pass(&run("resnet50", "resnet50-small.json", &options(Precision::F32, Kernels::Fast { fusion })));
    }
}

/// Each level of vector instructions adds up in an order of its own; all have to be as near to the truth. The other
/// tests compute at the processor's best one.
#[test]
fn weaker_instructions_agree() {
    for level in [Level::Portable, Level::Avx2, Level::Avx512] {
        expect_pass(&run("resnet50", "resnet50-small.json", &at(level)));
    }
}

#[test]
#[ignore = "takes minutes: portable kernels on two large networks"]
fn weaker_instructions_agree_on_text_and_tracking() {
    for level in [Level::Portable, Level::Avx2, Level::Avx512] {
        expect_pass(&run("siammask", "siammask-small.json", &at(level)));
        expect_pass(&run("db_resnet-original", "db-small.json", &at(level)));
    }
}

fn at(level: Level) -> CheckOptions {
    let mut options = options(Precision::F32, Kernels::Fast { fusion: true });
    options.engine.level = Some(level);
    options
}

#[test]
fn alexnet_agrees_in_f64() {
    expect_pass(&run("alexnet", "alexnet-salted.json", &options(Precision::F64, Kernels::Reference)));
}

#[test]
fn text_and_tracking_agree_in_f64() {
    let options = options(Precision::F64, Kernels::Reference);
    for (name, fixture) in [("db_resnet-original", "db-small.json"), ("siammask", "siammask-small.json")] {
        expect_pass(&run(name, fixture, &options));
    }
}

#[test]
fn text_and_tracking_agree_with_fast_kernels() {
    for (name, fixture) in [("db_resnet-original", "db-small.json"), ("siammask", "siammask-small.json")] {
        for fusion in [false, true] {
            expect_pass(&run(name, fixture, &options(Precision::F32, Kernels::Fast { fusion })));
        }
    }
}

#[test]
fn every_planted_fault_is_caught_in_its_stage() {
    let golden = Golden::read(&root().join("tests/fixtures/golden/resnet50-small.json")).unwrap();
    let options = options(Precision::F64, Kernels::Reference);
    let folder = root().join("golden/resnet50");
    let planting = mutants::run(&recipe("resnet50"), &golden, &folder, &options, &mut |_| {}).unwrap();
    let Planting::Outcomes(outcomes) = planting else { panic!("it fails without a fault: {planting:#?}") };
    for o in &outcomes {
        println!("{:<60} {:<12} {:?} {:?}", o.name, o.expected.to_string(), o.caught, o.tensor);
    }
    assert!(outcomes.len() >= 25, "{}", outcomes.len());
    let wrong: Vec<_> = outcomes.iter().filter(|o| o.caught != Some(o.expected)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A recipe that fails by itself would catch every fault.
#[test]
fn no_fault_is_planted_in_a_recipe_that_fails() {
    let golden = Golden::read(&root().join("tests/fuzz/seeds/tiny.json")).unwrap();
    let load = LoadOptions { profile: None, sets: vec!["model.bn1.eps=1e-3".to_owned()] };
    let recipe = Library::new([root().join("tests/fixtures/recipes")]).load("tiny", &load).unwrap().recipe;
    let options = options(Precision::F64, Kernels::Reference);
    match mutants::run(&recipe, &golden, &root(), &options, &mut |_| {}).unwrap() {
        Planting::Unsound(report) => {
            let failed = report.stages.iter().find(|stage| stage.verdict == Verdict::Fail).map(|stage| stage.stage);
            assert_eq!(failed, Some(Stage::Forward));
        }
        Planting::Outcomes(outcomes) => panic!("{outcomes:#?}"),
    }
}

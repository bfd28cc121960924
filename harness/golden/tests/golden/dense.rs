//! Text detector and tracker, narrowed: planted faults are caught in their stages, and recorded goldens hold under
//! other conditions.

use std::path::{Path, PathBuf};
use zoo_engine::{Kernels, Options};
use zoo_golden::{
    CheckOptions, Golden, Precision, Stage, Verdict, check,
    mutants::{self, Planting},
    record::{RecordOptions, record},
};
use zoo_recipe::{Library, LoadOptions, Recipe};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const TEXT: [&str; 4] = [
    "model.inputs.image=[3,64,96]",
    "model.blocks.backbone.args.width=8",
    "model.blocks.decoder.args.width=24",
    "model.blocks.decoder.args.inner=8",
];
const TRACKER: [&str; 4] = [
    "model.inputs.search=[3,175,175]",
    "model.blocks.resnet.args.width=8",
    "model.blocks.reduction.args.width=24",
    "model.blocks.correlation.args.width=24",
];

// Two by two positions: the refinement computes a window of 127 x 127 at each.
const REFINEMENT: [&str; 4] = [
    "model.inputs.search=[3,135,135]",
    "model.blocks.resnet.args.width=8",
    "model.blocks.reduction.args.width=256",
    "model.blocks.correlation.args.width=24",
];

/// A recipe, narrowed, and a golden of its own step under other conditions.
fn narrowed(name: &str, sets: &[&str]) -> (Recipe, Golden, tempfile::TempDir) {
    let load = LoadOptions { profile: None, sets: sets.iter().map(|s| s.to_string()).collect() };
    let mut recipe = Library::new([root().join("recipes")]).load(name, &load).unwrap().recipe;
    if let Some(golden) = &mut recipe.golden {
        // The recorded step is the main run.
        golden.variant = None;
        golden.declares.retain(|d| !d.path.starts_with("@root"));
    }
    let mut recorded = recipe.clone();
    if let Some(parts) = recipe.golden.as_ref().and_then(|golden| golden.parts.clone()) {
        recorded.train.parts = parts;
    }
    let folder = tempfile::tempdir().unwrap();
    let stem = folder.path().join("step");
    let options = RecordOptions { batch: 2, learning_rate: 0.003, salt: "narrow:".into(), samples: 64 };
    record(&recorded, &options, &stem, &mut |_, _| ()).unwrap();
    (recipe, Golden::read(&stem.with_extension("json")).unwrap(), folder)
}

fn options(precision: Precision, kernels: Kernels) -> CheckOptions {
    CheckOptions { precision, engine: Options { kernels, threads: None, level: None }, room: None }
}

#[test]
fn narrowed_networks_agree_with_their_recordings() {
    for (name, sets) in [("db_resnet-original", TEXT), ("db_resnet", TEXT), ("siammask", TRACKER)] {
        let (recipe, golden, folder) = narrowed(name, &sets);
        let report =
            check(&recipe, &golden, folder.path(), &options(Precision::F64, Kernels::Reference), &mut |_| {}).unwrap();
        assert_eq!(report.verdict, Verdict::Pass, "{name}: {:#?}", report.first_divergence);
    }
}

fn every_fault_is_caught(name: &str, sets: &[&str], least: usize) {
    let (recipe, golden, folder) = narrowed(name, sets);
    let options = options(Precision::F64, Kernels::Reference);
    let planting = mutants::run(&recipe, &golden, folder.path(), &options, &mut |_| {}).unwrap();
    let Planting::Outcomes(outcomes) = planting else { panic!("{name} fails without a fault: {planting:#?}") };
    for o in &outcomes {
        println!("{:<70} {:<12} {:?} {:?}", o.name, o.expected.to_string(), o.caught, o.tensor);
    }
    assert!(outcomes.len() >= least, "{}", outcomes.len());
    // A recorded golden says nothing about preprocessing, schedule and initial distributions, which are caught beside
    // the reference's; where it does speak of names and shapes, it has to catch.
    let unspoken = |o: &&mutants::Outcome| o.expected <= Stage::Init && o.caught.is_none();
    let wrong: Vec<_> = outcomes.iter().filter(|o| o.caught != Some(o.expected) && !unspoken(o)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_fault_planted_in_the_text_detector_is_caught() {
    every_fault_is_caught("db_resnet-original", &TEXT, 40);
}

#[test]
fn every_fault_planted_in_its_port_is_caught() {
    every_fault_is_caught("db_resnet", &TEXT, 35);
}

#[test]
fn every_fault_planted_in_the_refinement_is_caught() {
    every_fault_is_caught("siammask-sharp", &REFINEMENT, 35);
}

#[test]
fn every_fault_planted_in_the_tracker_is_caught() {
    every_fault_is_caught("siammask", &TRACKER, 40);
}

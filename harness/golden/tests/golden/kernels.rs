//! Every node of a step against its operator in f64: a small error in one tile is found.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use zoo_engine::{Kernels, Options};
use zoo_golden::{
    CheckOptions, Golden, Precision,
    kernels::{Planted, sensitivity},
};
use zoo_recipe::{Library, LoadOptions, Recipe};

/// The relative error that has to be found.
const ERROR: f64 = 1e-4;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn recipe(name: &str) -> Recipe {
    Library::new([root().join("recipes")]).load(name, &LoadOptions::default()).unwrap().recipe
}

fn plant(name: &str, golden: &str, seed: u64) -> Vec<Planted> {
    let engine = Options { kernels: Kernels::Fast { fusion: true }, threads: None, level: None };
    let options = CheckOptions { precision: Precision::F32, engine, room: None };
    let golden = Golden::read(&root().join(golden)).unwrap();
    sensitivity(&recipe(name), &golden, &options, ERROR, seed).unwrap()
}

/// Planted, found, largest share of a bound that a sound node takes, smallest error found: median and largest.
type Row = (usize, usize, f64, f64, f64);

/// By operator and result: how many errors were planted and found, how near to its bound a sound node comes, and the
/// smallest error that would have been found in half of the tiles and in all.
fn table(planted: &[Planted]) -> BTreeMap<(&str, usize), Row> {
    let mut by_kind: BTreeMap<(&str, usize), Vec<&Planted>> = BTreeMap::new();
    planted.iter().for_each(|p| by_kind.entry((p.op, p.result)).or_default().push(p));
    let row = |all: Vec<&Planted>| {
        let mut smallest: Vec<f64> = all.iter().map(|p| ERROR / p.after).collect();
        smallest.sort_by(f64::total_cmp);
        let found = all.iter().filter(|p| p.after > 1.0).count();
        let before = all.iter().map(|p| p.before).fold(0.0, f64::max);
        (all.len(), found, before, smallest[all.len() / 2], smallest[all.len() - 1])
    };
    by_kind.into_iter().map(|(kind, all)| (kind, row(all))).collect()
}

fn show(name: &str, planted: &[Planted]) {
    for ((op, result), (all, found, before, median, worst)) in table(planted) {
        println!(
            "{name:<20} {op:<26} {result} {found:>4} of {all:>4}  sound {before:.3}  smallest {median:.1e} {worst:.1e}"
        );
    }
    for missed in planted.iter().filter(|p| p.after <= 1.0) {
        println!("  missed: {missed:?}");
    }
}

#[test]
fn sound_kernels_are_within_their_bounds_and_a_small_error_in_a_tile_is_not() {
    let planted = plant("resnet50", "tests/fixtures/golden/resnet50-small.json", 1);
    show("resnet50", &planted);
    for p in &planted {
        assert!(p.before <= 1.0, "{p:?}");
        assert!(p.after > 1.0, "{p:?}");
    }
    assert!(planted.len() > 500, "{}", planted.len());
}

#[test]
#[ignore = "takes minutes: every kernel of every recipe with a golden"]
fn so_it_is_in_every_recipe() {
    let only = std::env::var("RECIPES").unwrap_or_default();
    for (name, _) in Library::new([root().join("recipes")]).list() {
        let golden = format!("golden/{name}/step.json");
        if !root().join(&golden).exists() || !(only.is_empty() || only.split(',').any(|wanted| wanted == name)) {
            continue;
        }
        show(&name, &plant(&name, &golden, 1));
    }
}

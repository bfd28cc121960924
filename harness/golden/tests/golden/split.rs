//! Split steps against one device.

use std::path::Path;
use zoo_golden::{
    Precision,
    split::{SplitOptions, SplitReport, check_split},
};
use zoo_recipe::{Library, LoadOptions, Parallel, Recipe};

fn recipe(name: &str, profile: Option<&str>, sets: &[&str]) -> Recipe {
    let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    let sets = sets.iter().map(|set| (*set).to_owned()).collect();
    let options = LoadOptions { profile: profile.map(str::to_owned), sets };
    Library::new([recipes]).load(name, &options).unwrap().recipe
}

fn checked(recipe: &Recipe, parallel: &str, batch: usize, precision: Precision) -> SplitReport {
    let parallel: Parallel = parallel.parse().unwrap();
    let options = SplitOptions { precision, batch, learning_rate: recipe.schedule.peak_lr() };
    check_split(recipe, &parallel, &options, &mut |_| {}).unwrap()
}

/// Llama with two blocks of two heads of keys, and few tokens.
const LLAMA: [&str; 2] =
    ["model.inputs.tokens.indices=[8]", "model.body[0].scope.body[1].scope.body[0].stack.repeat=2"];

#[test]
fn a_llama_on_two_and_four_ranks() {
    let recipe = recipe("llama", None, &LLAMA);
    for parallel in ["tensor=2", "tensor=2,sequence", "data=2", "data=2,tensor=2,sequence"] {
        let report = checked(&recipe, parallel, 2, Precision::F64);
        assert!(report.passed(), "{parallel}: {:#?}", report.first_divergence);
    }
}

//! What the check is worth: known mistakes planted in every recipe, and how many are found, in the stage that they
//! belong to.
//!
//! Four recipes (alexnet, resnet50, DB, SiamMask) are judged against PyTorch's small goldens, siammask-sharp against
//! its full one. For the others the engine records a golden of a small version of the recipe first (the mistake is then
//! planted in a recipe that passes by construction), and schedule, preprocessing and initialisers are the reference's.
//! The normal tests do the recipes of [`QUICK`]; all of them, for the table of docs/reliability.md, take half an hour:
//!
//!     cargo test --release -p zoo-golden -- mutation_score --ignored --nocapture

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use zoo_engine::{Kernels, Options};
use zoo_golden::{
    CheckOptions, Golden, Precision, Stage,
    mutants::{self, Outcome, Planting},
    record::{RecordOptions, record},
};
use zoo_recipe::{Library, LoadOptions, Recipe};

/// The truth that a recipe is judged by.
#[derive(Clone, Copy)]
enum Truth {
    /// PyTorch's small golden among the fixtures.
    PyTorch(&'static str),
    /// The recipe's own golden.
    Full,
    /// The engine's own step on images of this size.
    Recorded(usize),
}
use Truth::{Full, PyTorch, Recorded};

/// Recipes that are judged in seconds.
const QUICK: &[(&str, Truth)] = &[
    ("alexnet", PyTorch("alexnet-salted")),
    ("squeezenet1_1", Recorded(64)),
    ("mobilenetv2", Recorded(64)),
    ("resnet18", Recorded(64)),
];

/// Recipes that take minutes.
const SLOW: &[(&str, Truth)] = &[
    ("resnet50", PyTorch("resnet50-small")),
    ("db_resnet-original", PyTorch("db-small")),
    ("siammask", PyTorch("siammask-small")),
    ("siammask-sharp", Full),
    ("alexnet-torchvision", Recorded(64)),
    ("resnet34", Recorded(64)),
    ("resnet101", Recorded(64)),
    ("resnet152", Recorded(64)),
    ("resnext50_32x4d", Recorded(64)),
    ("wide_resnet50_2", Recorded(64)),
    ("densenet121", Recorded(64)),
    ("googlenet", Recorded(64)),
    ("squeezenet1_0", Recorded(64)),
    ("inception_v3", Recorded(96)),
    ("db_resnet18", Recorded(64)),
    ("db_resnet", Recorded(64)),
    ("mobilenet_v3_large", Full),
    ("efficientnet_b0", Full),
    ("convnext_tiny", Full),
    ("se_resnet50", Recorded(64)),
    ("vit_b_16", Full),
    ("swin_t", Full),
    ("gpt_shakespeare", Full),
    ("gpt2", Full),
    ("llama", Full),
    ("qwen3", Full),
    ("qwen3_moe", Full),
    ("bert_base", Full),
    ("unet_medical", Full),
    ("deeplabv3_resnet50", Full),
    ("resnet20", Full),
    ("resnet8_tiny", Full),
    ("airbench94", Full),
    ("lenet", Full),
    ("vgg11_bn", Recorded(32)),
    ("vgg16", Recorded(32)),
    ("vgg19", Recorded(32)),
];

/// Recipes that are another's in larger numbers, and judged there: bert_large has 336 M parameters.
const LARGER: &[&str] = &["bert_large", "swin_b", "vit_l_16"];

/// Recipes whose data zoo cannot read yet: they have neither a preprocessing nor a training to judge.
const UNREAD: &[&str] = &["retinanet_resnet50_fpn"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn load(name: &str, sets: Vec<String>) -> Recipe {
    let library = Library::new([root().join("recipes")]);
    library.load(name, &LoadOptions { profile: None, sets }).unwrap_or_else(|errors| panic!("{errors}")).recipe
}

/// Plants every mistake that a recipe has a place for. Without any, it passes.
fn outcomes(name: &str, truth: &Truth) -> Vec<Outcome> {
    let options = CheckOptions {
        precision: Precision::F64,
        engine: Options { kernels: Kernels::Reference, threads: None, level: None },
        room: None,
    };
    let recorded = TempDir::new().unwrap();
    let (recipe, golden) = match truth {
        PyTorch(file) => (load(name, Vec::new()), root().join(format!("tests/fixtures/golden/{file}.json"))),
        Full => (load(name, Vec::new()), root().join("golden").join(name).join("step.json")),
        Recorded(side) => {
            let small = load(name, vec![format!("model.inputs.image=[3, {side}, {side}]")]);
            let stem = recorded.path().join("golden");
            let learning_rate = small.schedule.peak_lr().min(0.1);
            let options = RecordOptions { batch: 2, learning_rate, salt: String::new(), samples: 256 };
            record(&small, &options, &stem, &mut |_, _| ()).unwrap();
            // The engine's own learning rates prove nothing: PyTorch's lie in the recipe's folder.
            let manifest = stem.with_extension("json");
            let mut content: serde_json::Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
            content.as_object_mut().unwrap().remove("schedule").unwrap();
            fs::write(&manifest, content.to_string()).unwrap();
            (load(name, Vec::new()), manifest)
        }
    };
    let golden = Golden::read(&golden).unwrap();
    let planting = mutants::run(&recipe, &golden, &root().join("golden").join(name), &options, &mut |_| {}).unwrap();
    let Planting::Outcomes(outcomes) = planting else { panic!("{name} fails without a fault: {planting:#?}") };
    outcomes
}

/// Counts of what was planted, found, and found in the right stage.
#[derive(Clone, Copy, Default)]
struct Count {
    planted: usize,
    found: usize,
    right: usize,
}

impl Count {
    fn add(&mut self, outcome: &Outcome) {
        self.planted += 1;
        self.found += usize::from(outcome.caught.is_some());
        self.right += usize::from(outcome.caught == Some(outcome.expected));
    }
}

/// None is missed, and the stage is right in 95 of 100, where `planted` or more were planted.
fn expect_score(recipes: &[(&str, Truth)], planted: usize) {
    let (mut by_stage, mut by_recipe, mut all) = (BTreeMap::<Stage, Count>::new(), Vec::new(), Count::default());
    let mut strange = Vec::new();
    for (name, truth) in recipes {
        let mut count = Count::default();
        for outcome in outcomes(name, truth) {
            by_stage.entry(outcome.expected).or_default().add(&outcome);
            count.add(&outcome);
            all.add(&outcome);
            if outcome.caught != Some(outcome.expected) {
                let line = format!("{name}: {} ({}): {:?}", outcome.name, outcome.expected, outcome.caught);
                println!("{line}");
                strange.push(line);
            }
        }
        println!("{name}: {} of {} found, {} in the right stage", count.found, count.planted, count.right);
        by_recipe.push((name.to_string(), count));
    }
    println!("| | planted | found | in the right stage |\n| --- | --- | --- | --- |");
    let stages = by_stage.into_iter().map(|(stage, count)| (stage.to_string(), count));
    for (name, count) in stages.chain(by_recipe).chain([("all".to_owned(), all)]) {
        println!("| {name} | {} | {} | {} |", count.planted, count.found, count.right);
    }
    assert_eq!(all.found, all.planted, "{strange:#?}");
    assert!(all.planted >= planted && 100 * all.right >= 95 * all.planted, "{} planted: {strange:#?}", all.planted);
}

#[test]
fn no_recipe_is_forgotten() {
    let judged = QUICK.iter().chain(SLOW).map(|(name, _)| name).chain(LARGER).chain(UNREAD);
    let judged: BTreeSet<_> = judged.map(|name| format!("{name}.yaml")).collect();
    let files = fs::read_dir(root().join("recipes")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(judged, names.filter(|name| name.ends_with(".yaml")).collect());
}

/// A stage without data passes whatever there is.
#[test]
fn no_recipe_lacks_the_facts_beside_its_step() {
    for (name, _) in QUICK.iter().chain(SLOW) {
        let sees_images = load(name, Vec::new()).model.inputs.values().any(|input| input.image().is_some());
        let preprocessed = sees_images.then_some("preprocess.json");
        for fact in ["schedule.json", "init.json"].into_iter().chain(preprocessed) {
            assert!(
                root().join("golden").join(name).join(fact).exists(),
                "golden/{name} lacks {fact}: see golden/export"
            );
        }
    }
}

#[test]
fn no_mistake_is_missed_in_some_recipes() {
    expect_score(QUICK, 100);
}

#[test]
#[ignore = "takes minutes"]
fn no_mistake_is_missed_in_any_recipe() {
    expect_score(&[QUICK, SLOW].concat(), 150);
}

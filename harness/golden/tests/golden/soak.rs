//! Checks under drawn conditions: other salts, batches, sizes and learning rates. None may fail.

use std::path::{Path, PathBuf};
use zoo_datasets::Rng;
use zoo_engine::{Kernels, Options};
use zoo_golden::{
    CheckOptions, Golden, GoldenError, Precision, Stage, Verdict, check,
    record::{RecordOptions, record},
};
use zoo_recipe::{Library, LoadOptions, Recipe};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What is drawn.
#[derive(Debug)]
struct Drawn {
    salt: String,
    batch: usize,
    side: Option<usize>,
    learning_rate: f64,
}

impl Drawn {
    /// The `n`-th draw; networks of one image also get another size of it.
    fn of(n: u64, recipe: &Recipe) -> Self {
        let mut rng = Rng::new(n, 1, 0);
        let one_image = recipe.model.inputs.len() == 1;
        Self {
            salt: format!("soak {n}:"),
            batch: 2 + rng.below(3),
            side: one_image.then(|| 96 + 32 * rng.below(3)),
            learning_rate: 10f64.powf(rng.uniform(-4.0, -2.0)),
        }
    }
}

/// The recipe with images of this size.
fn sized(recipe: &Recipe, side: Option<usize>) -> Recipe {
    let mut recipe = recipe.clone();
    if let Some(side) = side {
        recipe.model.inputs.values_mut().for_each(|shape| shape.set_side(side));
    }
    recipe
}

/// `SOAK=200` draws so many conditions, `FROM=100` begins with another one; recipes take turns.
#[test]
#[ignore = "takes an hour for two hundred draws"]
fn no_drawn_condition_fails() {
    let number = |name: &str, otherwise: u64| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let library = Library::new([root().join("recipes")]);
    let load = |name: &str| library.load(name, &LoadOptions::default()).ok().map(|loaded| loaded.recipe);
    let recipes: Vec<Recipe> =
        library.list().iter().filter_map(|(name, _)| load(name)).filter(|recipe| recipe.golden.is_some()).collect();
    let folder = tempfile::tempdir().unwrap();
    let (mut failed, mut checked, mut nearest) = (Vec::new(), 0, 0.0f64);
    for n in number("FROM", 0)..number("FROM", 0) + number("SOAK", 200) {
        let own = &recipes[n as usize % recipes.len()];
        let mut drawn = Drawn::of(n, own);
        let mut recipe = sized(own, drawn.side);
        let stem = folder.path().join("step");
        let recorded = (0..4).any(|_| {
            let options = RecordOptions {
                batch: drawn.batch,
                learning_rate: drawn.learning_rate,
                salt: drawn.salt.clone(),
                samples: 64,
            };
            match record(&recipe, &options, &stem, &mut |_, _| ()) {
                Err(GoldenError::NotFinite { .. }) => {
                    drawn.learning_rate /= 100.0;
                    false
                }
                // Nothing is left of the smallest images in the deepest networks.
                Err(GoldenError::Graph(_)) if drawn.side.take().is_some() => {
                    recipe = own.clone();
                    false
                }
                made => {
                    made.unwrap();
                    true
                }
            }
        });
        if !recorded {
            println!("{n} {}: not finite at any learning rate", recipe.name);
            continue;
        }
        let golden = Golden::read(&stem.with_extension("json")).unwrap();
        for precision in [Precision::F32, Precision::F64] {
            let engine = Options { kernels: Kernels::Fast { fusion: true }, threads: None, level: None };
            let options = CheckOptions { precision, engine, room: None };
            let report = check(&recipe, &golden, folder.path(), &options, &mut |_| ()).unwrap();
            checked += 1;
            let of = |wanted: Stage| report.stages.iter().find(|stage| stage.stage == wanted);
            let kernels = of(Stage::Kernels).and_then(|stage| stage.worst.as_ref()).map_or(0.0, |worst| worst.ratio);
            nearest = nearest.max(kernels);
            let decided = report.stages.iter().filter(|stage| stage.in_f32.is_some()).count();
            println!("{n} {} {precision:?} {drawn:?}: kernels {kernels:.3}, {decided} stages by f64", recipe.name);
            if report.verdict != Verdict::Pass {
                let stages = report.stages.iter().filter(|stage| stage.verdict == Verdict::Fail);
                stages.for_each(|stage| {
                    println!("FAILED {} by {:?}, median {:?}", stage.stage, stage.worst, stage.median_ratio);
                });
                failed.push((n, recipe.name.clone(), precision));
            }
        }
    }
    println!("{checked} checks, {} failed, kernels within {nearest:.3} of their bounds", failed.len());
    assert!(failed.is_empty(), "{failed:?}");
}

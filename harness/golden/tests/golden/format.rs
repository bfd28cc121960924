//! Goldens as files: which elements are stored, and what is refused when they are read.

use crate::changed::Changed;
use safetensors::Dtype;
use serde_json::json;
use std::path::Path;
use zoo_datasets::hash::sample_positions;
use zoo_golden::{
    Golden,
    record::{RecordOptions, record},
};
use zoo_recipe::{Library, LoadOptions};

impl Changed {
    /// Adds a tensor to the main run, or to a variant, with the facts of a parameter.
    fn add(&mut self, variant: Option<&str>, key: &str, shape: &[usize], values: Vec<f64>) {
        let mut facts = self.manifest["tensors"]["param1/fc.bias"].clone();
        facts["shape"] = json!(shape);
        let (tensors, stored) = match variant {
            Some(name) => (&mut self.manifest["variants"][name]["tensors"], format!("variant.{name}/{key}")),
            None => (&mut self.manifest["tensors"], key.to_owned()),
        };
        tensors[key] = facts;
        self.arrays.push((stored, values));
    }

    /// Adds a variant with these numbers of losses in f64 and in f32.
    fn add_variant(&mut self, name: &str, [in_f64, in_f32]: [usize; 2]) {
        let losses = |count: usize| vec![json!({"loss": 2.0}); count];
        self.manifest["variants"][name] = json!({
            "rule": "Adam lr 1e-3, betas 0.9/0.999, eps 1e-8, no weight decay",
            "losses_f64": losses(in_f64), "losses_f32": losses(in_f32), "tensors": {},
        });
    }

    fn refused(&self, reason: &str) {
        let error = self.read().expect_err(reason);
        assert!(error.contains(reason), "should say `{reason}`: {error}");
    }
}

/// The exporter stores hashed samples of a tensor unless it has at most 64 elements, also if there are as many samples
/// as elements. Only outputs of the network are stored in order then.
#[test]
fn as_many_samples_as_elements_are_in_order_for_outputs_of_the_network_alone() {
    let mut stored = Changed::tiny();
    stored.add(None, "grad/of_100", &[10, 10], vec![1.0; 100]);
    stored.add(None, "grad/of_64", &[64], vec![1.0; 64]);
    stored.add(None, "out/@root#1", &[10, 10], vec![1.0; 100]);
    stored.add(None, "out/@root#2", &[5000], vec![1.0; 4096]);
    let read = stored.read().unwrap();
    let positions = |key: &str, numel| read.samples(key, None, numel).unwrap().positions;
    assert_eq!(positions("grad/of_100", 100), sample_positions("grad/of_100", 100, 100).collect::<Vec<_>>());
    assert_eq!(positions("grad/of_64", 64), (0..64).collect::<Vec<_>>());
    assert_eq!(positions("out/@root#1", 100), (0..100).collect::<Vec<_>>());
    assert_eq!(positions("out/@root#2", 5000), sample_positions("out/@root#2", 5000, 4096).collect::<Vec<_>>());
    assert!(read.samples("grad/of_64", None, 63).is_err());
}

#[test]
fn stored_initial_values_have_the_shape_of_their_statistic() {
    let init = |key: &str, count: usize| {
        let mut changed = Changed::tiny();
        changed.arrays.push((format!("init/{key}"), vec![0.5; count]));
        changed
    };
    let right = init("bn1.running_mean", 16).read().unwrap();
    assert_eq!(right.start("bn1.running_mean", 16), Some(&[0.5; 16][..]));
    assert_eq!(right.start("bn1.running_mean", 8), None, "a recipe with another shape");
    init("bn1.running_mean", 3).refused("`init/bn1.running_mean` has 3 elements, and its shape [16] has 16");
    init("bn1.running_mean", 0).refused("has 0 elements");
    init("bn9.running_mean", 16).refused("`shapes` has no `bn9.running_mean`");
    let mut integers = Changed::tiny();
    integers.others.push(("init/bn1.running_mean".to_owned(), Dtype::I32, vec![16], vec![0; 64]));
    integers.refused("`init/bn1.running_mean` is not in floating point");
}

#[test]
fn a_tensor_that_no_check_would_compare_is_refused() {
    let with = |variant: Option<&str>, key: &str| {
        let mut changed = Changed::tiny();
        changed.add_variant("lifted", [2, 2]);
        changed.add_variant("adam", [2, 2]);
        changed.add(variant, key, &[4], vec![1.0; 4]);
        changed
    };
    for key in ["param1/x", "exp_avg_sq1/x", "momentum3/x", "grad/x", "out/x#0"] {
        with(None, key).read().unwrap();
    }
    for key in ["param2/x", "param/x", "momentum4/x", "gradient/x", "start/x", "3/x", "x"] {
        with(None, key).refused(&format!("no check compares `{key}`"));
    }
    // Variants have their own number of steps.
    for (variant, key) in [("lifted", "out/x#0"), ("lifted", "grad/x"), ("adam", "param1/x"), ("adam", "param2/x")] {
        with(Some(variant), key).read().unwrap();
    }
    for (variant, key) in [("lifted", "param1/x"), ("adam", "param3/x"), ("adam", "other/x")] {
        with(Some(variant), key).refused(&format!("variant `{variant}`: no check compares `{key}`"));
    }
}

#[test]
fn a_variant_has_its_losses_in_both_precisions() {
    let mut changed = Changed::tiny();
    changed.add_variant("no_clip", [3, 2]);
    changed.refused("variant `no_clip`: losses in f64 and f32 must be there for the same steps");
}

#[test]
fn a_variant_that_becomes_the_main_run_brings_all_its_losses() {
    let mut changed = Changed::tiny();
    let moved = json!([{"loss": 7.0}]);
    changed.manifest["losses_moved"] = moved.clone();
    changed.add_variant("adam", [2, 2]);
    let golden = changed.read().unwrap();
    assert_eq!(golden.manifest.losses_moved[0]["loss"], 7.0);
    assert!(golden.bound_to("adam").unwrap().manifest.losses_moved.is_empty());
    changed.manifest["variants"]["adam"]["losses_moved"] = json!([{"loss": 2.5}, {"loss": 2.5}]);
    let bound = changed.read().unwrap().bound_to("adam").unwrap().manifest;
    assert_eq!((bound.losses_f64.len(), bound.losses_moved.len()), (2, 2));
    assert_eq!(bound.losses_moved[0]["loss"], 2.5);
}

/// A recorded golden reads as PyTorch's does, and each stored element is that of its position.
#[test]
fn a_recording_stores_the_elements_that_the_reader_expects() {
    let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/recipes");
    let recipe = Library::new([recipes]).load("tiny", &LoadOptions::default()).unwrap().recipe;
    let folder = tempfile::tempdir().unwrap();
    let recorded = |samples: usize| {
        let stem = folder.path().join(samples.to_string());
        let options = RecordOptions { batch: 8, learning_rate: 0.05, salt: String::new(), samples };
        record(&recipe, &options, &stem, &mut |_, _| ()).unwrap();
        Golden::read(&stem.with_extension("json")).unwrap()
    };
    // conv1.weight has 432 elements, the output of the network 80.
    let (all, few) = (recorded(432), recorded(65));
    for golden in [&all, &few] {
        let root = golden.samples("out/@root#0", None, 80).unwrap();
        assert_eq!(root.positions, (0..80).collect::<Vec<_>>());
    }
    let key = "grad/conv1.weight";
    let [all, few] = [&all, &few].map(|golden| golden.samples(key, None, 432).unwrap());
    assert_eq!(all.positions, sample_positions(key, 432, 432).collect::<Vec<_>>());
    assert_eq!(all.values[..65], *few.values);
}

/// What an optimizer keeps starts in a recorded step as the optimizer says.
#[test]
fn a_recording_starts_with_the_state_of_its_optimizer() {
    let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/recipes");
    let sets = vec!["optimizer={adagrad: {initial_accumulator_value: 0.5}}".to_owned()];
    let options = LoadOptions { sets, ..LoadOptions::default() };
    let recipe = Library::new([recipes]).load("tiny", &options).unwrap().recipe;
    let folder = tempfile::tempdir().unwrap();
    let stem = folder.path().join("step");
    let options = RecordOptions { batch: 2, learning_rate: 0.05, salt: String::new(), samples: 432 };
    record(&recipe, &options, &stem, &mut |_, _| ()).unwrap();
    let golden = Golden::read(&stem.with_extension("json")).unwrap();
    let [sum, gradient] = ["sum1", "grad"].map(|key| golden.samples(&format!("{key}/fc.bias"), None, 10).unwrap());
    assert_eq!((sum.values.len(), &sum.positions), (10, &gradient.positions));
    for (sum, gradient) in sum.values.iter().zip(gradient.values) {
        assert!((sum - 0.5 - gradient.powi(2)).abs() < 1e-12, "{sum}");
    }
}

//! Every learning rate of golden/schedules.json, of the recipes' goldens and of the reference trajectory.

use std::path::Path;

use serde_json::Value;
use zoo_recipe::schema::Schedule;

fn golden() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden")
}

fn read(path: impl AsRef<Path>) -> Value {
    serde_json::from_str(&std::fs::read_to_string(golden().join(path)).unwrap()).unwrap()
}

fn schedule(yaml: &str) -> Schedule {
    serde_yaml::with::singleton_map_recursive::deserialize(serde_yaml::Deserializer::from_str(yaml)).unwrap()
}

/// The schedules of golden/schedules.json as a recipe writes them, with (steps per epoch, epochs).
const CASES: [(&str, &str, (usize, usize)); 10] = [
    ("cosine", "cosine: {base_lr: 0.1}", (100, 1)),
    ("cosine_eta_min", "cosine: {base_lr: 0.06, min_lr: 0.001}", (100, 1)),
    (
        "cosine_warmup",
        "cosine: {base_lr: 0.256, warmup: {over: 10 steps, start_lr: 0.00256, count: from_zero}}",
        (100, 1),
    ),
    ("guide_warmup0", "guide_cosine: {lr_max: 0.1}", (100, 1)),
    ("guide_warmup5", "guide_cosine: {lr_max: 0.1, warmup: 5 steps}", (20, 5)),
    ("db_poly", "poly: {base_lr: 0.007, power: 0.9, per: epoch, t_max: all_plus_one}", (1, 100)),
    (
        "siammask_base_100",
        "log: {base_lr: 0.005, end_lr: 0.0025, per: epoch, warmup: {over: 5 epochs, start_lr: 0.001, shape: geometric, count: from_zero, per: epoch}}",
        (1, 100),
    ),
    (
        "siammask_base_20",
        "log: {base_lr: 0.005, end_lr: 0.0025, per: epoch, warmup: {over: 5 epochs, start_lr: 0.001, shape: geometric, count: from_zero, per: epoch}}",
        (1, 20),
    ),
    ("siammask_sharp_100", "log: {base_lr: 0.01, end_lr: 0.0025, per: epoch}", (1, 100)),
    ("siammask_sharp_20", "log: {base_lr: 0.01, end_lr: 0.0025, per: epoch}", (1, 20)),
];

#[test]
fn every_reference_schedule() {
    let reference = read("schedules.json");
    let reference = reference.as_object().unwrap();
    assert_eq!(reference.len(), CASES.len(), "a schedule of the reference is not tested");
    for (name, yaml, (steps_per_epoch, epochs)) in CASES {
        let schedule = schedule(yaml);
        let rates = reference[name]["lr"].as_array().unwrap();
        assert_eq!(rates.len(), steps_per_epoch * epochs, "{name}");
        for (step, rate) in rates.iter().enumerate() {
            let (rate, own) = (rate.as_f64().unwrap(), schedule.lr(step, (steps_per_epoch, epochs)));
            assert!((own - rate).abs() <= 1e-12 * rate.abs().max(1e-3), "{name} at {step}: {own} instead of {rate}");
        }
    }
}

#[test]
fn learning_rates_per_epoch_hold_for_all_steps_of_an_epoch() {
    let reference = read("schedules.json");
    for (name, yaml, _) in CASES.into_iter().filter(|(name, ..)| name.starts_with("siammask") || *name == "db_poly") {
        let rates = reference[name]["lr"].as_array().unwrap();
        let schedule = schedule(yaml);
        for step in 0..rates.len() * 7 {
            let (rate, own) = (rates[step / 7].as_f64().unwrap(), schedule.lr(step, (7, rates.len())));
            assert!((own - rate).abs() <= 1e-12, "{name} at step {step}: {own} instead of {rate}");
        }
    }
}

/// The rule of the twenty-step trajectory on real images: linear over 5 steps to 0.1, cosine over 15.
#[test]
fn trajectory() {
    let schedule = schedule("cosine: {base_lr: 0.1, warmup: {over: 5 steps}}");
    let expected = [0.02, 0.04, 0.06, 0.08, 0.1, 0.1, 0.09890738003669029, 0.09567727288213004];
    for (step, rate) in expected.into_iter().enumerate() {
        assert!((schedule.lr(step, (20, 1)) - rate).abs() <= 1e-15, "step {step}");
    }
    assert!((schedule.lr(19, (20, 1)) - 0.0010926199633097156).abs() <= 1e-15);
}

#[test]
fn nothing_goes_wrong_at_the_edges() {
    let without_reference = [
        "step: {base_lr: 0.1, every: 0.1 epochs}",
        "multi_step: {base_lr: 0.1, milestones: [0.1 epochs, 1 epoch]}",
        "exponential: {base_lr: 0.1, gamma: 0.5, every: 0.1 epochs}",
        "inverse_sqrt: {base_lr: 0.1, warmup: {over: 0.1 epochs, count: from_zero}}",
        "one_cycle: {max_lr: 0.1}",
        "one_cycle: {max_lr: 0.1, pct_start: 0}",
        "one_cycle: {max_lr: 0.1, pct_start: 1, anneal: linear}",
    ];
    for yaml in CASES.into_iter().map(|(_, yaml, _)| yaml).chain(without_reference) {
        let schedule = schedule(yaml);
        for (step, steps_per_epoch, epochs) in [(0, 0, 0), (0, 1, 1), (5, 1, 1), (1_000_000, 3, 2), (0, 0, 3)] {
            let rate = schedule.lr(step, (steps_per_epoch, epochs));
            assert!(rate.is_finite() && rate >= 0.0, "{yaml} at {step} of {steps_per_epoch} x {epochs}: {rate}");
        }
    }
}

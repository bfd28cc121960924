//! Memory: forecast before a run, refused beyond a limit, and flat over many steps.
#![cfg(target_os = "linux")]

use crate::workbench::{Said, command, root, said};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn tiny(out: &Path, rest: &[&str]) -> Said {
    let mut run = command();
    run.args(["run", "tiny", "--recipes", "tests/fixtures/recipes", "--format", "json", "--out"]).arg(out);
    said(run.args(rest))
}

fn forecast(said: &Said) -> Value {
    said.lines().into_iter().find(|event| event["event"] == "memory").unwrap()
}

/// A line of /proc/PID/status in bytes; none when the process has gone.
fn status(pid: u32, key: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    Some(1024 * line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?)
}

#[test]
fn a_run_says_before_it_begins_what_it_will_take() {
    let dir = tempfile::tempdir().unwrap();
    let run = tiny(&dir.path().join("run"), &[]).expect(0);
    let memory = forecast(&run);
    let parts = memory["parts"].as_array().unwrap();
    let sum: u64 = parts.iter().map(|part| part["bytes"].as_u64().unwrap()).sum();
    assert_eq!(memory["peak"].as_u64(), Some(sum));
    assert!(memory["limit"].as_u64().unwrap() >= sum);
    assert!(run.err.contains("memory: about"), "{}", run.err);
    let log = fs::read_to_string(dir.path().join("run/events.jsonl")).unwrap();
    assert!(log.lines().next().unwrap().contains("\"event\":\"memory\""), "{log}");
}

#[test]
fn a_run_beyond_the_limit_is_refused_with_the_largest_batch_that_fits() {
    let dir = tempfile::tempdir().unwrap();
    let big = ["--set", "data.source.characters.train=4096", "--set", "train.epochs=1"];
    let batch = |batch: &str| ["--set".to_owned(), format!("train.batch={batch}")];
    let run = |name: &str, size: &str, limit: &str| {
        let set = batch(size);
        let mut rest = big.to_vec();
        rest.extend(set.iter().map(String::as_str));
        rest.extend(["--memory-limit", limit]);
        tiny(&dir.path().join(name), &rest)
    };
    let refused = run("refused", "4096", "200M").expect(2);
    assert!(refused.err.contains("--memory-limit is 200.00 MiB"), "{}", refused.err);
    assert!(!dir.path().join("refused").exists());
    let said = refused.err.split("the largest batch that fits is ").nth(1).unwrap();
    let fits = said.split(' ').next().unwrap();
    let fitting: usize = fits.parse().unwrap();
    assert!((2..4096).contains(&fitting), "{fitting}");
    // A little more than the forecast's base may move between two processes.
    run("beyond", &(fitting + fitting / 4).to_string(), "200M").expect(2);
    run("fits", &(fitting - fitting / 8).to_string(), "200M").expect(0);
    let nothing = run("nothing", "16", "1M").expect(2);
    assert!(nothing.err.contains("not even a batch of 1 fits"), "{}", nothing.err);
    let unit = run("unit", "16", "4 parsecs").expect(2);
    assert!(unit.err.contains("is not a unit of memory"), "{}", unit.err);
}

#[test]
fn models_and_studies_beyond_the_limit_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let large = ["--set", "model.conv1.out=65536", "--set", "model.conv2.out=65536"];
    let recipes = ["--recipes", "tests/fixtures/recipes"];
    let mut export = command();
    let refused = said(export.args(["export", "tiny"]).args(recipes).args(large).arg("--out").arg(&out)).expect(2);
    assert!(refused.err.contains("this model needs"), "{}", refused.err);
    let mut study = command();
    study.args(["study", "tiny-precision", "--memory-limit", "5M"]).args(recipes).arg("--out").arg(&out);
    let refused = said(&mut study).expect(2);
    assert!(refused.err.contains("the training of `"), "{}", refused.err);
    assert!(!out.exists());
}

/// Pictures as large as they are would take 450 MB, of which the network needs nothing.
#[test]
fn a_baseline_that_has_no_room_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    for (split, images) in [("train", 300), ("val", 20)] {
        for class in 0..10 {
            let folder = dir.path().join(format!("data/{split}/{class}"));
            fs::create_dir_all(&folder).unwrap();
            for n in 0..images / 10 {
                fs::copy(root().join("golden/preprocess/images/m2_shapes_97x61.png"), folder.join(format!("{n}.png")))
                    .unwrap();
            }
        }
    }
    let normalize = "normalize: {mean: [128, 128, 128], std: [64, 64, 64], scale: byte}";
    let sets = [
        "model.inputs={image: [3, 512, 512]}".to_owned(),
        format!("preprocess.train=[resize_to: {{size: 512}}, {normalize}]"),
        format!("preprocess.eval=[resize_to: {{size: 512}}, {normalize}]"),
        "train.batch=1".to_owned(),
        "train.epochs=1".to_owned(),
    ];
    let mut rest = vec!["--no-check".to_owned(), "--memory-limit".to_owned(), "200M".to_owned()];
    rest.extend(["--data".to_owned(), dir.path().join("data").display().to_string()]);
    rest.extend(sets.into_iter().flat_map(|set| ["--set".to_owned(), set]));
    let run = tiny(&dir.path().join("run"), &rest.iter().map(String::as_str).collect::<Vec<_>>()).expect(0);
    assert!(run.err.contains("no linear baseline: it needs"), "{}", run.err);
}

#[test]
fn a_check_beyond_the_limit_is_refused() {
    let mut check = command();
    let refused = said(check.args(["check", "resnet50", "--memory-limit", "100M"])).expect(2);
    assert!(refused.err.contains("the golden check of resnet50 needs"), "{}", refused.err);
}

/// Gradients that ReLU inputs near zero decide are judged by a step in f64. Portable instructions round the
/// same everywhere.
#[test]
fn a_step_in_f64_beyond_the_limit_is_refused() {
    let mut check = command();
    check.args(["check", "resnext50_32x4d", "--set", "engine.instructions=portable", "--memory-limit", "800M"]);
    let refused = said(&mut check).expect(2);
    assert!(refused.err.contains("needs a step in f64 (golden/README.md), needs"), "{}", refused.err);
    assert!(refused.err.contains("--dtype f64"), "{}", refused.err);
}

/// A price needs no tensors: the largest network fits into an address space that could not hold its weights.
#[test]
fn a_price_takes_no_tensors() {
    let zoo = assert_cmd::cargo::cargo_bin!("zoo");
    let mut shell = assert_cmd::Command::new("sh");
    shell.current_dir(root()).args(["-c", "ulimit -v 500000; exec \"$0\" \"$@\""]).arg(zoo);
    said(shell.args(["profile", "vgg16", "--batch", "512"])).expect(0);
}

/// Waits for the end of a process; the most memory that it had.
fn peak(mut child: Child) -> u64 {
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        peak = status(child.id(), "VmHWM:").unwrap_or(0).max(peak);
        std::thread::sleep(Duration::from_millis(5));
    }
    peak
}

/// The memory that a check says it needs, if it is refused under a limit.
fn refused(recipe: &str, rest: &[&str], limit: &str) -> Option<u64> {
    let mut check = command();
    let end = said(check.args(["check", recipe, "--memory-limit", limit]).args(rest));
    let amount = |text: &str| {
        let mut words = text.split([' ', ',']);
        let number: f64 = words.next()?.parse().ok()?;
        let unit = ["MiB", "GiB"].into_iter().zip([20, 30]).find(|(unit, _)| words.clone().next() == Some(*unit))?.1;
        Some((number * f64::from(1 << unit)) as u64)
    };
    end.err.split(" needs ").skip(1).find_map(amount)
}

/// Checks a recipe; forecast, of the step in f64 where there is one, and measured peak.
fn checked(recipe: &str, rest: &[&str]) -> (u64, u64) {
    let first = refused(recipe, rest, "1M").unwrap();
    let forecast = refused(recipe, rest, &(first + first / 20).to_string()).unwrap_or(first);
    let mut check = Command::new(assert_cmd::cargo::cargo_bin!("zoo"));
    check.current_dir(root()).args(["check", recipe]).args(rest);
    (forecast, peak(check.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()))
}

/// Runs a recipe; forecast and measured peak.
fn measured(recipe: &str, sets: &[&str]) -> (u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let mut run = Command::new(assert_cmd::cargo::cargo_bin!("zoo"));
    run.current_dir(root()).args(["run", recipe, "--no-check", "--set", "train.epochs=1", "--out"]).arg(&out);
    run.args(sets.iter().flat_map(|set| ["--set", set]));
    let peak = peak(run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let log = fs::read_to_string(out.join("events.jsonl")).unwrap();
    let memory: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    (memory["peak"].as_u64().unwrap(), peak)
}

/// `cargo test --release --test command -- --ignored --nocapture forecasts_are_near`
#[test]
#[ignore = "takes minutes; docs/reliability.md has its figures"]
fn forecasts_are_near_what_runs_take() {
    let few = "data.source.characters={classes: 10, train: 256, val: 64, size: 64}";
    let large = "data.source={characters: {classes: 10, train: 32, val: 16, size: 224}}";
    let scenes = "data.source.text_scenes={train: 16, val: 4, size: 192}";
    let videos = "data.source.videos={train: 96, val: 16, sequences: 2}";
    let cases: [(&str, &[&str]); 9] = [
        ("resnet50", &[few]),
        ("resnet50", &[few, "train.batch=64"]),
        ("resnet50", &[few, "train.batch=8"]),
        ("alexnet", &[few]),
        ("vgg16", &[few]),
        ("mobilenetv2", &[large, "model.classes=10", "train.batch=16"]),
        ("googlenet", &[large, "model.classes=10", "train.batch=8"]),
        ("db_resnet", &[scenes]),
        ("siammask", &[videos]),
    ];
    expect_near(cases.map(|(recipe, sets)| (format!("{recipe} {sets:?}"), measured(recipe, sets))));
}

/// `cargo test --release --test command -- --ignored --nocapture checks_take`
#[test]
#[ignore = "takes minutes; docs/reliability.md has its figures"]
fn checks_take_what_is_forecast() {
    let device: &[&str] = &["--device", "ascend910"];
    let host = ["resnet50", "alexnet", "resnet18", "mobilenetv2", "resnext50_32x4d", "siammask-sharp", "db_resnet"];
    let devices = ["resnet50", "alexnet", "resnet18", "mobilenetv2", "siammask", "db_resnet"];
    let cases = host.map(|recipe| (recipe, &[] as &[&str])).into_iter().chain(devices.map(|recipe| (recipe, device)));
    expect_near(cases.map(|(recipe, rest)| (format!("{recipe} {rest:?}"), checked(recipe, rest))));
}

/// Prints forecasts beside measured peaks; they are to be within 15 %.
fn expect_near(cases: impl IntoIterator<Item = (String, (u64, u64))>) {
    let mut worst: f64 = 0.0;
    for (what, (forecast, peak)) in cases {
        let ratio = forecast as f64 / peak as f64;
        println!("{what}: forecast {} MiB, measured {} MiB, ratio {ratio:.3}", forecast >> 20, peak >> 20);
        worst = worst.max((ratio - 1.0).abs());
    }
    assert!(worst <= 0.15, "{worst}");
}

/// `cargo test --release --test command -- --ignored --nocapture ten_thousand_steps`
#[test]
#[ignore = "takes minutes; docs/reliability.md has its figures"]
fn ten_thousand_steps_keep_the_memory_flat() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let mut run = Command::new(assert_cmd::cargo::cargo_bin!("zoo"));
    run.current_dir(root()).args(["run", "tiny", "--recipes", "tests/fixtures/recipes", "--out"]).arg(&out);
    run.args(["--set", "train.epochs=1670", "--set", "train.eval_every=100 epochs"]);
    run.args(["--set", "train.checkpoint_every=500 steps"]);
    let mut child = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let steps = || {
        let log = fs::read_to_string(out.join("events.jsonl")).unwrap_or_default();
        log.lines().filter(|line| line.contains("\"event\":\"step\"")).count()
    };
    let mut resident = Vec::new();
    for wanted in [1000, 4000, 7000, 10_000] {
        while steps() < wanted && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
        resident.push((wanted, status(child.id(), "VmRSS:").unwrap_or(0) >> 10));
    }
    child.wait().unwrap();
    println!("steps and resident KiB: {resident:?}");
    let (first, last) = (resident[0].1, resident[3].1);
    assert!(first > 0 && last as f64 <= 1.1 * first as f64, "{resident:?}");
}

#[test]
fn every_verb_that_computes_a_step_refuses_what_has_no_room() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    tiny(&run, &[]).expect(0);
    let (run, stem) = (run.to_str().unwrap(), dir.path().join("golden"));
    let stem = stem.to_str().unwrap();
    for verb in [
        &["bench", "tiny", "--recipes", "tests/fixtures/recipes"][..],
        &["eval", "tiny", "--recipes", "tests/fixtures/recipes", "--checkpoint", run],
        &["golden", "record", "tiny", "--recipes", "tests/fixtures/recipes", "-o", stem],
        &["check", "alexnet"],
        &["check", "alexnet", "--mutants"],
        &["check", "alexnet", "--device", "ascend910"],
        &["bisect", "alexnet", "--device", "ascend910"],
    ] {
        let refused = said(command().args(verb).args(["--memory-limit", "1M"])).expect(2);
        assert!(refused.err.contains("--memory-limit is 1.00 MiB"), "{verb:?}: {}", refused.err);
    }
    // As many bytes as no machine has.
    let absurd = ["bench", "resnet50", "--batch", "65536", "--image", "8192"];
    let refused = said(command().args(absurd)).expect(2);
    assert!(refused.err.contains("needs"), "{}", refused.err);
}

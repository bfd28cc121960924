//! `check` on small goldens made under other conditions than the recipes' own.

use crate::workbench::{Said, command, said, zoo};
use serde_json::Value;

const SMALL: &str = "--golden tests/fixtures/golden/resnet50-small.json";

fn stage<'a>(report: &'a Value, name: &str) -> &'a Value {
    let stages = report["stages"].as_array().unwrap();
    stages.iter().find(|stage| stage["stage"] == name).unwrap_or_else(|| panic!("no stage {name}"))
}

/// resnet50 with a fault, against the small golden in f64.
fn planted(fault: &str) -> Value {
    let report = zoo(&format!("check resnet50 {SMALL} --dtype f64 --format json --set {fault}")).expect(1).json();
    assert_eq!(report["verdict"], "fail");
    report
}

#[test]
fn other_conditions_than_the_recipe_s_own_golden_pass() {
    for golden in [
        "resnet50 --golden tests/fixtures/golden/resnet50-small.json",
        "alexnet --golden tests/fixtures/golden/alexnet-salted.json",
    ] {
        let report = zoo(&format!("check {golden} --format json")).expect(0).json();
        assert_eq!((&report["schema_version"], &report["verdict"]), (&1.into(), &"pass".into()));
        assert!(report["first_divergence"].is_null());
        for name in
            ["conditions", "preprocess", "schedule", "init", "forward", "loss", "backward", "update", "trajectory"]
        {
            assert_eq!(stage(&report, name)["verdict"], "pass", "{golden}: {name}");
        }
        let worst = &stage(&report, "forward")["worst"];
        assert!(worst["name"].is_string() && worst["ratio"].as_f64().unwrap() <= 10.0);
    }
}

#[test]
fn the_report_is_a_table() {
    let said = zoo(&format!("check resnet50 {SMALL} --dtype f64")).expect(0);
    assert!(said.out.contains("verdict") && said.out.contains("forward"), "{}", said.out);
    assert!(said.out.trim_end().ends_with("resnet50: pass, 10 stages"), "{}", said.out);
}

#[test]
fn planted_faults_are_caught_where_they_act() {
    let smoothing = planted("loss.softmax_cross_entropy.smoothing_over=other_classes");
    assert_eq!(smoothing["first_divergence"]["stage"], "loss");
    let decay = planted("optimizer.sgd.weight_decay=1e-4");
    assert_eq!(decay["first_divergence"]["stage"], "update");
    let momentum = planted("optimizer.sgd.momentum=0.9");
    assert_eq!(momentum["first_divergence"]["stage"], "trajectory");
    let stride = planted("model.conv1.stride=1");
    assert_eq!(stride["first_divergence"]["stage"], "forward");
}

#[test]
fn a_divergence_points_at_the_line_that_made_it() {
    let divergence = &planted("model.blocks.bottleneck.bn2.eps=1e-3")["first_divergence"];
    assert_eq!(divergence["stage"], "forward");
    assert!(divergence["tensor"].as_str().unwrap().contains("bn2"), "{divergence}");
    assert_eq!(divergence["local"], true, "{divergence}");
    assert!(divergence["line"].as_str().unwrap().starts_with("recipes/resnet50.yaml:"), "{divergence}");
    let text = zoo(&format!("check resnet50 {SMALL} --dtype f64 --set schedule.cosine.base_lr=0.1")).expect(1).out;
    assert!(text.contains("first divergence in schedule") && text.contains("--set:1:"), "{text}");
    assert!(text.contains("| schedule.cosine.base_lr=0.1"), "{text}");
}

#[test]
fn a_fault_in_the_file_fails_the_conditions() {
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(crate::workbench::root().join("recipes/resnet50.yaml")).unwrap();
    std::fs::write(dir.path().join("resnet50.yaml"), text.replace("momentum: 0.875", "momentum: 0.9")).unwrap();
    let mut check = command();
    check.args([
        "check",
        "resnet50",
        "--format",
        "json",
        "--golden",
        "tests/fixtures/golden/resnet50-small.json",
        "--recipes",
    ]);
    let report = said(check.arg(dir.path())).expect(1).json();
    assert_eq!(report["first_divergence"]["stage"], "conditions");
    let differs = &report["conditions_differ"][0];
    assert_eq!(
        (&differs["path"], &differs["recipe"], &differs["golden"]),
        (&"optimizer.sgd.momentum".into(), &"0.9".into(), &"0.875".into())
    );
}

/// Smaller loss scales may be sufficient, but that is no reason to change one that loses nothing.
#[test]
fn a_safe_loss_scale_is_not_advised_against() {
    let said = zoo("check resnet8_tiny --device ascend910").expect(0).out;
    assert!(said.contains("\nsufficient ") && !said.contains("hint:"), "{said}");
    let said = zoo("check resnet8_tiny --device ascend910 --set npu.loss_scale=none").out;
    assert!(said.contains("hint: --set 'npu.loss_scale={fixed: {scale: "), "{said}");
}

#[test]
fn mutants_need_a_recipe_that_passes() {
    let check = |arguments: &[&str]| {
        let mut check = command();
        check.args(["check", "tiny", "--mutants", "--set", "model.bn1.eps=1e-3"]).args(arguments);
        said(check.args(["--recipes", "tests/fixtures/recipes", "--golden", "tests/fuzz/seeds/tiny.json"])).expect(1)
    };
    let text = check(&[]).out;
    assert!(text.contains("first divergence in forward: bn1#0"), "{text}");
    assert!(text.contains("tiny fails without a planted fault") && !text.contains("caught"), "{text}");
    let report = check(&["--format", "json"]).json();
    assert_eq!((&report["planted"], &report["without_fault"]["verdict"]), (&0.into(), &"fail".into()));
}

#[test]
fn a_missing_golden_is_told_from_a_failed_one() {
    let none = zoo("check tiny --recipes tests/fixtures/recipes").expect(3);
    assert!(none.err.contains("no golden") && none.err.contains("golden/README.md"), "{}", none.err);
    let absent: Said = zoo("check resnet50 --golden no/such.json").expect(3);
    assert!(absent.err.contains("no/such.json"), "{}", absent.err);
    let broken = zoo("check resnet50 --golden recipes/resnet50.yaml --format json").expect(3);
    assert!(broken.json()["error"].as_str().unwrap().contains("recipes/resnet50.yaml"));
}

/// What zoo recorded itself tells regressions; nothing that shows its verdict calls it a proof.
#[test]
fn a_golden_that_zoo_recorded_is_a_baseline() {
    let dir = tempfile::tempdir().unwrap();
    let recipes = dir.path().join("recipes");
    std::fs::create_dir_all(&recipes).unwrap();
    let text = std::fs::read_to_string(crate::workbench::root().join("tests/fixtures/recipes/tiny.yaml")).unwrap();
    let text =
        text.replace("profiles:", "golden: {manifest: own/step.json}\nprofiles:").replace("name: tiny", "name: own");
    let here = |arguments: &str| {
        let mut zoo = command();
        zoo.args(arguments.split(' ')).arg("--recipes").arg(&recipes);
        said(&mut zoo)
    };
    let stem = dir.path().join("golden/own/step");
    std::fs::create_dir_all(stem.parent().unwrap()).unwrap();
    std::fs::write(recipes.join("own.yaml"), text.replace("{manifest: own/", "{manifest: golden/own/")).unwrap();
    let nowhere = here("check own").expect(3);
    assert!(nowhere.err.contains("golden: {manifest: own/step.json}"), "{}", nowhere.err);
    std::fs::write(recipes.join("own.yaml"), text.replace("golden: {manifest: own/step.json}\n", "")).unwrap();
    let recorded = here(&format!("golden record own --out {}", stem.display())).expect(0);
    assert!(recorded.err.contains("zoo check own --golden "), "{}", recorded.err);
    std::fs::write(recipes.join("own.yaml"), text).unwrap();
    let (junit, run) = (dir.path().join("check.xml"), dir.path().join("run"));
    let checked = here(&format!("check own --junit {}", junit.display())).expect(0);
    assert!(checked.out.contains("it is a baseline"), "{}", checked.out);
    assert!(std::fs::read_to_string(junit).unwrap().contains("own f32 baseline"));
    assert_eq!(here("check own --format json").expect(0).json()["baseline"], true);
    let listed = here("ls --format json").expect(0).json();
    let of = |name: &str| listed["recipes"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap().clone();
    assert_eq!((&of("own")["baseline"], &of("resnet50")["baseline"]), (&true.into(), &false.into()));
    let ran = here(&format!("run own --set train.epochs=1 --out {}", run.display())).expect(0);
    assert!(ran.out.contains("1 epoch in") && ran.out.contains("golden baseline"), "{}", ran.out);
    assert!(ran.err.contains("zoo recorded itself"), "{}", ran.err);
    let page = std::fs::read_to_string(run.join("report.html")).unwrap();
    assert!(page.contains("a baseline that zoo recorded itself"));
    let result = std::fs::read_to_string(run.join("result.json")).unwrap();
    assert!(result.contains("\"golden\": \"baseline\""), "{result}");
    let proven = zoo("check resnet50 --golden tests/fixtures/golden/resnet50-small.json --format json").json();
    assert_eq!(proven["baseline"], false);
}

/// Initialisers of the recipe's own golden are those of its own sizes.
#[test]
fn a_golden_of_other_sizes_is_judged_without_the_initialisers_of_the_recipe_s_own() {
    let folder = tempfile::tempdir().unwrap();
    let stem = folder.path().join("small");
    let small = "gpt2 --profile mini --set model.inputs.tokens.indices=[4] --set model.transformer.wpe.rows=4";
    zoo(&format!("golden record {small} --batch 2 --out {}", stem.display())).expect(0);
    let report =
        zoo(&format!("check {small} --golden {}.json --dtype f64 --format json", stem.display())).expect(0).json();
    assert_eq!(report["verdict"], "pass");
}

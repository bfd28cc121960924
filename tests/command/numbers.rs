//! Numbers that are none: found where they come from, and nothing lost. And the same numbers whatever computes them.

use crate::workbench::{Said, command, said};
use std::path::Path;

fn tiny(out: &Path, sets: &[&str]) -> Said {
    let mut run = command();
    run.args(["run", "tiny", "--recipes", "tests/fixtures/recipes", "--format", "json", "--out"]).arg(out);
    said(run.args(sets.iter().flat_map(|set| ["--set", set])))
}

/// The eval and train preprocessing of the fixture, with another deviation of the first channel.
fn preprocess(std: &str) -> String {
    format!("preprocess.train=[normalize: {{mean: [128, 128, 128], std: [{std}, 64, 64], scale: byte}}]")
}

#[test]
fn a_loss_that_explodes_names_the_node_and_keeps_the_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let said = tiny(&out, &["schedule={constant: {base_lr: 1e12}}", "train.checkpoint_every=1 steps"]).expect(1);
    assert!(said.err.contains("is not finite"), "{}", said.err);
    // The weights are huge, their squares are not: the statistics of the first convolution overflow.
    assert!(
        said.err.contains("The first non-finite value came from node conv1 (Conv2DBNReduce), forward"),
        "{}",
        said.err
    );
    assert!(said.err.contains("tests/fixtures/recipes/tiny.yaml:10:7 (model.body[0])"), "{}", said.err);
    assert!(said.err.contains("its operands are finite"), "{}", said.err);
    let mut eval = command();
    eval.args(["eval", "tiny", "--recipes", "tests/fixtures/recipes", "--checkpoint"]).arg(&out);
    // The checkpoint is intact, but its network computes no numbers, which is no success.
    let evaluated = crate::workbench::said(&mut eval).expect(1);
    assert!(evaluated.err.contains("cross_entropy is not finite"), "{}", evaluated.err);
}

#[test]
fn pixels_that_are_not_finite_are_found_in_the_batch() {
    let dir = tempfile::tempdir().unwrap();
    let said = tiny(&dir.path().join("run"), &[&preprocess("1e-38")]).expect(1);
    assert!(said.err.contains("The first non-finite value came from the batch itself"), "{}", said.err);
    assert!(said.err.contains("input `image`") && said.err.contains("sample 0"), "{}", said.err);
}

#[test]
fn a_recipe_may_skip_what_is_not_finite() {
    let dir = tempfile::tempdir().unwrap();
    let sets = [&preprocess("1e-38")[..], "gradients.skip_loss_above=1e9"];
    let said = tiny(&dir.path().join("run"), &sets).expect(1);
    let result = said.lines().pop().unwrap();
    assert_eq!((&result["skipped_steps"], &result["steps"]), (&12.into(), &12.into()));
    assert!(said.err.contains("no step updated anything"), "{}", said.err);
    // Running statistics are as they were, or the held-out set could not be evaluated.
    assert!(said.err.contains("held out: top1"), "{}", said.err);
    assert!(said.lines().iter().all(|event| event["event"] != "failed"));
}

#[test]
fn a_batch_without_labels_is_named_or_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let ignored = ["train.batch=1", "train.epochs=1", "loss.softmax_cross_entropy.ignore=0"];
    let said = tiny(&dir.path().join("ended"), &ignored).expect(1);
    let reason = "has no loss: all labels of its batch (`label`) are 0, which is ignored";
    let (_, error) = said.err.split_once("error: ").unwrap();
    assert!(error.contains(reason) && !error.contains("learning rate"), "{error}");
    let said = tiny(&dir.path().join("run"), &[&ignored[..], &["gradients.skip_loss_above=1e9"]].concat()).expect(0);
    let lines = said.lines();
    let without = lines.iter().filter(|event| event["event"] == "step" && event["loss"].is_null()).count();
    let result = lines.last().unwrap();
    assert!(without > 0 && without < 96 && result["skipped_steps"] == without, "{result}");
    assert!(said.err.contains("is skipped: it has no loss") && !said.err.contains("loss NaN"), "{}", said.err);
    let page = std::fs::read_to_string(dir.path().join("run/report.html")).unwrap();
    assert!(!page.contains("NaN"));
}

#[test]
fn scores_that_are_not_finite_are_no_success() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    // Pixels that overflow, in evaluations only.
    let eval = preprocess("1e-38").replace("preprocess.train", "preprocess.eval");
    let junit = dir.path().join("junit.xml");
    let mut run = command();
    run.args(["run", "tiny", "--recipes", "tests/fixtures/recipes", "--no-check", "--format", "json", "--set", &eval]);
    let said = said(run.arg("--out").arg(&out).arg("--junit").arg(&junit)).expect(1);
    let result = said.lines().pop().unwrap();
    assert_eq!(
        (&result["not_finite"], &result["met"]),
        (&serde_json::json!(["cross_entropy"]), &().into()),
        "{result}"
    );
    let fault = "cross_entropy is not finite, so the evaluation is no success";
    assert!(said.err.contains(fault), "{}", said.err);
    assert!(std::fs::read_to_string(&junit).unwrap().contains(fault));
    let mut eval = command();
    eval.args(["eval", "tiny", "--recipes", "tests/fixtures/recipes", "--checkpoint"]).arg(&out);
    let said = crate::workbench::said(&mut eval).expect(1);
    assert!(said.err.contains(fault), "{}", said.err);
}

fn losses(said: &Said) -> Vec<f64> {
    said.lines().iter().filter(|event| event["event"] == "step").map(|event| event["loss"].as_f64().unwrap()).collect()
}

#[test]
fn each_level_of_instructions_repeats_its_bits_on_any_threads_and_agrees_with_the_reference() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, sets: &[&str]| losses(&tiny(&dir.path().join(name), sets).expect(0));
    let reference = run("reference", &["engine.kernels=reference"]);
    for level in ["portable", "avx2", "avx512"] {
        let instructions = format!("engine.instructions={level}");
        let with = |threads: &str| {
            let threads = format!("engine.threads={threads}");
            run(&format!("{level}-{threads}"), &[&instructions, &threads])
        };
        let one = with("1");
        assert_eq!(one.len(), 12);
        assert!(one == with("2") && one == with("5"), "{level}");
        for (fast, slow) in one.iter().zip(&reference) {
            // Twelve steps let roundings grow; a wrong kernel is off by far more.
            assert!((fast - slow).abs() < 1e-3 * slow, "{level}: {one:?} {reference:?}");
        }
    }
}

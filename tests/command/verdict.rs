//! `run --repeat` and `verdict` on a network that trains in a second.

use crate::workbench::{Said, command, said};
use std::fs;
use std::path::Path;

/// A reference that runs of the tiny recipe are like, for it cannot be missed by more than everything.
const EASY: &str = "target={metric: top5, value: 1%, reference: {mean: 60%, sigma: 5%, runs: 3, source: a test}}";
/// One that they are far from.
const HARD: &str = "target={metric: top1, value: 99%, reference: {mean: 99.9%, sigma: 0.1%, runs: 5, source: a test}}";

fn repeat(out: &Path, n: &str, rest: &[&str]) -> Said {
    let mut run = command();
    run.args(["run", "tiny", "--recipes", "tests/fixtures/recipes", "--repeat", n, "--out"]).arg(out);
    said(run.args(rest))
}

fn verdict(runs: &[&Path], rest: &[&str]) -> Said {
    said(command().arg("verdict").args(runs).args(rest))
}

#[test]
fn repeated_runs_end_with_their_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("seeds");
    let said = repeat(&out, "3", &["--set", EASY, "--format", "json"]).expect(0);
    let lines = said.lines();
    let results: Vec<_> = lines.iter().filter(|line| line["event"] == "result").collect();
    assert_eq!(results.len(), 3);
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["event"], &last["verdict"], &last["metric"]),
        (&"verdict".into(), &"pass".into(), &"top5".into())
    );
    let seeds: Vec<_> = last["runs"].as_array().unwrap().iter().map(|run| run["seed"].as_u64().unwrap()).collect();
    assert_eq!(seeds, [0, 1, 2]);
    for (seed, result) in results.iter().enumerate() {
        assert!(out.join(format!("seed-{seed}/report.html")).is_file());
        assert_eq!(last["runs"][seed]["achieved"], result["achieved"]);
    }
    assert_eq!(last["test"]["degrees_of_freedom"], 4);

    // The same runs, judged again from their folders.
    let folders = [0, 1, 2].map(|seed| out.join(format!("seed-{seed}")));
    let folders: Vec<&Path> = folders.iter().map(AsRef::as_ref).collect();
    let again = verdict(&folders, &["--format", "json"]).expect(0).json();
    assert_eq!((&again["verdict"], &again["test"], &again["runs"]), (&last["verdict"], &last["test"], &last["runs"]));
    let xml = dir.path().join("verdict.xml");
    let text = verdict(&folders, &["--junit", xml.to_str().unwrap()]).expect(0).out;
    for part in [
        "tiny  top5 of 3 runs",
        "reference  mean 60.0 %, sigma 5.00 %, n 3: a test",
        "H0  ",
        "tiny: pass, H0 is refuted",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(fs::read_to_string(xml).unwrap().contains(r#"<testcase name="convergence top5""#));
    // A margin of its own that nothing fulfils by chance.
    verdict(&folders, &["--margin", "0%", "--alpha", "1e-9"]).expect(1);
    verdict(&folders, &["--margin", "101%"]).expect(2);
    verdict(&folders, &["--alpha", "0.7"]).expect(2);
    repeat(&out, "3", &["--set", EASY]).expect(2);
}

#[test]
fn runs_that_are_too_bad_or_too_few_do_not_pass() {
    let dir = tempfile::tempdir().unwrap();
    let missed = repeat(&dir.path().join("hard"), "2", &["--set", HARD]).expect(1);
    assert!(missed.out.contains("tiny: missed, the mean is significantly below"), "{}", missed.out);
    let one = dir.path().join("one");
    repeat(&one, "1", &["--set", "target={metric: top1, value: 0%}"]).expect(0);
    let few = verdict(&[&one], &[]).expect(1);
    assert!(few.out.contains("inconclusive") && few.out.contains("2 more runs needed"), "{}", few.out);
    let aimless = repeat(&dir.path().join("aimless"), "2", &[]).expect(0);
    assert!(aimless.err.contains("no target to judge the runs by"), "{}", aimless.err);
}

#[test]
fn a_run_that_diverges_is_no_reason_to_forget_it() {
    let dir = tempfile::tempdir().unwrap();
    let diverges = ["--set", EASY, "--set", "schedule.cosine.base_lr=1e30"];
    let said = repeat(&dir.path().join("runs"), "2", &diverges).expect(1);
    let junit = dir.path().join("junit.xml");
    let aimless = [&diverges[2..], &["--junit", junit.to_str().unwrap()]].concat();
    repeat(&dir.path().join("aimless"), "2", &aimless).expect(1);
    assert!(fs::read_to_string(&junit).unwrap().contains("failures=\"2\""));
    assert!(said.out.contains("2 of 2 runs did not finish"), "{}", said.out);
    assert!(said.out.contains("failed after step"), "{}", said.out);
}

#[test]
fn what_is_no_set_of_runs_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    repeat(&a, "1", &["--set", EASY]).expect(0);
    repeat(&b, "1", &["--set", EASY, "--set", "train.seed=1", "--set", "optimizer.sgd.momentum=0.5"]).expect(0);
    let differ = verdict(&[&a, &b], &[]).expect(2);
    assert!(differ.err.contains("optimizer.sgd.momentum: 0.9 -> 0.5"), "{}", differ.err);
    assert!(!differ.err.contains("train.seed"), "{}", differ.err);
    assert!(verdict(&[&a, &a], &[]).expect(2).err.contains("the same seed, 0"));
    assert!(verdict(&[Path::new("no/such/run")], &[]).expect(2).err.contains("no/such/run"));
    verdict(&[], &[]).expect(2);
}

#[test]
fn what_is_no_run_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.log");
    fs::write(&file, "epoch 1.0  loss 1.868").unwrap();
    let broken = dir.path().join("broken");
    fs::create_dir_all(broken.join("events.jsonl")).unwrap();
    for verb in ["verdict", "report"] {
        for absent in [dir.path(), &file, &dir.path().join("nowhere")] {
            let said = said(command().arg(verb).arg(absent)).expect(2);
            assert!(said.err.contains("there is no run in this folder"), "{}", said.err);
        }
        let said = said(command().arg(verb).arg(&broken)).expect(3);
        assert!(said.err.contains("events.jsonl"), "{}", said.err);
    }
}

//! What a training target notices of a fault, and what only a golden does.

use crate::workbench::{command, said};
use std::path::Path;

/// A fault, the first stage of the golden check that it fails, and whether the training still meets its target.
type Fault = (&'static str, Option<&'static str>, bool);

const FAULTS: &[Fault] = &[
    // Most faults of a port train on: the target never notices them.
    ("optimizer.sgd.momentum=0.8", Some("trajectory"), true),
    ("optimizer.sgd.nesterov=true", Some("update"), true),
    ("optimizer.sgd.weight_decay=1e-3", Some("update"), true),
    ("optimizer.sgd.no_decay=[]", Some("update"), true),
    ("loss.softmax_cross_entropy.smoothing_over=other_classes", Some("loss"), true),
    ("model.bn2.eps=1e-3", Some("forward"), true),
    ("model.bn2.momentum=0.01", Some("update"), true),
    ("model.conv3.pad=0", Some("init"), true),
    // Some break the training, too.
    ("loss.softmax_cross_entropy.label_smoothing=0.9", Some("loss"), false),
    ("schedule.cosine.base_lr=5", Some("schedule"), false),
    ("schedule.cosine.base_lr=1e-5", Some("schedule"), false),
    // A golden brings its own weights and inputs along: where training starts, and from what, it cannot judge.
    ("model.bn3.init.gamma=0", None, false),
    ("data.source.characters.font=[0.05, 0.06]", None, false),
];

/// Trains with a fault; whether the target was met.
fn trains(change: &[&str], out: &Path) -> bool {
    let mut run = command();
    run.args(["run", "digits", "--recipes", "tests/fixtures/recipes", "--format", "json"]).args(change);
    let said = said(run.arg("--out").arg(out));
    let met = said.lines().pop().unwrap()["met"].as_bool().unwrap();
    said.expect(if met { 0 } else { 1 });
    met
}

/// Checks with a fault; the first stage that fails.
fn fails(change: &[&str], golden: &Path) -> Option<String> {
    let mut check = command();
    check.args(["check", "digits", "--recipes", "tests/fixtures/recipes", "--dtype", "f64", "--format", "json"]);
    let report = said(check.args(change).arg("--golden").arg(golden)).json();
    let stages = report["stages"].as_array().unwrap();
    let failed = stages.iter().find(|stage| stage["verdict"] == "fail")?;
    Some(failed["stage"].as_str().unwrap().to_owned())
}

#[test]
fn what_the_target_notices_and_what_only_the_golden_does() {
    let dir = tempfile::tempdir().unwrap();
    let golden = dir.path().join("step.json");
    let mut record = command();
    record.args(["golden", "record", "digits", "--recipes", "tests/fixtures/recipes", "-o"]).arg(&golden);
    let files = said(&mut record).expect(0).out;
    assert_eq!(files.lines().map(Path::new).filter(|file| file.exists()).count(), 2, "{files}");

    assert_eq!(fails(&[], &golden), None);
    assert!(trains(&[], &dir.path().join("sound")));
    for (index, (fault, stage, met)) in FAULTS.iter().enumerate() {
        let found = fails(&["--set", fault], &golden);
        assert_eq!(found.as_deref(), *stage, "{fault}");
        assert_eq!(trains(&["--set", fault], &dir.path().join(index.to_string())), *met, "{fault}");
    }
}

//! The lines of a run's log, against the schema that is published of them.

use crate::workbench::{command, said, zoo};
use jsonschema::Validator;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn schema() -> Validator {
    jsonschema::validator_for(&zoo("schema events").expect(0).json()).unwrap()
}

/// Requires every line to fit; the kinds of events.
fn kinds(schema: &Validator, lines: &str) -> Vec<String> {
    let event = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        let wrong: Vec<String> = schema.iter_errors(&event).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{wrong:?} in {line}");
        event["event"].as_str().unwrap().to_owned()
    };
    let mut kinds: Vec<String> = lines.lines().map(event).collect();
    kinds.dedup();
    kinds
}

fn tiny(out: &Path, rest: &[&str]) -> String {
    let mut run = command();
    run.args(["run", "tiny", "--recipes", "tests/fixtures/recipes", "--format", "json", "--out"]).arg(out);
    said(run.args(rest)).out
}

#[test]
fn every_line_of_a_run_fits_the_schema() {
    let (dir, schema) = (tempfile::tempdir().unwrap(), schema());
    let out = dir.path().join("run");
    let printed = tiny(&out, &["--set", "target={metric: top1, value: 0%}"]);
    let logged = fs::read_to_string(out.join("events.jsonl")).unwrap();
    assert_eq!(printed, logged);
    let logged = kinds(&schema, &logged);
    for kind in ["started", "step", "evaluated", "checkpointed", "result"] {
        assert!(logged.iter().any(|known| known == kind), "no {kind} in {logged:?}");
    }
    assert_eq!(logged[..2], ["memory", "cost"], "what the step takes and costs is known before it trains");
    let target = "target={metric: top5, value: 1%, reference: {mean: 60%, sigma: 5%, runs: 3, source: a test}}";
    let repeated = tiny(&dir.path().join("seeds"), &["--repeat", "2", "--set", target]);
    assert_eq!(kinds(&schema, &repeated).last().unwrap(), "verdict");
    let failed = tiny(&dir.path().join("failed"), &["--set", "schedule.cosine.base_lr=1e30"]);
    // What is printed ends as every command that fails, with a line that is not an event.
    let (events, error) = failed.trim_end().rsplit_once('\n').unwrap();
    assert!(error.starts_with(r#"{"schema_version":1,"error":"the loss of step"#), "{error}");
    assert_eq!(kinds(&schema, events).last().unwrap(), "failed");
}

#[test]
fn a_run_that_is_not_begun_fits_too() {
    let (dir, schema) = (tempfile::tempdir().unwrap(), schema());
    let recipes = dir.path().join("recipes");
    fs::create_dir_all(&recipes).unwrap();
    let text = fs::read_to_string(crate::workbench::root().join("recipes/alexnet.yaml")).unwrap();
    fs::write(recipes.join("alexnet.yaml"), text.replace("momentum: 0.9,", "momentum: 0.5,")).unwrap();
    let mut run = command();
    run.args(["run", "alexnet", "--format", "json", "--recipes"]).arg(&recipes).arg("--out").arg(dir.path().join("x"));
    assert_eq!(kinds(&schema, &said(&mut run).expect(1).out), ["memory", "golden", "result"]);
}

#[test]
fn the_schema_refuses_what_is_no_event() {
    let schema = schema();
    for wrong in [json!({"event": "nonsense"}), json!({"event": "step"}), json!({"event": "interrupted", "step": "x"})]
    {
        assert!(!schema.is_valid(&wrong), "{wrong}");
    }
    assert!(schema.is_valid(&json!({"event": "interrupted", "step": 3})));
}

//! `emit`: programs for other frameworks, and `import --against`, which compares them with recipes.

use crate::workbench::{Said, command, said};
use std::fs;

fn emit(rest: &[&str]) -> Said {
    said(command().args(["emit", "--recipes", "tests/fixtures/recipes"]).args(rest))
}

#[test]
fn a_program_is_written_into_a_new_folder() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/tiny");
    let folder = out.to_str().unwrap();
    let text = emit(&["tiny", "--to", "pytorch", "--no-data", "-o", folder, "--set", "train.seed=7"]).expect(0).out;
    assert!(text.contains("model.py") && text.contains("emitted.json"), "{text}");
    let model = fs::read_to_string(out.join("model.py")).unwrap();
    assert!(model.contains("class Tiny(nn.Module):") && model.contains("num_classes: int = 10"), "{model}");
    let about: serde_json::Value = serde_json::from_slice(&fs::read(out.join("emitted.json")).unwrap()).unwrap();
    assert_eq!((&about["recipe"], &about["class"]), (&"tiny".into(), &"Tiny".into()));
    assert_eq!((&about["set"][0], &about["classes"]), (&"train.seed=7".into(), &10.into()));
    // The recipe beside it is the same recipe.
    let recipe = out.join("recipe.yaml");
    said(command().args(["validate", recipe.to_str().unwrap()])).expect(0);
    assert!(fs::read_to_string(out.join("rules.py")).unwrap().contains("def loss("));
    let again = format!("{folder}2");
    let report = emit(&["tiny", "--to", "pytorch", "--no-data", "-o", &again, "--format", "json"]).expect(0).json();
    assert_eq!(report["to"], "pytorch");
    assert_eq!(fs::read_dir(dir.path().join("new")).unwrap().count(), 2, "nothing is left beside the folders");
}

#[test]
fn a_program_in_mindspore_has_its_weights_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("tiny");
    let folder = out.to_str().unwrap();
    let text = emit(&["tiny", "--to", "mindspore", "--no-data", "-o", folder]).expect(0).out;
    assert!(text.contains("weights.py") && text.contains("rules.py"), "{text}");
    let model = fs::read_to_string(out.join("model.py")).unwrap();
    assert!(model.contains("class Tiny(nn.Cell):") && model.contains("def construct("), "{model}");
    let about: serde_json::Value = serde_json::from_slice(&fs::read(out.join("emitted.json")).unwrap()).unwrap();
    assert_eq!(about["framework"], "mindspore");
    assert!(fs::read_to_string(out.join("README.md")).unwrap().contains("--to mindspore --no-data"));
    // What MindSpore has no word for is refused with its line, and nothing is written.
    let other = dir.path().join("other");
    let refused =
        said(command().args(["emit", "swin_t", "--to", "mindspore", "--no-data", "-o", other.to_str().unwrap()]));
    let refused = refused.expect(2);
    assert!(refused.err.contains("swin_t.yaml:") && refused.err.contains("MindSpore yet"), "{}", refused.err);
    assert!(!other.exists());
}

#[test]
fn nothing_is_written_by_halves() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("mine.txt"), "mine").unwrap();
    let full = emit(&["tiny", "--to", "pytorch", "--no-data", "-o", dir.path().to_str().unwrap()]).expect(2);
    assert!(full.err.contains("the folder is not empty"), "{}", full.err);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let out = dir.path().join("out");
    let unknown = emit(&["tiny", "--to", "keras", "-o", out.to_str().unwrap()]).expect(2);
    assert!(unknown.err.contains("possible values: pytorch, mindspore"), "{}", unknown.err);
    emit(&["tiny", "-o", out.to_str().unwrap()]).expect(2);
    let set = "train.init_from={checkpoint: x.pth}";
    let refused = emit(&["tiny", "--to", "pytorch", "-o", out.to_str().unwrap(), "--set", set]).expect(2);
    assert!(refused.err.contains("train.init_from") && refused.err.contains("use `--weights`"), "{}", refused.err);
    emit(&["no_such_recipe", "--to", "pytorch", "-o", out.to_str().unwrap()]).expect(2);
    // A name that no file system takes, in a folder that would be new.
    let long = out.join("n".repeat(300));
    let refused = emit(&["tiny", "--to", "pytorch", "--no-data", "-o", long.to_str().unwrap()]).expect(2);
    assert!(refused.err.contains("cannot be written"), "{}", refused.err);
    assert!(!out.exists());
}

#[test]
fn a_trace_is_compared_with_a_recipe() {
    let against = |recipe: &str| {
        let sizes = ["--set", "model.classes=10", "--set", "model.inputs.image=[3, 64, 64]"];
        said(command().args(["import", "tests/fixtures/traces/resnet18.json", "--against", recipe]).args(sizes))
    };
    let same = against("resnet18").expect(0).out;
    assert!(same.contains("the same network as resnet18: ") && same.contains("62 parameters"), "{same}");
    let other = against("resnet34").expect(1).out;
    assert!(other.contains("another network than resnet34: "), "{other}");
}

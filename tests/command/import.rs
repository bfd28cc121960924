//! `zoo import`: recipes of PyTorch networks from traces, which `python -m zoo_golden port` made.

use crate::workbench::{command, root, said, zoo};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

fn trace(name: &str) -> PathBuf {
    root().join(format!("tests/fixtures/traces/{name}.json"))
}

#[test]
fn a_residual_network_becomes_a_block_and_stacks() {
    let said = zoo("import tests/fixtures/traces/resnet18.json --name resnet18").expect(0);
    insta::assert_snapshot!("import-resnet18", said.out);
}

#[test]
fn a_transformer_becomes_one_block_in_a_row() {
    let said = zoo("import tests/fixtures/traces/vit.json --name vit").expect(0);
    insta::assert_snapshot!("import-vit", said.out);
}

#[test]
fn networks_of_tokens_have_positions_tied_tables_and_matrices_the_other_way_round() {
    let said = zoo("import tests/fixtures/traces/gpt2.json --name gpt2").expect(0);
    insta::assert_snapshot!("import-gpt2", said.out);
    let said = zoo("import tests/fixtures/traces/bert.json --name bert").expect(0);
    insta::assert_snapshot!("import-bert", said.out);
}

#[test]
fn shifted_windows_are_one_block_with_a_shift() {
    let said = zoo("import tests/fixtures/traces/swin.json --name swin").expect(0);
    insta::assert_snapshot!("import-swin", said.out);
}

#[test]
fn cosine_attention_has_its_factor_and_a_bias_from_a_network() {
    let said = zoo("import tests/fixtures/traces/swin_v2.json --name swin_v2").expect(0);
    insta::assert_snapshot!("import-swin-v2", said.out);
}

#[test]
fn what_is_written_is_valid_and_nothing_is_overwritten() {
    let folder = TempDir::new().unwrap();
    let recipe = folder.path().join("my_net.yaml");
    let import =
        |more: &[&str]| said(command().arg("import").arg(trace("resnet18")).arg("--out").arg(&recipe).args(more));
    let first = import(&[]).expect(0);
    assert!(
        first.out.contains("the same as the trace in 69 operations, 75 module outputs and 62 parameters"),
        "{}",
        first.out
    );
    said(command().arg("validate").arg(&recipe)).expect(0);
    let before = fs::read(&recipe).unwrap();
    let refused = import(&[]).expect(2).err;
    assert!(refused.contains("already exists; --force replaces it"), "{refused}");
    import(&["--force"]).expect(0);
    assert_eq!(fs::read(&recipe).unwrap(), before);
    let json = said(command().args(["import", "--format", "json"]).arg(trace("resnet18"))).expect(0).json();
    assert_eq!(json["same"]["operations"], 69);
    assert_eq!((&json["outputs"][0], &json["outputs"][1]), (&"conv1#0".into(), &"bn1#0".into()));
    let inside = recipe.join("net.yaml");
    let mut unwritable = command();
    unwritable.arg("import").arg(trace("resnet18")).arg("--out").arg(&inside).args(["--name", "net"]);
    assert!(said(&mut unwritable).expect(2).err.contains("my_net.yaml: cannot be written: "));
    assert!(json["text"].as_str().unwrap().contains("name: resnet18"));
}

#[test]
fn what_recipes_cannot_say_is_refused_with_its_place_and_no_file_is_written() {
    let folder = TempDir::new().unwrap();
    let recipe = folder.path().join("max_pooled.yaml");
    let refused = said(command().arg("import").arg(trace("max_pooled")).arg("--out").arg(&recipe)).expect(2);
    for part in [
        "`fractional_max_pool2d` is not supported",
        "--> nets.py:12",
        "`torch.nn.functional.fractional_max_pool2d`",
        "layers that draw random numbers",
    ] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    assert!(!recipe.exists());
}

#[test]
fn traces_that_are_none_end_with_their_reason() {
    let folder = TempDir::new().unwrap();
    let whole = fs::read_to_string(trace("resnet18")).unwrap();
    for (name, text, reason) in [
        ("empty", String::new(), "EOF while parsing"),
        ("cut", whole[..whole.len() / 2].to_owned(), "EOF while parsing"),
        ("old", whole.replacen("\"format\":2", "\"format\":7", 1), "this version reads formats 1 to 2"),
        ("twice", whole.replacen("\"value\":1,", "\"value\":0,", 1), "made twice"),
        (
            "unknown",
            whole.replacen("{\"parameter\":\"conv1.weight\"}", "{\"parameter\":\"conv9.weight\"}", 1),
            "no parameter `conv9.weight`",
        ),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let refused = said(command().arg("import").arg(&path)).expect(3);
        assert!(refused.err.contains(reason), "{name}: {}", refused.err);
    }
    zoo("import nowhere.json").expect(3);
    said(command().arg("import").arg(trace("vit")).args(["--name", "No Name"])).expect(2);
}

/// Without the call in evaluation mode, nothing is known of it.
#[test]
fn traces_of_format_1_are_imported_with_a_warning() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("old.json");
    let mut old: serde_json::Value = serde_json::from_slice(&fs::read(trace("resnet18")).unwrap()).unwrap();
    old["format"] = 1.into();
    old.as_object_mut().unwrap().remove("evaluation");
    fs::write(&path, old.to_string()).unwrap();
    let import = |path: &PathBuf| said(command().arg("import").arg(path).args(["--name", "resnet18"])).expect(0);
    let (old, new) = (import(&path), import(&trace("resnet18")));
    assert!(old.err.contains("has no call in evaluation mode"), "{}", old.err);
    assert!(!new.err.contains("evaluation"), "{}", new.err);
    assert_eq!(old.out, new.out);
}

/// The recipe is read again from a temporary file: where there is no place for it, this is no fault of the network.
#[test]
fn a_temporary_folder_that_takes_no_file_is_said() {
    let folder = TempDir::new().unwrap();
    let mut import = command();
    import.arg("import").arg(trace("resnet18")).args(["--name", "net"]).env("TMPDIR", folder.path().join("none"));
    let refused = said(&mut import).expect(2).err;
    assert!(refused.contains("the recipe cannot be checked: "), "{refused}");
}

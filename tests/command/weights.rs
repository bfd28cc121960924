//! `weights`: state_dicts of PyTorch against a network, in and out; and wherever else a checkpoint is taken.

use crate::workbench::{Said, command, said};
use std::path::Path;

fn tiny(arguments: &[&str]) -> Said {
    said(command().args(arguments).args(["--recipes", "tests/fixtures/recipes"]))
}

const STATE: &str = "tests/fixtures/weights/tiny.pth";
const TRAINING: &str = "tests/fixtures/weights/training.pth";
const BESIDE: &str = "tests/fixtures/weights/beside.pth";

#[test]
fn a_state_dict_that_fits_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("tiny.safetensors");
    let text = tiny(&["weights", "import", "tiny", STATE]).expect(0).out;
    insta::assert_snapshot!("import-fits", text);
    let report = tiny(&["weights", "import", "tiny", STATE, "--format", "json", "--out", out.to_str().unwrap()])
        .expect(0)
        .json();
    assert_eq!((&report["fits"], &report["taken"].as_array().unwrap().len()), (&true.into(), &9));
    assert_eq!(report["out"], out.to_str().unwrap());
    // What was written and what it was written from evaluate alike.
    let eval = |file: &str| tiny(&["eval", "tiny", "--format", "json", "--checkpoint", file]).expect(0).json();
    let (written, state) = (eval(out.to_str().unwrap()), eval(STATE));
    assert_eq!((&written["scores"], &written["loss"]), (&state["scores"], &state["loss"]));
    assert!(state["step"].is_null());
}

#[test]
fn what_does_not_fit_is_listed() {
    let other = ["weights", "import", "tiny", STATE, "--set", "model.classes=36", "--set", "model.bn1.name=norm"];
    let data = ["--set", "data.source.characters.classes=36"];
    insta::assert_snapshot!("import-misfits", tiny(&[&other[..], &data].concat()).expect(2).out);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("part.safetensors");
    let partial = [&other[..], &data, &["--partial", "--out", out.to_str().unwrap()]].concat();
    assert!(tiny(&partial).expect(0).out.contains("fits in part"));
    assert!(out.is_file());
    // Evaluation does not guess.
    let eval = [&["eval", "tiny", "--checkpoint", STATE, "--set", "model.classes=36"], &data[..]].concat();
    let refused = tiny(&eval).expect(2);
    assert!(
        refused.err.contains("2 of another shape: fc.weight ([10, 24] in the file, [36, 24] here)"),
        "{}",
        refused.err
    );
}

#[test]
fn prefixes_are_found_and_taken_off() {
    insta::assert_snapshot!("import-prefix", tiny(&["weights", "import", "tiny", TRAINING]).expect(0).out);
    let strip = tiny(&["weights", "import", "tiny", TRAINING, "--strip", "module.", "--entry", "state_dict"]).expect(0);
    assert!(strip.out.contains("9 tensors fit, 0 missing"), "{}", strip.out);
    // The same for a training that starts from it.
    let dir = tempfile::tempdir().unwrap();
    let from = format!("train.init_from={{checkpoint: {TRAINING}}}");
    let run = ["run", "tiny", "--set", "train.epochs=1", "--set", &from, "--out"];
    let trained = tiny(&[&run[..], &[dir.path().join("run").to_str().unwrap()]].concat()).expect(0);
    assert!(trained.err.contains("init_from: 9 of 9 tensors fit"), "{}", trained.err);
    assert!(trained.err.contains("names without their prefix `module.`"), "{}", trained.err);
}

/// Weights with a NaN are no success for any command, and the tensor is named.
#[test]
fn weights_that_are_not_finite_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("nan.safetensors");
    let out = dir.path().join("out.safetensors");
    tiny(&["weights", "import", "tiny", STATE, "--out", file.to_str().unwrap()]).expect(0);
    // The last value of the last tensor of the file.
    let mut bytes = std::fs::read(&file).unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&file, bytes).unwrap();
    let (file, out) = (file.to_str().unwrap(), out.to_str().unwrap());
    let import = tiny(&["weights", "import", "tiny", file, "--out", out]).expect(2);
    assert!(import.out.contains("not finite") && import.out.contains("does not fit"), "{}", import.out);
    for refused in [
        ["eval", "tiny", "--checkpoint", file].as_slice(),
        &["weights", "export", "tiny", "--checkpoint", file, "--out", out],
        &["export", "tiny", "--checkpoint", file, "--out", out],
        &[
            "run",
            "tiny",
            "--set",
            &format!("train.init_from={{checkpoint: {file}}}"),
            "--out",
            dir.path().to_str().unwrap(),
        ],
    ] {
        let told = tiny(refused).expect(2).err;
        assert!(told.contains("1 with values that are not finite: "), "{refused:?}: {told}");
    }
    assert!(!Path::new(out).exists());
}

/// Of the weights and their average in a file the weights are taken, and the choice is told, wherever a file is read.
#[test]
fn the_entry_that_was_taken_is_told() {
    let import = |rest: &[&str]| tiny(&[&["weights", "import", "tiny", BESIDE], rest].concat()).expect(0).out;
    insta::assert_snapshot!("import-entry", import(&[]));
    assert!(import(&["--entry", "state_dict_ema"]).contains("entry state_dict_ema against tiny"));
    let eval = ["eval", "tiny", "--checkpoint", BESIDE];
    let told = tiny(&eval).expect(0).err;
    assert!(told.contains("deep.er.net is taken; state_dict_ema fits as well: choose with --entry"), "{told}");
    let average = tiny(&[&eval[..], &["--entry", "state_dict_ema", "--format", "json"]].concat()).expect(0).json();
    assert_eq!(average["entry"], "state_dict_ema");
}

#[test]
fn unreadable_files_are_no_misfits() {
    let dir = tempfile::tempdir().unwrap();
    let cut = dir.path().join("cut.pth");
    let whole = std::fs::read(crate::workbench::root().join(STATE)).unwrap();
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let refused = |path: &Path| tiny(&["weights", "import", "tiny", path.to_str().unwrap()]).expect(3).err;
    assert!(refused(&cut).contains("a damaged zip archive"), "{}", refused(&cut));
    assert!(refused(Path::new("no/such.pth")).contains("no/such.pth: "));
    assert!(refused(dir.path()).contains("no checkpoint in this folder"));
    assert!(refused(Path::new("README.md")).contains("a text file: name a file of weights"));
    let html = dir.path().join("page.pth");
    std::fs::write(&html, "<!DOCTYPE html>").unwrap();
    assert!(refused(&html).contains("a web page"), "{}", refused(&html));
    let entry = tiny(&["weights", "import", "tiny", TRAINING, "--entry", "ema"]).expect(3);
    assert!(
        entry.err.contains("it has no entry `ema` with tensors; those with tensors: `state_dict`"),
        "{}",
        entry.err
    );
}

/// A file of another kind where a recipe, a trace or a recording belongs.
#[test]
fn formats_are_named_where_another_file_belongs() {
    let dir = tempfile::tempdir().unwrap();
    let onnx = dir.path().join("net.onnx");
    std::fs::write(&onnx, b"\x08\x08\x12\x07pytorch").unwrap();
    let onnx = onnx.to_str().unwrap();
    for (arguments, code) in [
        (["eval", onnx].as_slice(), 2),
        (&["validate", onnx], 2),
        (&["check", onnx], 2),
        (&["import", onnx], 3),
        (&["weights", "import", "tiny", onnx], 3),
        (&["eval", "tiny", "--checkpoint", onnx], 3),
        (&["judge", "tiny", onnx, "--golden", "tests/fuzz/seeds/tiny.json"], 3),
    ] {
        let told = tiny(arguments).expect(code).err;
        assert!(told.contains("an ONNX model"), "{arguments:?}: {told}");
    }
}

/// One file that is read and written would be lost, whichever way its name is spelt.
#[test]
fn nothing_is_written_over_what_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tiny.pth");
    std::fs::copy(crate::workbench::root().join(STATE), &file).unwrap();
    let again = dir.path().join(".").join("tiny.pth");
    let (file, again) = (file.to_str().unwrap(), again.to_str().unwrap());
    let before = std::fs::read(file).unwrap();
    for refused in [
        ["weights", "import", "tiny", file, "--out", again].as_slice(),
        &["weights", "export", "tiny", "--checkpoint", file, "--out", again],
        &["export", "tiny", "--checkpoint", file, "--out", again],
        &["export", "tiny", "--checkpoint", file, "--out", "net.onnx", "--sample", "net.onnx"],
    ] {
        assert!(tiny(refused).expect(2).err.contains("a file cannot be read and written"), "{refused:?}");
        assert_eq!(std::fs::read(file).unwrap(), before);
    }
    tiny(&["weights", "import", "tiny", "/dev/null", "--out", "/dev/null"]).expect(3);
}

#[test]
fn a_run_is_exported_for_pytorch_and_mindspore() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    tiny(&["run", "tiny", "--set", "train.epochs=1", "--out", run.to_str().unwrap()]).expect(0);
    for (name, tensors) in [("tiny.pth", 10), ("tiny.safetensors", 10), ("tiny.ckpt", 9)] {
        let out = dir.path().join(name);
        let (run, out) = (run.to_str().unwrap(), out.to_str().unwrap());
        let export = ["weights", "export", "tiny", "--checkpoint", run, "--out", out, "--format", "json"];
        let report = tiny(&export).expect(0).json();
        assert_eq!((&report["step"], &report["tensors"]), (&6.into(), &tensors.into()), "with num_batches_tracked");
        tiny(&["weights", "import", "tiny", out]).expect(0);
        let eval = |file: &str| tiny(&["eval", "tiny", "--format", "json", "--checkpoint", file]).json();
        assert_eq!(eval(run)["loss"], eval(out)["loss"]);
    }
    // A run of another network.
    let misfit = ["weights", "export", "tiny_text", "--checkpoint", run.to_str().unwrap(), "--out", "x.pth"];
    let misfit = tiny(&misfit).expect(2);
    assert!(misfit.err.contains("the weights do not fit the network"), "{}", misfit.err);
    let nowhere = ["weights", "export", "tiny", "--checkpoint", run.to_str().unwrap(), "--out", "README.md/x.pth"];
    tiny(&nowhere).expect(2);
}

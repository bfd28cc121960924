//! `weights`: state_dicts of PyTorch against a network, in and out; and wherever else a checkpoint is taken.

use crate::workbench::{Said, command, said};
use std::path::Path;

fn tiny(arguments: &[&str]) -> Said {
    said(command().args(arguments).args(["--recipes", "tests/fixtures/recipes"]))
}

const STATE: &str = "tests/fixtures/weights/tiny.pth";
const TRAINING: &str = "tests/fixtures/weights/training.pth";

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
fn prefixes_are_proposed_and_taken_off() {
    insta::assert_snapshot!("import-prefix", tiny(&["weights", "import", "tiny", TRAINING]).expect(2).out);
    let strip = tiny(&["weights", "import", "tiny", TRAINING, "--strip", "module.", "--entry", "state_dict"]).expect(0);
    assert!(strip.out.contains("9 tensors fit, 0 missing"), "{}", strip.out);
    // The same for a training that starts from it.
    let dir = tempfile::tempdir().unwrap();
    let from = format!("train.init_from={{checkpoint: {TRAINING}, from: module}}");
    let run = ["run", "tiny", "--set", "train.epochs=1", "--set", &from, "--out"];
    let trained = tiny(&[&run[..], &[dir.path().join("run").to_str().unwrap()]].concat()).expect(0);
    assert!(trained.err.contains("init_from: 9 of 9 tensors fit"), "{}", trained.err);
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
    assert!(refused(Path::new("README.md")).contains("not a readable safetensors file"));
    let entry = tiny(&["weights", "import", "tiny", TRAINING, "--entry", "ema"]).expect(3);
    assert!(entry.err.contains("it has no entry `ema`"), "{}", entry.err);
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
fn a_run_is_exported_for_pytorch() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    tiny(&["run", "tiny", "--set", "train.epochs=1", "--out", run.to_str().unwrap()]).expect(0);
    for name in ["tiny.pth", "tiny.safetensors"] {
        let out = dir.path().join(name);
        let (run, out) = (run.to_str().unwrap(), out.to_str().unwrap());
        let export = ["weights", "export", "tiny", "--checkpoint", run, "--out", out, "--format", "json"];
        let report = tiny(&export).expect(0).json();
        assert_eq!((&report["step"], &report["tensors"]), (&6.into(), &10.into()), "with num_batches_tracked");
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

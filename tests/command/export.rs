//! `export`: ONNX models. That runtimes compute the same is measured by benches/against_onnxruntime.py.

use crate::workbench::{Said, command, said};
use std::fs;

fn export(recipe: &str, rest: &[&str]) -> Said {
    said(command().args(["export", recipe, "--recipes", "tests/fixtures/recipes"]).args(rest))
}

#[test]
fn a_model_is_written_with_a_sample() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (out, sample) = (path("net.onnx"), path("net.safetensors"));
    let state = ["--checkpoint", "tests/fixtures/weights/tiny.pth"];
    let rest = [&["--out", &out, "--sample", &sample, "--format", "json"], &state[..]].concat();
    let report = export("tiny", &rest).expect(0).json();
    assert_eq!((&report["opset"], &report["batch"]), (&18.into(), &serde_json::Value::Null));
    assert_eq!((&report["inputs"][0], &report["outputs"][0]), (&"image".into(), &"logits".into()));
    let model = fs::read(&out).unwrap();
    assert_eq!(report["bytes"], model.len());
    for name in ["conv1.weight", "bn1.running_var", "fc.bias", "BatchNormalization", "batch"] {
        assert!(model.windows(name.len()).any(|text| text == name.as_bytes()), "{name}");
    }
    let sample = fs::read(&sample).unwrap();
    for name in ["input.image", "output.logits"] {
        assert!(sample.windows(name.len()).any(|text| text == name.as_bytes()), "{name}");
    }
    // The same again, to the bit; with initial weights another.
    export("tiny", &rest).expect(0);
    assert_eq!(fs::read(&out).unwrap(), model);
    let text = export("tiny", &["--out", &out, "--batch", "3"]).expect(0).out;
    assert!(text.contains("batch         3") && text.contains("weights       initial"), "{text}");
    assert_ne!(fs::read(&out).unwrap(), model);
}

/// The characters of a sample are rows of the table that they are looked up in, or the step would refuse them.
#[test]
fn a_sample_of_tokens_has_indices() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (out, sample) = (path("net.onnx"), path("net.safetensors"));
    let rest = ["--profile", "mini", "--out", &out, "--sample", &sample, "--format", "json"];
    let report = export("gpt_shakespeare", &rest).expect(0).json();
    let sample = fs::read(&sample).unwrap();
    let header = String::from_utf8_lossy(&sample[8..2048.min(sample.len())]).into_owned();
    let input = format!(r#""input.{}":{{"dtype":"U32""#, report["inputs"][0].as_str().unwrap());
    assert!(header.contains(&input), "{input} in {header}");
}

#[test]
fn what_cannot_be_exported_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("net.onnx");
    let out = out.to_str().unwrap();
    let sharp = said(command().args(["export", "siammask-sharp", "--out", out])).expect(2);
    assert!(sharp.err.contains("(ExtractImagePatches) cannot be written as ONNX"), "{}", sharp.err);
    assert!(sharp.err.contains("--> recipes/siammask-sharp.yaml:"), "{}", sharp.err);
    let misfit = ["--out", out, "--checkpoint", "tests/fixtures/weights/training.pth"];
    assert!(export("tiny_segment", &misfit).expect(2).err.contains("not in the file: head.weight"));
    export("tiny", &["--out", out, "--checkpoint", "no/such.pth"]).expect(3);
    export("tiny", &["--out", "README.md/x.onnx"]).expect(2);
    export("tiny", &["--out", out, "--batch", "0"]).expect(2);
    assert!(!dir.path().join("net.onnx").exists(), "nothing is written where nothing was asked for");
}

//! `judge`: steps that ran elsewhere; and `golden inputs` and `golden export`, which give others what they need.

use crate::workbench::{Said, command, root, said};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const GOLDEN: [&str; 4] = ["--recipes", "tests/fixtures/recipes", "--golden", "tests/fuzz/seeds/tiny.json"];

pub fn tiny(arguments: &[&str]) -> Said {
    said(command().args(arguments).args(GOLDEN))
}

pub fn judged(recording: &Path, arguments: &[&str]) -> Said {
    tiny(&[&["judge", "tiny", recording.to_str().unwrap()], arguments].concat())
}

/// What other tools made of the step: see make.py there.
pub fn made(name: &str) -> PathBuf {
    root().join("tests/fixtures/recordings").join(name)
}

/// A copy that may be damaged.
pub fn copied(name: &str) -> TempDir {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let target = to.join(entry.file_name());
            if entry.path().is_dir() { copy(&entry.path(), &target) } else { drop(fs::copy(entry.path(), target)) }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    copy(&made(name), folder.path());
    folder
}

/// The step in f64 as named tensors, of the recipe with changes.
pub fn exported(form: &str, changes: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    tiny(&[&["golden", "export", "tiny", "--as", form, "--out", out], changes].concat()).expect(0);
    folder
}

#[test]
fn what_pytorch_computed_passes_in_every_format() {
    let stages = |name: &str, arguments: &[&str], verdict: &str| {
        let report = judged(&made(name), &[&["--format", "json"], arguments].concat()).expect(0).json();
        assert_eq!((&report["verdict"], &report["first_divergence"]), (&verdict.into(), &serde_json::Value::Null));
        let stages = report["stages"].as_array().unwrap().iter();
        stages.map(|stage| format!("{} {}", stage["stage"], stage["verdict"]).replace('"', "")).collect::<Vec<_>>()
    };
    let all = ["init pass", "forward pass", "loss pass", "backward pass", "update pass"];
    assert_eq!(stages("capture", &[], "pass"), all);
    // msprobe does not see what the optimizer does.
    let without_update = [&all[..4], &["update absent"]].concat();
    let accepted = &["--allow-missing=update"];
    assert_eq!(stages("msprobe-tensor", accepted, "partial"), without_update);
    assert_eq!(stages("msprobe-statistics", accepted, "partial"), without_update);
    let said = judged(&made("msprobe-statistics"), &[]).expect(1).out;
    assert!(said.contains("by statistics only") && said.contains("not recorded: all of update\n"), "{said}");
}

#[test]
fn the_step_of_zoo_passes_as_it_is_exported() {
    for form in ["named", "msprobe"] {
        let folder = exported(form, &[]);
        let (code, end) = match form {
            "named" => (0, "pass, 5 stages\n"),
            _ => (1, "partial: what is recorded passes; not recorded: all of loss, all of update\n"),
        };
        let said = judged(folder.path(), &[]).expect(code);
        assert!(said.out.ends_with(end), "{}", said.out);
        // f64 is well within what a narrower arithmetic may cost.
        for arithmetic in ["bf16", "f16", "fp16", "gaudi"] {
            judged(folder.path(), &["--arithmetic", arithmetic, "--allow-missing"]).expect(0);
        }
    }
}

#[test]
fn faults_are_named_where_they_are() {
    let faults = [
        ("model.bn1.eps=1e-3", "forward", "bn1#0", "tiny.yaml:11"),
        ("loss.softmax_cross_entropy.label_smoothing=0.2", "loss", "loss", "tiny.yaml:27"),
        ("loss.softmax_cross_entropy.smoothing_over=other_classes", "loss", "loss", "tiny.yaml:27"),
        ("model.bn1.momentum=0.9", "update", "bn1.running_mean", "tiny.yaml:11"),
        ("optimizer.sgd.weight_decay=0", "update", "conv1.weight", "tiny.yaml:28"),
        ("optimizer.sgd.nesterov=true", "update", "conv1.weight", "tiny.yaml:28"),
    ];
    for (change, stage, tensor, line) in faults {
        let folder = exported("named", &["--set", change]);
        let report = judged(folder.path(), &["--format", "json"]).expect(1).json();
        let divergence = &report["first_divergence"];
        let found = (divergence["stage"].as_str().unwrap(), divergence["tensor"].as_str().unwrap());
        assert_eq!(found, (stage, tensor), "{change}");
        assert!(divergence["line"].as_str().unwrap().contains(line), "{change}: {}", divergence["line"]);
    }
}

#[test]
fn a_fault_is_explained() {
    let folder = exported("named", &["--set", "model.bn1.momentum=0.9"]);
    let text = judged(folder.path(), &[]).expect(1).out;
    // How far f64 is off depends on the instructions of the processor.
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("off the golden")).collect();
    insta::assert_snapshot!("judge-momentum", lines.join("\n").replace(folder.path().to_str().unwrap(), "recorded"));
}

#[test]
fn what_is_missing_fails_unless_it_may_be() {
    let folder = exported("named", &[]);
    fs::remove_file(folder.path().join("grad/fc.bias.npy")).unwrap();
    let said = judged(folder.path(), &[]).expect(1);
    assert!(said.out.contains("fc.bias: is missing from the recording"), "{}", said.out);
    assert!(said.out.contains("--allow-missing=backward accepts"), "{}", said.out);
    assert!(said.out.ends_with("tiny: fail: 15 % of backward is missing\n"), "{}", said.out);
    let report = judged(folder.path(), &["--allow-missing", "--format", "json"]).expect(0).json();
    assert_eq!((&report["verdict"], &report["stages"][3]["verdict"]), (&"partial".into(), &"partial".into()));
    let backward = serde_json::json!(
        {"stage": "backward", "recorded": 6, "of": 7, "missing": ["fc.bias"], "suspicious": true});
    assert_eq!(report["coverage"][3], backward);
    // Another stage is not accepted by that.
    judged(folder.path(), &["--allow-missing=forward,update"]).expect(1);
    judged(folder.path(), &["--allow-missing=forward,backward"]).expect(0);
    // Of a stage of which there is nothing, the recorder may know nothing; but it is no pass either.
    fs::remove_dir_all(folder.path().join("grad")).unwrap();
    let said = judged(folder.path(), &[]).expect(1);
    assert!(said.out.ends_with("partial: what is recorded passes; not recorded: all of backward\n"), "{}", said.out);
    let junit = folder.path().join("judge.xml");
    judged(folder.path(), &["--allow-missing=backward", "--junit", junit.to_str().unwrap()]).expect(0);
    assert!(fs::read_to_string(&junit).unwrap().contains("not recorded, and accepted: all of backward"));
}

#[test]
fn next_to_nothing_is_no_pass() {
    let folder = exported("named", &[]);
    for kind in ["buffer1", "grad", "input", "momentum1", "out", "param1", "start"] {
        fs::remove_dir_all(folder.path().join(kind)).unwrap();
    }
    let said = judged(folder.path(), &[]).expect(1);
    assert!(said.out.ends_with("not recorded: all of forward, all of backward, all of update\n"), "{}", said.out);
    let said = judged(folder.path(), &["--allow-missing"]).expect(0);
    assert!(said.out.contains("tiny: partial: "), "{}", said.out);
}

/// The first module that differs is the headline, whatever is missing before it.
#[test]
fn what_is_missing_does_not_hide_what_differs() {
    let folder = exported("named", &["--set", "model.bn1.eps=1e-3"]);
    fs::remove_file(folder.path().join("out/conv1#0.npy")).unwrap();
    let said = judged(folder.path(), &[]).expect(1);
    let report = judged(folder.path(), &["--format", "json"]).expect(1).json();
    assert_eq!(report["first_divergence"]["tensor"], "bn1#0");
    let [headline, missing] = ["first divergence in forward: bn1#0", "conv1#0: is missing from the recording"]
        .map(|text| said.out.find(text).unwrap_or_else(|| panic!("should say `{text}`: {}", said.out)));
    assert!(headline < missing);
}

#[test]
fn steps_are_judged_in_turn() {
    let folder = tempfile::tempdir().unwrap();
    let step = exported("named", &[]);
    fs::rename(step.path(), folder.path().join("step0")).unwrap();
    fs::create_dir(step.path()).unwrap();
    let alone = judged(folder.path(), &["--format", "json"]).expect(0).json();
    assert_eq!((&alone["step"], &alone["verdict"]), (&0.into(), &"pass".into()));
    // The same step again does not begin where the first has ended.
    let copy = exported("named", &[]);
    fs::rename(copy.path(), folder.path().join("step1")).unwrap();
    fs::create_dir(copy.path()).unwrap();
    let said = judged(folder.path(), &[]).expect(1);
    assert!(said.out.contains("first divergence in init: conv1.weight"), "{}", said.out);
    assert!(said.out.ends_with("tiny: fail in step 1, the first of 2 that fails\n"), "{}", said.out);
    let report = judged(folder.path(), &["--format", "json"]).expect(1).json();
    assert_eq!((&report["first_failed_step"], &report["steps"][0]["verdict"]), (&1.into(), &"pass".into()));
    fs::rename(folder.path().join("step1"), folder.path().join("step2")).unwrap();
    assert!(judged(folder.path(), &[]).expect(3).err.contains("step2 follows step0"));
}

#[test]
fn numbers_that_are_not_finite_are_read_as_python_writes_them() {
    let folder = copied("msprobe-statistics");
    let manifest = folder.path().join("dump.json");
    let mut dump: serde_json::Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    let bias = &mut dump["data"]["Module.fc.Linear.parameters_grad.0"]["bias"][0];
    for (statistic, mark) in [("Max", "@inf"), ("Min", "@-inf"), ("Mean", "@nan"), ("Norm", "@nan")] {
        bias[statistic] = mark.into();
    }
    let text = dump.to_string().replace("\"@inf\"", "Infinity").replace("\"@-inf\"", "-Infinity");
    for (nan, mark) in [("NaN", ""), ("null", ""), ("\"nan\"", "\u{feff}")] {
        fs::write(&manifest, format!("{mark}{}", text.replace("\"@nan\"", nan))).unwrap();
        let said = judged(folder.path(), &[]).expect(1);
        let first = "not finite, as the recording says: first Module.fc.Linear.parameters_grad.0.bias.0\n";
        assert!(said.out.contains(first), "{nan}: {}", said.out);
        assert!(said.out.contains("first divergence in backward: fc.bias"), "{nan}: {}", said.out);
    }
}

#[test]
fn wrong_numbers_and_shapes_fail_closed() {
    let folder = exported("named", &[]);
    let out = folder.path().join("out/conv1#0.npy");
    let whole = fs::read(&out).unwrap();
    let mut bytes = whole.clone();
    let last = bytes.len() - 8;
    bytes[last..].copy_from_slice(&f64::NAN.to_le_bytes());
    fs::write(&out, bytes).unwrap();
    let said = judged(folder.path(), &[]).expect(1);
    assert!(said.out.contains("conv1#0: 1 of its 8192 elements are not finite"), "{}", said.out);
    // Another batch: what the golden begins with is not what was computed.
    fs::copy(folder.path().join("grad/conv1.weight.npy"), &out).unwrap();
    assert!(judged(folder.path(), &[]).expect(1).out.contains("shape 16x3x3x3, the recipe has 2x16x16x16"));
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 10), }";
    let array = [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &[0; 120]].concat();
    fs::write(&out, whole).unwrap();
    fs::write(folder.path().join("out/fc#0.npy"), array).unwrap();
    let said = judged(folder.path(), &[]).expect(1);
    assert!(said.out.contains("3 samples in place of 2, which is another batch"), "{}", said.out);
}

/// A safetensors file with one tensor of zeros in bf16.
fn in_bf16(name: &str, shape: &str, numel: usize) -> Vec<u8> {
    let header = format!(r#"{{"{name}":{{"dtype":"BF16","shape":{shape},"data_offsets":[0,{}]}}}}"#, 2 * numel);
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; 2 * numel]].concat()
}

#[test]
fn an_arithmetic_has_to_be_declared() {
    let folder = exported("named", &[]);
    fs::remove_file(folder.path().join("grad/conv2.bias.npy")).unwrap();
    fs::write(folder.path().join("more.safetensors"), in_bf16("grad/conv2.bias", "[24]", 24)).unwrap();
    let said = judged(folder.path(), &[]).expect(1);
    assert!(said.out.contains("is bf16, which f32 has not: declare its --arithmetic"), "{}", said.out);
    let said = judged(folder.path(), &["--arithmetic", "bf16"]).expect(1);
    assert!(said.out.contains("conv2.bias: error 1.0e0"), "{}", said.out);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let unknown = judged(&made("capture"), &["--arithmetic", "abacus"]).expect(2).err;
    assert!(unknown.contains("there is no type or device `abacus`; known: f32, f16, bf16, a100, "), "{unknown}");
    for wrong in [&["--loss-scale", "0"][..], &["--memory-limit", "1K"], &["--nonsense"]] {
        judged(&made("capture"), wrong).expect(2);
    }
    tiny(&["judge", "tinny", "recorded"]).expect(2);
    tiny(&["golden", "inputs", "tiny", "--out", "README.md/begin"]).expect(2);
}

#[test]
fn what_cannot_be_read_is_no_verdict() {
    let refused = |recording: &Path, reason: &str| {
        let said = judged(recording, &[]).expect(3);
        assert!(said.err.contains(reason), "should say `{reason}`: {}", said.err);
    };
    refused(Path::new("no/such"), "no/such");
    refused(Path::new("tests/fixtures/recipes"), "there is no recording in this folder");
    refused(Path::new("README.md"), "README.md");
    refused(Path::new("tests/fuzz/seeds/dump"), "a dump of zoo itself");
    let inputs = tempfile::tempdir().unwrap();
    let out = inputs.path().to_str().unwrap();
    tiny(&["golden", "inputs", "tiny", "--as", "npz", "--out", out]).expect(0);
    refused(&inputs.path().join("weights.npz"), "none of its 9 names is one of a step (the first is `conv1.weight`)");
}

#[test]
fn damaged_recordings_are_named() {
    let damaged = |name: &str, file: &str, damage: &dyn Fn(&Path), reason: &str| {
        let folder = copied(name);
        damage(&folder.path().join(file));
        let said = judged(folder.path(), &[]).expect(3);
        let file = Path::new(file).file_name().unwrap().to_str().unwrap();
        assert!(said.err.contains(reason) && said.err.contains(file), "should say `{reason}` of {file}: {}", said.err);
    };
    let cut = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    };
    damaged("msprobe-tensor", "dump.json", &cut, "msprobe completes the file only when its debugger stops");
    damaged("capture", "step.safetensors", &cut, "truncated");
    damaged("capture", "capture.json", &cut, "EOF");
    let of_conv = "dump_tensor_data/Module.conv1.Conv2d.forward.0.output.0.pt";
    damaged("msprobe-tensor", of_conv, &cut, "damaged zip archive");
    damaged("msprobe-tensor", of_conv, &|path| fs::remove_file(path).unwrap(), "No such file");
    // A file of another step, of the same shape: what dump.json says of it does not hold.
    let other = made("msprobe-tensor").join("dump_tensor_data/Module.bn1.BatchNorm2d.forward.0.output.0.pt");
    damaged("msprobe-tensor", of_conv, &|path| drop(fs::copy(&other, path)), "files of different runs");
    // A pickle that would run a command, as torch.save never writes one.
    let run =
        |path: &Path| fs::write(path, b"\x80\x02cposix\nsystem\nX\x0f\x00\x00\x00touch /tmp/hacked\x85R.").unwrap();
    damaged("msprobe-tensor", of_conv, &run, "that torch.save did not write");
    damaged(
        "capture",
        "capture.json",
        &|path| fs::write(path, r#"{"zoo_capture": 2, "tensors": {}}"#).unwrap(),
        "format 2",
    );
}

#[test]
fn ranks_are_judged_one_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    for rank in ["step0/rank0", "step0/rank1"] {
        let target = folder.path().join(rank);
        fs::create_dir_all(&target).unwrap();
        fs::copy(made("msprobe-statistics").join("dump.json"), target.join("dump.json")).unwrap();
    }
    let said = judged(folder.path(), &[]).expect(3);
    assert!(said.err.contains("dumps of several steps or ranks, name one"), "{}", said.err);
    judged(&folder.path().join("step0/rank1"), &["--allow-missing=update"]).expect(0);
}

#[test]
fn a_step_begins_with_the_same_weights_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    for form in ["safetensors", "pth", "npz", "mindspore"] {
        tiny(&["golden", "inputs", "tiny", "--as", form, "-o", out]).expect(0);
    }
    for file in ["weights.safetensors", "weights.pth"] {
        let path = folder.path().join(file);
        let recipes = ["--recipes", "tests/fixtures/recipes"];
        said(command().args(["weights", "import", "tiny", path.to_str().unwrap()]).args(recipes)).expect(0);
    }
    let contains = |file: &str, name: &str| {
        let bytes = fs::read(folder.path().join(file)).unwrap();
        bytes.windows(name.len()).any(|window| window == name.as_bytes())
    };
    assert!(contains("weights.npz", "bn1.running_mean.npy") && contains("inputs.npz", "image.npy"));
    assert!(contains("weights.ckpt", "bn1.gamma") && contains("weights.ckpt", "bn1.moving_variance"));
    assert!(contains("weights.ckpt", "fc.weight") && !contains("weights.ckpt", "bn1.weight"));
    let step: serde_json::Value = serde_json::from_slice(&fs::read(folder.path().join("step.json")).unwrap()).unwrap();
    assert_eq!(step["optimizer"]["momentum"], 0.9);
    assert_eq!(step["outputs"][0], "out/conv1#0");
}

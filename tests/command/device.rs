//! Simulated devices: where numbers are cast, what a step loses, dumps, and what cannot be.

use crate::workbench::{Said, command, said, zoo};
use serde_json::Value;
use std::path::{Path, PathBuf};

const FIXTURES: &str = "--recipes tests/fixtures/recipes";

/// A golden of the fixture with everything in it, in a folder of its own.
fn golden() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let stem = folder.path().join("step");
    let mut record = command();
    record.args(["golden", "record", "operators", "--recipes", "tests/fixtures/recipes", "-o"]).arg(&stem);
    said(&mut record).expect(0);
    (folder, stem.with_extension("json"))
}

/// `zoo check` or `zoo bisect` of that fixture on a device.
fn on_device(verb: &str, golden: &Path, rest: &[&str]) -> Said {
    let mut asked = command();
    asked.args([verb, "operators", "--recipes", "tests/fixtures/recipes", "--device", "ascend910", "--golden"]);
    said(asked.arg(golden).args(rest))
}

/// Rows of `zoo show --precision`.
fn placement(rest: &str) -> Value {
    zoo(&format!("show operators {FIXTURES} --precision --format json {rest}")).expect(0).json()
}

fn row<'a>(placement: &'a Value, node: &str) -> &'a Value {
    let rows = placement["nodes"].as_array().unwrap();
    rows.iter().find(|row| row["node"] == node).unwrap_or_else(|| panic!("no {node}"))
}

#[test]
fn the_placement_of_precision_says_why() {
    insta::assert_snapshot!("show-precision", zoo(&format!("show tiny {FIXTURES} --precision")).expect(0).out);
    let mixed = placement("--device ascend910");
    assert_eq!((&mixed["schema_version"], &mixed["device"]), (&1.into(), &"ascend910".into()));
    assert_eq!(mixed["precision"], "allow_mix_precision");
    for (node, dtype, why) in [
        ("conv", "f16", "white"),
        ("bn", "f16", "grey"),
        ("pad", "f32", "grey"),
        ("loss/cross_entropy", "f32", "black"),
        ("conv/grad_filter", "f16", "white"),
        ("conv.weight/update", "f32", "update"),
    ] {
        let row = row(&mixed, node);
        assert_eq!((&row["dtype"], &row["why"]), (&dtype.into(), &why.into()), "{row}");
    }
    let cast = row(&mixed, "conv.weight/cast_f16");
    assert_eq!((&cast["dtype"], &cast["from"], &cast["why"]), (&"f16".into(), &"f32".into(), &Value::Null));
    assert!(row(&mixed, "conv")["line"].as_str().unwrap().contains("operators.yaml:"));
    let f32 = placement("--device ascend910 --set npu.precision=allow_fp32_to_fp16");
    assert_eq!(
        (&row(&f32, "max_pool")["dtype"], &row(&f32, "max_pool")["why"]),
        (&"f16".into(), &"reduced_only".into())
    );
    assert_eq!((&row(&f32, "conv")["dtype"], &row(&f32, "conv")["why"]), (&"f32".into(), &"mode".into()));
    let bf16 = placement("--device gaudi --set npu.precision=bf16");
    assert_eq!(row(&bf16, "conv")["dtype"], "bf16");
    let kept = placement("--device ascend910 --set npu.keep_fp32=[lrn,MaxPool,conv/grad_filter]");
    for node in ["lrn", "lrn/grad", "max_pool", "conv/grad_filter"] {
        assert_eq!((&row(&kept, node)["dtype"], &row(&kept, node)["why"]), (&"f32".into(), &"kept".into()), "{node}");
    }
    assert_eq!(row(&kept, "conv")["dtype"], "f16");
}

#[test]
fn a_check_on_a_device_says_what_scripts_rely_on() {
    let (_folder, golden) = golden();
    let report = on_device("check", &golden, &["--set", "npu.loss_scale={fixed: {scale: 256}}", "--format", "json"]);
    let report = report.expect(0).json();
    assert_eq!((&report["schema_version"], &report["verdict"]), (&1.into(), &"pass".into()));
    assert!(report["first_divergence"].is_null() && report["conditions_differ"].as_array().unwrap().is_empty());
    let stages: Vec<&str> =
        report["stages"].as_array().unwrap().iter().map(|stage| stage["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["conditions", "kernels", "forward", "loss", "backward", "update"]);
    for stage in report["stages"].as_array().unwrap().iter().skip(1) {
        assert!(stage["worst"]["ratio"].as_f64().unwrap() <= 1.0 && stage["median_ratio"].is_number(), "{stage}");
        assert!(stage["tensors"].as_u64().unwrap() > 0 && stage["fused"] == 0, "{stage}");
    }
    let off: Vec<&str> =
        report["end_to_end"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect();
    assert!(off.contains(&"@root#0") && off.contains(&"loss"), "{off:?}");
    let scale = &report["loss_scale"];
    assert_eq!(scale["present"], 256.0);
    for share in ["lost_at_1", "lost_at_present", "lost_at_best"] {
        assert!((0.0..=1.0).contains(&scale[share].as_f64().unwrap()), "{scale}");
    }
    assert!(scale["best"].as_f64().unwrap() >= 1.0);
    let node = report["nodes"].as_array().unwrap().iter().find(|node| node["node"] == "conv/grad_filter").unwrap();
    assert_eq!((&node["op"], &node["dtype"]), (&"Conv2DBackpropFilter".into(), &"f16".into()));
    assert!(node["error"].as_f64().unwrap() > 0.0 && node["expected"].as_f64().unwrap() == 2f64.powi(-11));
    assert!(node["kernel"]["ratio"].as_f64().unwrap() <= 1.0, "{node}");
    assert_eq!((&node["underflow"], &node["overflow"], &node["scaled_by"]), (&0.0.into(), &0.0.into(), &8.into()));
    assert!(!node["exponents"].as_object().unwrap().is_empty());
}

#[test]
fn a_recipe_may_say_what_becomes_of_subnormals() {
    let (_folder, golden) = golden();
    let lost = |subnormals: &str| {
        let set = format!("npu.subnormals={subnormals}");
        let said = on_device("check", &golden, &["--set", &set, "--set", "npu.loss_scale=none", "--format", "json"]);
        let report: Value = serde_json::from_str(&said.out).unwrap();
        report["loss_scale"]["lost_at_1"].as_f64().unwrap()
    };
    let (kept, flushed) = (lost("keep"), lost("flush"));
    assert!(kept < flushed, "{kept} and {flushed}");
    let refused = on_device("check", &golden, &["--set", "npu.subnormals=dropped"]).expect(2);
    assert!(refused.err.contains("keep"), "{}", refused.err);
}

#[test]
fn what_a_device_loses_is_shown_in_eighty_columns() {
    let (_folder, golden) = golden();
    let faulty = on_device("check", &golden, &["--plant", "lrn/grad=-40"]).expect(1).out;
    for wanted in ["first divergence in backward: lrn/grad", "node lrn/grad, local", "LRNGrad in f16", "become zero"] {
        assert!(faulty.contains(wanted), "{wanted} is not in:\n{faulty}");
    }
    let excerpt = faulty.lines().any(|line| line.contains("lrn: {name: lrn, size: 5, alpha: 0.1}"));
    assert!(excerpt && faulty.contains("operators.yaml:"), "{faulty}");
    assert!(
        faulty.contains("all values") && faulty.contains("all gradients") && faulty.contains("as good"),
        "{faulty}"
    );
    for line in faulty.lines().filter(|line| line.contains('|') && !line.contains("alpha")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let all = on_device("check", &golden, &["--nodes"]).out;
    assert!(all.contains("fc.bias/update") && all.contains("conv/grad_filter"), "{all}");
}

#[test]
fn what_has_to_stay_fp32_is_found_and_helps() {
    let (_folder, golden) = golden();
    let found = on_device("bisect", &golden, &["--plant", "max_pool/grad=40"]).expect(0).out;
    assert!(found.contains("--set 'npu.keep_fp32=[max_pool/grad]'"), "{found}");
    let planted = ["--plant", "max_pool/grad=40", "--format", "json"];
    let json = on_device("bisect", &golden, &planted).expect(0).json();
    assert_eq!(json["keep"], serde_json::json!([{"node": "max_pool/grad", "op": "MaxPoolGrad"}]));
    assert_eq!((&json["passes"], &json["device"]), (&true.into(), &"ascend910".into()));
    on_device("check", &golden, &planted).expect(1);
    let mut kept = planted.to_vec();
    kept.extend(["--set", "npu.keep_fp32=[max_pool/grad]"]);
    on_device("check", &golden, &kept).expect(0);
    let nothing = on_device("bisect", &golden, &[]).expect(0).out;
    assert!(nothing.contains("no operator needs fp32"), "{nothing}");
}

#[test]
fn dumps_are_compared() {
    let (folder, golden) = golden();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (host, npu, bad) = (path("host"), path("npu"), path("bad"));
    let mut fp32 = command();
    fp32.args(["check", "operators", "--recipes", "tests/fixtures/recipes", "--dump", &host, "--golden"]).arg(&golden);
    let written = said(&mut fp32).expect(0);
    assert!(written.err.contains("dump: ") && written.err.contains("nodes"), "{}", written.err);
    on_device("check", &golden, &["--dump", &npu]).expect(0);
    on_device("check", &golden, &["--dump", &bad, "--plant", "inner=40"]).expect(1);
    let sound = zoo(&format!("golden diff {host} {npu}")).expect(0).out;
    assert!(sound.contains("pass: all differences are due to rounding or inherited"), "{sound}");
    let same = zoo(&format!("golden diff {npu} {npu}")).expect(0).out;
    assert!(same.contains("pass: bit-identical, 0 of"), "{same}");
    let found = zoo(&format!("golden diff {host} {bad}")).expect(1).out;
    assert!(found.contains("first error of its own: inner (Conv2D), forward, in B"), "{found}");
    assert!(found.contains("operators.yaml:"), "{found}");
    let json = zoo(&format!("golden diff {bad} {host} --format json")).expect(1).json();
    assert_eq!((&json["schema_version"], &json["verdict"]), (&1.into(), &"fail".into()));
    assert_eq!((&json["first"]["node"], &json["first"]["fault"]), (&"inner".into(), &"a".into()));
    assert_eq!((&json["a"]["device"], &json["b"]["device"]), (&"ascend910".into(), &"host".into()));

    let nowhere = zoo(&format!("golden diff {host} {}", path("nowhere"))).expect(3);
    assert!(nowhere.err.contains("there is no dump in this folder"), "{}", nowhere.err);
    let foreign = zoo(&format!("golden diff {host} {}", golden.parent().unwrap().display())).expect(3);
    assert!(foreign.err.contains("no dump"), "{}", foreign.err);
    let values = Path::new(&npu).join("values.safetensors");
    let whole = std::fs::read(&values).unwrap();
    std::fs::write(&values, &whole[..whole.len() - 3]).unwrap();
    let cut = zoo(&format!("golden diff {host} {npu} --format json")).expect(3);
    assert!(cut.json()["error"].as_str().unwrap().contains("truncated"));
    let mut other = command();
    other.args(["check", "operators", "--recipes", "tests/fixtures/recipes", "--dump", &npu, "--golden"]).arg(&golden);
    other.args(["--set", "model.classes=4"]);
    said(&mut other);
    let other = zoo(&format!("golden diff {host} {npu}"));
    assert!(matches!(other.code, Some(2 | 3)), "{}", other.err);
}

#[test]
fn what_a_device_cannot_do_is_refused() {
    let (_folder, golden) = golden();
    for (rest, message) in [
        (["--plant", "lnr/grad=40"], "did you mean `lrn/grad`?"),
        (["--plant", "loss/cross_entropy=40"], "computes in f32"),
        (["--plant", "lrn=much"], "not a whole number"),
        (["--plant", "lrn=400"], "out of the range of fp32"),
        (["--set", "npu.keep_fp32=[convv]"], "did you mean `conv`?"),
    ] {
        for verb in ["check", "bisect"] {
            let refused = on_device(verb, &golden, &rest).expect(2);
            assert!(refused.err.contains(message), "{verb} {rest:?}: {}", refused.err);
        }
    }
    let out = tempfile::tempdir().unwrap();
    let out = out.path().join("run").display().to_string();
    let verbs = [
        "check resnet50".to_owned(),
        "bisect resnet50".to_owned(),
        format!("bench tiny {FIXTURES} --batch 2 --steps 1"),
        format!("run tiny {FIXTURES} --no-check --out {out}"),
        format!("show tiny {FIXTURES} --precision"),
    ];
    for verb in &verbs {
        let unknown = zoo(&format!("{verb} --device ascend901")).expect(2);
        assert!(unknown.err.contains("did you mean `ascend9"), "{verb}: {}", unknown.err);
        let evaluates = zoo(&format!("{verb} --device ascend310")).expect(2);
        assert!(evaluates.err.contains("ascend310 cannot train"), "{verb}: {}", evaluates.err);
    }
    for verb in [&verbs[2], &verbs[3], &verbs[4]] {
        let kept = zoo(&format!("{verb} --device ascend910 --set npu.precision=must_keep_origin_dtype")).expect(2);
        for wanted in
            ["MaxPool (tests/fixtures/recipes/tiny.yaml:13:", "MaxPoolGrad (tests/fixtures/recipes/tiny.yaml:13:"]
        {
            assert!(kept.err.contains(wanted), "{verb}: {}", kept.err);
        }
    }
    let host = zoo("bisect resnet50 --device host").expect(2);
    assert!(host.err.contains("choose a device with --device"), "{}", host.err);
    zoo("check resnet50 --plant conv1=40").expect(2);
    zoo("check resnet50 --nodes").expect(2);
    // This machine is no simulated device.
    for options in ["--plant conv1=40", "--nodes"] {
        let said = zoo(&format!("check resnet50 --device host {options}")).expect(2);
        assert!(said.err.contains("--plant and --nodes need a simulated device"), "{}", said.err);
    }
    zoo("show resnet50 --device ascend910").expect(2);
}

/// `zoo run` of the tiny fixture on a device, into `out`.
fn run_tiny(out: &Path, rest: &[&str]) -> Said {
    let mut run = command();
    run.args(["run", "tiny", "--recipes", "tests/fixtures/recipes", "--device", "ascend910", "--out"]).arg(out);
    said(run.args(rest)).expect(0)
}

#[test]
fn a_device_trains_evaluates_and_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let rest = ["--format", "json", "--set", "npu.loss_scale={dynamic: {init: 65536}}"];
    let (out, again) = (folder.path().join("run"), folder.path().join("again"));
    let result = run_tiny(&out, &rest).lines().pop().unwrap();
    assert_eq!((&result["event"], &result["device"]), (&"result".into(), &"ascend910".into()));
    let repeated = run_tiny(&again, &[&rest[..], &["--threads", "1"]].concat()).lines().pop().unwrap();
    assert_eq!(repeated["achieved"], result["achieved"], "any number of threads");
    // A device that evaluates only evaluates.
    let eval = |device: &str| {
        zoo(&format!("eval tiny {FIXTURES} --checkpoint {} --device {device} --format json", out.display()))
    };
    for device in ["host", "ascend910", "ascend310"] {
        assert_eq!(eval(device).expect(0).json()["samples"], 40, "{device}");
    }
    assert!(eval("gaudi3").expect(2).err.contains("did you mean"));
    let bench = format!("bench tiny {FIXTURES} --batch 4 --steps 1 --device gaudi --format json");
    assert_eq!(zoo(&bench).expect(0).json()["device"], "gaudi");
}

#[test]
fn a_skipped_step_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = command();
    run.args(["run", "tiny", "--recipes", "tests/fixtures/recipes", "--device", "ascend910", "--out"])
        .arg(folder.path());
    // A training whose every step is skipped is no success.
    let warned = said(run.args(["--set", "npu.loss_scale={dynamic: {init: 1e30}}"])).expect(1).err;
    assert!(warned.contains("no step updated anything"), "{warned}");
    assert!(warned.contains("it overflows on ascend910 with the loss scale"), "{warned}");
    assert!(!warned.contains("its loss is"), "{warned}");
}

#[test]
fn a_run_on_a_device_says_first_what_it_will_lose() {
    let (folder, golden) = golden();
    // A recipe that names this golden, beside it.
    let recipes = folder.path().join("recipes");
    let goldens = folder.path().join("golden");
    std::fs::create_dir_all(&recipes).unwrap();
    std::fs::create_dir_all(&goldens).unwrap();
    for extension in ["json", "safetensors"] {
        std::fs::copy(golden.with_extension(extension), goldens.join("step").with_extension(extension)).unwrap();
    }
    let text = std::fs::read_to_string(crate::workbench::root().join("tests/fixtures/recipes/operators.yaml")).unwrap();
    std::fs::write(recipes.join("operators.yaml"), format!("{text}\ngolden: {{manifest: step.json}}\n")).unwrap();
    let mut run = command();
    run.args(["run", "operators", "--device", "ascend910", "--format", "json", "--set", "npu.precision=force_fp16"]);
    run.args(["--set", "npu.loss_scale={fixed: {scale: 1073741824}}", "--recipes"]).arg(&recipes);
    let said = said(run.arg("--out").arg(folder.path().join("run")));
    let event = said.lines().into_iter().find(|event| event["event"] == "device").unwrap();
    assert_eq!((&event["device"], &event["verdict"]), (&"ascend910".into(), &"fail".into()));
    assert_eq!(event["loss_scale"]["present"], 1073741824.0);
    assert!(event["first_divergence"]["node"].is_string(), "{event}");
    assert!(said.err.contains("is the first operator that loses more than rounding"), "{}", said.err);
}

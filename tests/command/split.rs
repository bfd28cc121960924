//! `check --parallel`: a step that several ranks share.

use crate::judge::copied;
use crate::workbench::{Said, command, root, said, zoo};
use std::{fs, path::Path};
use tempfile::TempDir;

/// Llama with two blocks, and few tokens.
const SMALL: &str = "--set model.inputs.tokens.indices=[8] --set model.classes=96 \
                     --set model.body[0].scope.body[1].scope.body[0].stack.repeat=2";

#[test]
fn a_split_is_proven_without_a_golden() {
    let report =
        zoo(&format!("check llama --parallel data=2,tensor=2,sequence {SMALL} --format json")).expect(0).json();
    assert_eq!((&report["verdict"], &report["ranks"], &report["batch"]), (&"pass".into(), &4.into(), &4.into()));
    assert_eq!(report["schema_version"], 1);
    assert_eq!(report["divided"][0]["placement"], "tensor: split along axis 0");
    let said = zoo(&format!("check llama --parallel data=2 --batch 2 --dtype f64 {SMALL}")).expect(0);
    let text = &said.out;
    assert!(text.starts_with("llama data=2  2 ranks in f64, batch 2, against one device in f64"), "{text}");
    assert!(text.ends_with("llama data=2: pass, 5 stages\n"), "{text}");
}

#[test]
fn a_golden_gives_the_conditions_and_is_proven_first() {
    let golden = "--golden golden/llama/step.json --format json";
    let report = zoo(&format!("check llama --parallel data=2,tensor=2,sequence {golden}")).expect(0).json();
    assert_eq!((&report["verdict"], &report["batch"]), (&"pass".into(), &2.into()));
    let report =
        zoo(&format!("check llama --parallel data=2 {golden} --set model.body[0].scope.body[2].rms_norm.eps=0.1"));
    let report = report.expect(1).json();
    assert_eq!((&report["verdict"], &report["dtype"]), (&"fail".into(), &"f64".into()), "the golden itself");
    let several =
        zoo(&format!("check llama qwen3 --parallel data=2 {} --format json", "--set model.classes=96")).expect(0);
    assert_eq!(several.json()["reports"].as_array().unwrap().len(), 2);
}

#[test]
fn planted_faults_are_all_judged_right() {
    let report =
        zoo(&format!("check llama --parallel pipeline=2,data=2 --mutants {SMALL} --format json")).expect(0).json();
    assert_eq!(report["planted"], report["right"]);
    let faults = report["faults"].as_array().unwrap();
    let missing = |fault: &&serde_json::Value| {
        fault["operator"] == "M1" && fault["found"]["explanation"].as_str().unwrap().contains("sum over the data group")
    };
    assert!(faults.iter().any(|fault| missing(&fault)), "{faults:#?}");
}

#[test]
fn what_does_not_fit_is_refused() {
    for (split, message) in [
        ("tensor=16", "no multiple of 16"),
        ("tenser=2", "did you mean `tensor`?"),
        ("data=2 --batch 3", "data=2 divides a batch of 3"),
        ("pipeline=99", "up to 64"),
        ("data=2 --plant x=3", "cannot be used with"),
        ("sequence", "add `tensor=2`"),
    ] {
        let said = zoo(&format!("check llama --parallel {split} {SMALL}")).expect(2);
        assert!(said.err.contains(message), "{}", said.err);
    }
    let said = zoo("check gpt2 --parallel data=2 --memory-limit 1GiB").expect(2);
    assert!(said.err.contains("smaller --batch"), "{}", said.err);
    assert!(zoo("check llama --batch 3").expect(2).err.contains("--parallel"));
}

/// The sizes of the recordings of two ranks: golden/export/rank_faults.py with a width of 16 and four tokens.
const TINY: [&str; 7] = [
    "model.inputs.tokens.indices=[4]",
    "model.classes=32",
    "model.blocks.decoder_layer.args={width: 16, hidden: 8, heads: 4, kv_heads: 2}",
    "model.body[0].scope.body[0].embedding.size=16",
    "model.body[0].scope.body[1].scope.body[0].stack.repeat=1",
    "loss.softmax_cross_entropy.ignore=65535",
    "gradients.clip=[{norm: 0.05}]",
];

/// Judges a recording of two ranks.
fn judged(recording: &Path, split: &str) -> Said {
    let sets = TINY.iter().flat_map(|set| ["--set", set]);
    said(command().args(["judge", "llama"]).arg(recording).args(split.split_whitespace()).args(sets))
}

/// A copy of a recording of two ranks.
fn ranks(name: &str) -> TempDir {
    copied(&format!("ranks/{name}"))
}

#[test]
fn recordings_of_ranks_are_judged_together() {
    let recording = |name: &str| root().join("tests/fixtures/recordings/ranks").join(name);
    let (tensor, data) = ("--parallel tensor=2,sequence --batch 2", "--parallel data=2 --batch 4");
    let said = judged(&recording("tensor"), tensor).expect(0);
    assert!(said.out.contains("a step of 2 ranks, batch 2, against one device in f64"), "{}", said.out);
    assert!(said.out.ends_with("llama tensor=2,sequence: pass, 5 stages\n"), "{}", said.out);
    judged(&recording("data"), data).expect(0);
    let report = judged(&recording("tensor_final_norm"), &format!("{tensor} --format json")).expect(1).json();
    let first = &report["first_divergence"];
    assert_eq!(first["tensor"], "model.norm.weight");
    let missing = "each tensor rank has a partial sum: the sum over the tensor group is missing";
    assert_eq!((&first["stage"], &first["explanation"]), (&"backward".into(), &missing.into()));
    assert_eq!(report["stages"][3]["failed"].as_array().unwrap().len(), 1, "all other gradients are right");
    let report = judged(&recording("data_local_means"), &format!("{data} --format json")).expect(1).json();
    let said = report["first_divergence"]["explanation"].as_str().unwrap();
    assert!(said.contains("as if the mean of the means of data ranks"), "{said}");
}

#[test]
fn recordings_that_do_not_fit_the_split_are_refused() {
    let tensor = "--parallel tensor=2,sequence --batch 2";
    let refused = |recording: &Path, split: &str, code: i32, message: &str| {
        let said = judged(recording, split).expect(code);
        assert!(said.err.contains(message), "{split}: {}", said.err);
    };
    let whole = ranks("tensor");
    let step = |folder: &TempDir| folder.path().join("step0");
    refused(whole.path(), "--parallel data=2 --batch 2", 3, "it says data=1, and the split has data=2");
    refused(whole.path(), "--parallel data=2,tensor=2 --batch 2", 3, "rank2 of 4 is missing: there are rank0, rank1");
    refused(whole.path(), "", 3, "2 ranks recorded it: say how they share the step (--parallel)");
    refused(whole.path(), &format!("{tensor} --arithmetic bf16"), 2, "judged in f32");
    refused(whole.path(), "--parallel --batch 2", 2, "has no section `parallel`");
    refused(&root().join("tests/fixtures/recordings/capture"), tensor, 3, "there is no folder of a rank in it");
    let mixed = ranks("tensor");
    fs::remove_dir_all(step(&mixed).join("rank1")).unwrap();
    refused(mixed.path(), tensor, 3, "rank1 of 2 is missing: there are rank0");
    let other = ranks("tensor_final_norm");
    fs::rename(step(&other).join("rank1"), step(&mixed).join("rank1")).unwrap();
    refused(mixed.path(), tensor, 3, "it is of another run than rank0: two runs are mixed");
    let swapped = ranks("tensor");
    fs::rename(step(&swapped).join("rank0"), step(&swapped).join("rank2")).unwrap();
    fs::rename(step(&swapped).join("rank1"), step(&swapped).join("rank0")).unwrap();
    fs::rename(step(&swapped).join("rank2"), step(&swapped).join("rank1")).unwrap();
    refused(swapped.path(), tensor, 3, "rank 1 of 2 recorded it, and it is rank0 of 2 here");
    // What the program does not say is found by the values.
    for rank in ["rank0", "rank1"] {
        let file = step(&swapped).join(rank).join("capture.json");
        let text = fs::read_to_string(&file).unwrap();
        let mut about: serde_json::Value = serde_json::from_str(&text).unwrap();
        about.as_object_mut().unwrap().remove("ranks");
        fs::write(&file, about.to_string()).unwrap();
    }
    let said = judged(swapped.path(), tensor).expect(1);
    assert!(
        said.out.contains("tensor rank 0 has the part of rank 1: the order of the parts is another"),
        "{}",
        said.out
    );
}

/// Changes what the program of a rank says in capture.json.
fn said_by_rank(folder: &TempDir, rank: usize, change: impl FnOnce(String) -> String) {
    let file = folder.path().join(format!("step0/rank{rank}/capture.json"));
    fs::write(&file, change(fs::read_to_string(&file).unwrap())).unwrap();
}

#[test]
fn what_the_programs_of_ranks_say_has_to_agree() {
    let tensor = "--parallel tensor=2,sequence --batch 2";
    let refused = |folder: &TempDir, message: &str| {
        let said = judged(folder.path(), tensor).expect(3);
        assert!(said.err.contains(message), "{}", said.err);
    };
    for scale in ["NaN", "Infinity", "0", "-1"] {
        let folder = ranks("tensor");
        said_by_rank(&folder, 1, |text| text.replace("\"loss_scale\": 1.0", &format!("\"loss_scale\": {scale}")));
        refused(&folder, "its loss_scale is not above 0");
    }
    let folder = ranks("tensor");
    fs::remove_file(folder.path().join("step0/rank1/capture.json")).unwrap();
    refused(&folder, "rank0 says which rank it is, and rank1 does not");
    let nowhere = judged(Path::new("nowhere"), tensor).expect(3);
    assert!(nowhere.err.contains("there is no such folder"), "{}", nowhere.err);
    let folder = ranks("tensor");
    let of_norm = "\"grad/model.norm.weight\": {";
    said_by_rank(&folder, 1, |text| text.replace(of_norm, &format!("{of_norm}\"placed\": {{\"tensor\": 0}}, ")));
    let said = judged(folder.path(), tensor).expect(1);
    assert!(said.out.contains("the ranks do not say the same about what each has of it"), "{}", said.out);
}

/// The gradient of a stage that is not the first, divided by the number of micro-batches.
#[test]
fn faults_of_a_later_stage_are_explained() {
    let recording = |name: &str| root().join("tests/fixtures/recordings/ranks").join(name);
    let pipeline = "--parallel pipeline=2,micro_batch=1 --batch 3";
    let judged = |name: &str, split: &str| {
        let sets = TINY.iter().map(|set| set.replace("repeat=1", "repeat=2"));
        let sets = sets.flat_map(|set| ["--set".to_owned(), set]);
        said(command().args(["judge", "llama"]).arg(recording(name)).args(split.split_whitespace()).args(sets))
    };
    judged("pipeline", pipeline).expect(0);
    let report = judged("pipeline_micro_batches", &format!("{pipeline} --format json")).expect(1).json();
    let first = &report["first_divergence"];
    assert_eq!(first["tensor"], "model.norm.weight");
    assert_eq!(first["explanation"], "it is 0.333333 = 1/micro-batch times the value of one device");
}

#[test]
fn a_rank_without_a_tensor_and_names_that_nobody_knows_are_told() {
    let lacking = ranks("tensor");
    let rank = lacking.path().join("step0/rank1");
    let tensors = candle_core::safetensors::load(rank.join("step.safetensors"), &candle_core::Device::Cpu).unwrap();
    let mut tensors: std::collections::HashMap<String, candle_core::Tensor> = tensors;
    let lost = tensors.remove("grad/model.norm.weight").unwrap();
    tensors.insert("grad/model.other.weight".to_owned(), lost);
    candle_core::safetensors::save(&tensors, rank.join("step.safetensors")).unwrap();
    for rank in ["rank0", "rank1"] {
        fs::remove_file(lacking.path().join("step0").join(rank).join("capture.json")).unwrap();
    }
    let said = judged(lacking.path(), "--parallel tensor=2,sequence --batch 2").expect(1);
    assert!(said.out.contains("rank 1 (tensor 1) has not recorded it"), "{}", said.out);
    assert!(said.out.contains("grad/model.other.weight"), "{}", said.out);
}

#[test]
fn a_recipe_may_say_how_ranks_share_its_step() {
    let set = "--set parallel.data=2 --set parallel.tensor=2 --set parallel.sequence=true";
    let report = zoo(&format!("check llama --parallel {SMALL} {set} --format json")).expect(0).json();
    assert_eq!(report["parallel"], "data=2,tensor=2,sequence");
    let said = zoo(&format!("check llama --parallel {SMALL} --set parallel.sequence=true")).expect(2);
    assert!(said.err.contains("add `tensor=2`"), "{}", said.err);
    let folder = TempDir::new().unwrap();
    let begin = folder.path().join("begin");
    zoo(&format!("golden inputs llama {SMALL} {set} --parallel -o {}", begin.display())).expect(0);
    let step: serde_json::Value = serde_json::from_str(&fs::read_to_string(begin.join("step.json")).unwrap()).unwrap();
    assert_eq!(step["parallel"], "data=2,tensor=2,sequence");
    assert_eq!(step["optimizer"]["groups"][0]["lr"], 1e-3);
    assert!(step["outputs"].as_array().unwrap().iter().any(|name| name == "model.norm#0"), "{step}");
}

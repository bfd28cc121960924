//! `profile`, `advise`, `study`, `score`: the simulated NPUs.

use crate::workbench::{command, said, zoo};
use serde_json::Value;

fn profile(rest: &str) -> Value {
    zoo(&format!("profile {rest} --format json")).expect(0).json()
}

fn ms(value: &Value) -> f64 {
    value["step_ms"].as_f64().unwrap()
}

#[test]
fn a_profile_says_what_scripts_rely_on() {
    let json = profile("resnet50 --device ascend910 --batch 256");
    assert_eq!((&json["schema_version"], &json["device"]), (&1.into(), &"ascend910".into()));
    assert_eq!((&json["devices"], &json["batch"]), (&1.into(), &256.into()));
    let (step, images) = (ms(&json), json["images_per_s"].as_f64().unwrap());
    assert!((images * step / 256e3 - 1.0).abs() < 1e-9);
    let memory = json["peak_memory_bytes"].as_u64().unwrap();
    assert!(memory > 8 << 30 && memory < 32 << 30, "{memory}");
    let ops = json["ops"].as_array().unwrap();
    assert!(ops.iter().any(|op| op["op"] == "Conv2DBackpropFilter" && op["count"] == 53));
    let shares: f64 = ops.iter().map(|op| op["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9);
    let sum: f64 = json["critical_path"].as_array().unwrap().iter().map(|b| b["ms"].as_f64().unwrap()).sum();
    assert!((sum / json["device_ms"].as_f64().unwrap() - 1.0).abs() < 0.05, "{sum}");
}

#[test]
fn the_text_is_the_same_every_time() {
    let once = zoo("profile alexnet --what-if").expect(0).out;
    assert_eq!(once, zoo("profile alexnet --what-if").expect(0).out);
    insta::assert_snapshot!("profile-alexnet", once);
}

#[test]
fn options_change_the_step() {
    let base = ms(&profile("resnet50"));
    assert!(ms(&profile("resnet50 --set npu.fusion=false")) > 1.2 * base);
    assert!(ms(&profile("resnet50 --set npu.instruction_reordering=false")) > 1.05 * base);
    assert!(ms(&profile("resnet50 --batch 128")) < 0.6 * base);
    let eight = profile("resnet50 --devices 8");
    assert!(ms(&eight) >= base);
    assert!(!eight["all_reduce"]["buckets"].as_array().unwrap().is_empty());
    let eval = profile("resnet50 --device ascend310 --eval --batch 8");
    assert!(eval["ops"].as_array().unwrap().iter().all(|op| !op["op"].as_str().unwrap().contains("Backprop")));
}

#[test]
fn what_cannot_be_is_refused() {
    for (arguments, message) in [
        ("profile resnet50 --device ascend990", "known: a100, ascend310, ascend910, ascend910b, gaudi"),
        ("profile resnet50 --set npu.xla=true", "has no XLA"),
        ("profile resnet50 --device ascend310", "cannot train"),
        ("profile resnet50 --devices 0", "0"),
        ("profile resnet50 --devices 100000", "65536"),
        ("profile resnet50 --batch 4096", "the largest that fits is"),
        ("profile resnet50 --set npu.precision=must_keep_origin_dtype", "no f32 form of MaxPool"),
        ("study no-such-study", "known: alexnet-options"),
    ] {
        let refused = zoo(arguments).expect(2);
        assert!(refused.err.contains(message), "{arguments}: {}", refused.err);
    }
    let elsewhere = tempfile::tempdir().unwrap();
    for name in ["published", "recipes/throughput/published.yaml"] {
        let mut score = command();
        score.args(["score", name]).current_dir(&elsewhere).env("XDG_CACHE_HOME", elsewhere.path());
        assert!(said(&mut score).expect(0).out.contains("r50-910-1p"), "{name}");
    }
    assert!(zoo("score no/such/file.yaml").expect(3).err.contains("No such file"));
    assert!(zoo("score recipes").expect(3).err.contains("a folder, not a file"));
}

#[test]
fn trace_and_page_stand_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, page) = (dir.path().join("t.json"), dir.path().join("p.html"));
    let mut profile = command();
    profile
        .args(["profile", "resnet18", "--devices", "8", "--what-if", "--trace"])
        .arg(&trace)
        .arg("--html")
        .arg(&page);
    said(&mut profile).expect(0);
    let json: Value = serde_json::from_str(&std::fs::read_to_string(trace).unwrap()).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let complete = events.iter().filter(|event| event["ph"] == "X");
    assert!(complete.clone().any(|event| event["name"] == "layer1.0.conv1" && event["args"]["bound"].is_string()));
    assert!(complete.clone().any(|event| event["cat"] == "HcomAllReduce"));
    assert!(
        complete.clone().all(|event| event["dur"].as_f64().unwrap() >= 0.0 && event["ts"].as_f64().unwrap() >= 0.0)
    );
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("<svg") && html.contains("Conv2DBackpropFilter") && html.contains("npu.fusion=false"));
    assert!(
        !html.contains("<script") && !html.contains("src=") && !html.contains("http:") && !html.contains("https:"),
        "nothing from elsewhere"
    );
}

#[test]
fn advice_names_pattern_line_and_price() {
    let json =
        zoo("advise alexnet --set npu.fold_pad=false --set npu.iterations_per_loop=1 --format json").expect(0).json();
    let advice = json["advice"].as_array().unwrap();
    let of = |pattern: &str| advice.iter().find(|a| a["pattern"] == pattern).unwrap_or_else(|| panic!("no {pattern}"));
    for (pattern, line) in [
        ("explicit pad", "recipes/alexnet.yaml:16:"),
        ("L2 in the loss", "recipes/alexnet.yaml:61:"),
        ("slow input", "recipes/alexnet.yaml:"),
        ("iterations_per_loop 1", "--set:2:"),
    ] {
        assert!(of(pattern)["line"].as_str().unwrap().starts_with(line), "{}", of(pattern));
        // The step waits for its input: what the device could save costs nothing now.
        let (paid, hidden) = (of(pattern)["cost_ms"].as_f64().unwrap(), of(pattern)["hidden_ms"].as_f64());
        assert_eq!((paid > 0.1, hidden.is_some_and(|ms| ms > 0.1)), (pattern == "slow input", pattern != "slow input"));
    }
    // What the compiler folds costs nothing, and the gradient of a crop is not a pad of the recipe's.
    for recipe in ["alexnet", "siammask"] {
        let json = zoo(&format!("advise {recipe} --format json")).expect(0).json();
        let patterns = json["advice"].as_array().unwrap();
        assert!(patterns.iter().all(|advice| advice["pattern"] != "explicit pad"), "{recipe}: {json}");
    }
    let clean = zoo("advise resnet50 --format json").expect(0).json();
    assert!(clean["advice"].as_array().unwrap().is_empty(), "{clean}");
    let eager =
        zoo("advise resnet18 --batch 8 --set npu.mode=eager --set npu.fusion=false --format json").expect(0).json();
    let patterns: Vec<&str> =
        eager["advice"].as_array().unwrap().iter().map(|a| a["pattern"].as_str().unwrap()).collect();
    assert!(["unfused BN", "eager mode", "small batch"].iter().all(|p| patterns.contains(p)), "{patterns:?}");
}

#[test]
fn studies_agree_or_say_why() {
    let list = zoo("study --format json").expect(0).json();
    for study in list["studies"].as_array().unwrap() {
        let name = study["name"].as_str().unwrap();
        let json = zoo(&format!("study {name} --no-train --format json")).expect(0).json();
        let trainings = json["trainings"].as_array().unwrap();
        assert_eq!(study["trainings"], trainings.len(), "{name}");
        for row in json["rows"].as_array().unwrap().iter().chain(trainings) {
            assert!(row["verdict"] != "differs" || row["because"].is_string(), "{name}: {row}");
        }
    }
    insta::assert_snapshot!("study-alexnet-options", zoo("study alexnet-options").expect(0).out);
}

#[test]
fn a_study_trains_and_remembers() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("runs").display().to_string();
    let study = format!("study tiny-precision --recipes tests/fixtures/recipes --out {out} --format json");
    let before = zoo(&format!("{study} --no-train")).expect(0).json();
    let verdicts = |report: &Value| {
        let rows = report["trainings"].as_array().unwrap();
        rows.iter().map(|row| row["verdict"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // What the device refuses it refuses without training.
    assert_eq!(verdicts(&before), ["open", "open", "agrees", "open"]);
    let said = zoo(&study).expect(0);
    let report = said.json();
    assert_eq!(verdicts(&report), ["base", "agrees", "agrees", "differs"]);
    let rows = report["trainings"].as_array().unwrap();
    assert_eq!((&rows[0]["device"], &rows[0]["metric"]), (&"host".into(), &"top1".into()));
    assert!(rows[0]["score"].is_number() && rows[1]["score"].is_number() && rows[2]["score"].is_null());
    assert!(!rows[0]["curve"].as_array().unwrap().is_empty());
    assert!(rows[2]["error"].as_str().unwrap().contains("no f32 form of MaxPool"), "{}", rows[2]);
    assert!(said.err.contains("precision: fp32 (host)"), "{}", said.err);
    let drawn = std::fs::read_to_string(folder.path().join("runs/tiny-precision.svg")).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("must_keep_origin_dtype") && drawn.contains("error"));
    // The second time nothing is trained, and no training is what it was.
    let again = zoo(&study).expect(0);
    assert!(!again.err.contains("precision: fp32 (host)"), "{}", again.err);
    assert_eq!(again.json(), report);
    let text = zoo(&study.replace(" --format json", "")).expect(0).out;
    assert!(text.contains("published") && text.contains("differs"), "{text}");
}

#[test]
fn all_built_in_throughput_is_scored() {
    let all = zoo("score --format json").expect(0).json();
    let rows = |json: &Value| json["rows"].as_array().unwrap().len();
    let files = ["published", "further", "nvidia", "transformers", "huggingface"];
    let each: usize =
        files.iter().map(|file| rows(&zoo(&format!("score {file} --format json")).expect(0).json())).sum();
    assert_eq!(rows(&all), each);
    let held_out = &all["held_out"];
    assert!(held_out["mean"].as_f64().unwrap() <= 0.12 && held_out["median"].as_f64().unwrap() <= 0.06, "{held_out}");
    assert!(all["waits_for_input"].as_u64().unwrap() > 5);
    for name in ["families", "devices"] {
        assert!(all[name].as_array().unwrap().len() > 4, "{name}");
    }
    let text = zoo("score").expect(0).out;
    for words in ["held out", "fitted", "doubtful", "rows wait for their input", "r50-mcv-8p: the same step"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn two_steps_stand_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("p.html");
    let against = "profile resnet18 --batch 32 --against resnet18 --against-set npu.fusion=false";
    let json = zoo(&format!("{against} --format json")).expect(0).json();
    let [first, second] = [0, 1].map(|side| json["figures"][0]["values"][side].as_f64().unwrap());
    assert!(json["figures"][0]["what"] == "step ms" && second > first, "{json}");
    let sum =
        |side: usize| json["ops"].as_array().unwrap().iter().map(|op| op["ms"][side].as_f64().unwrap()).sum::<f64>();
    assert!(sum(1) > sum(0));
    let text = zoo(&format!("{against} --html {}", page.display())).expect(0).out;
    assert!(text.contains("npu.fusion=false") && text.contains("backward ms"), "{text}");
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.matches("One step of resnet18").count() >= 2 && html.contains("Against each other"));
    let sets = "profile resnet18 --set train.batch=16 --against resnet18 --against-set npu.fusion=false --format json";
    let steps = zoo(sets).expect(0).json()["steps"].clone();
    assert!(steps[1].as_str().unwrap().contains("batch 16 npu.fusion=false"), "{steps}");
    let other = zoo("profile resnet18 --against resnet18 --against-device v100 --format json").expect(0).json();
    assert!(other["steps"][1].as_str().unwrap().contains("v100"), "{other}");
    assert!(zoo("profile resnet18 --against resnet81").expect(2).err.contains("resnet18"));
}

#[test]
fn a_stack_brings_its_options_and_its_pipeline() {
    let plain = profile("efficientnet_b0 --devices 8 --batch 128");
    let mindcv = profile("efficientnet_b0 --devices 8 --batch 128 --stack mindcv");
    assert_eq!((&plain["input"]["limit"], &mindcv["input"]["limit"]), (&"workers".into(), &"lock".into()));
    assert_eq!(mindcv["all_reduce"]["buckets"].as_array().unwrap().len(), 1);
    let refused = zoo("profile resnet50 --stack mindvc").expect(2).err;
    assert!(refused.contains("known: mindspore"), "{refused}");
}

#[test]
fn a_profile_tells_phases_tokens_and_lines() {
    let json = profile("gpt2 --kernels");
    let phases: Vec<&str> = json["phases"].as_array().unwrap().iter().map(|p| p["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["forward", "loss", "backward", "update"]);
    assert_eq!(json["sequence"], 1024);
    let (tokens, samples) = (json["tokens_per_s"].as_f64().unwrap(), json["images_per_s"].as_f64().unwrap());
    assert!((tokens / samples - 1024.0).abs() < 1e-6);
    assert!((0.05..1.0).contains(&json["mfu"].as_f64().unwrap()));
    let kernels = json["kernels"].as_array().unwrap();
    assert!(kernels.iter().any(|kernel| kernel["line"].as_str().is_some_and(|line| line.starts_with("gpt2.yaml:"))));
}

#[test]
fn windows_are_cut_in_three_ways() {
    let step = |form: &str| {
        let json =
            zoo(&format!("profile siammask --batch 2 --set npu.extract_patches={form} --format json")).expect(0).json();
        json["step_ms"].as_f64().unwrap()
    };
    let [native, convolution, host] = ["native", "convolution", "host"].map(step);
    // The filter of 127x127 windows has 260 million elements, nearly all of them zero.
    assert!(native < convolution && native < host, "{native} {convolution} {host}");
    let text = zoo("profile siammask --batch 2 --what-if").expect(0).out;
    assert!(text.contains("npu.extract_patches=convolution") && text.contains("npu.extract_patches=host"), "{text}");
}

/// A made trace of two steps of lenet with a fault (tests/fixtures/profiles/make.py).
fn measured(fault: &str, rest: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/profiles");
    format!("profile lenet --device ascend910 --measured {folder}/{fault}.json {rest}")
}

#[test]
fn a_measured_step_adds_up_and_has_causes() {
    let cases = [
        ("host", "fell_back", "lenet.yaml:21"),
        ("layout", "layout", "lenet.yaml:22"),
        ("pads", "layout", "lenet.yaml:22"),
        ("loop", "synchronisation", "lenet.yaml:19"),
    ];
    for (fault, reason, line) in cases {
        let json = zoo(&measured(fault, "--format json")).expect(0).json();
        let measured = &json["measured"];
        let causes = measured["causes"].as_array().unwrap();
        let named = causes.iter().find(|cause| cause["reason"] == reason && cause["line"] == line);
        assert!(named.is_some_and(|cause| cause["share"].as_f64().unwrap() > 0.1), "{fault}: {causes:?}");
        let sum = |rows: &str, of: &str| -> f64 {
            measured[rows].as_array().unwrap().iter().map(|row| row[of].as_f64().unwrap()).sum()
        };
        let all = sum("lines", "measured_ms") + sum("rest", "ms") + sum("gaps", "ms");
        assert!((all - ms(measured)).abs() < 1e-9, "{fault}: {all}");
    }
}

#[test]
fn a_cause_that_costs_too_much_fails() {
    zoo(&measured("host", "--fail-above 50")).expect(0);
    zoo(&measured("host", "--fail-above 30")).expect(1);
    zoo(&measured("host", "--fail-above 101")).expect(2);
    let missing = zoo("profile lenet --measured nowhere.json").expect(3);
    assert!(missing.err.contains("cannot read nowhere.json"), "{}", missing.err);
    insta::assert_snapshot!(
        "profile-measured",
        zoo(&measured("host", "")).expect(0).out.replace(env!("CARGO_MANIFEST_DIR"), ".")
    );
}

#[test]
fn a_device_is_not_fitted_to_traces_of_another_step() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/profiles");
    let few = zoo(&format!("device calibrate ascend910 lenet --measured {folder}/host.json -o -")).expect(3);
    assert!(few.err.contains("tables of kernels with their shapes are needed"), "{}", few.err);
}

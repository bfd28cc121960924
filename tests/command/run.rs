//! `run` and `eval` on a network that trains in a second.

use crate::workbench::{Said, command, root, said, zoo};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn tiny(out: &Path, rest: &[&str]) -> Said {
    let mut run = command();
    run.args(["run", "tiny", "--recipes", "tests/fixtures/recipes", "--format", "json", "--out"]).arg(out);
    said(run.args(rest))
}

/// Loss of every step, to the bit.
fn losses(events: &[Value]) -> Vec<u64> {
    events.iter().filter(|e| e["event"] == "step").map(|e| e["loss"].as_f64().unwrap().to_bits()).collect()
}

fn events_of(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("events.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_run_ends_with_its_verdict_and_leaves_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let said = tiny(&out, &[]).expect(0);
    let result = said.lines().pop().unwrap();
    assert_eq!(result["event"], "result");
    assert_eq!(result["metric"], "top1");
    assert!(result["target"].is_null() && result["met"].is_null());
    assert_eq!((&result["epochs"], &result["golden"]), (&2.into(), &"absent".into()));
    assert!((0.0..=1.0).contains(&result["achieved"].as_f64().unwrap()));
    assert!(said.err.contains("golden: absent"), "{}", said.err);
    assert!(said.err.contains("a linear classifier reaches"), "{}", said.err);
    for file in ["recipe.yaml", "events.jsonl", "report.html", "result.json", "checkpoints", "tensorboard"] {
        assert!(out.join(file).exists(), "{file}");
    }
    // The same folder again would overwrite a run.
    tiny(&out, &[]).expect(2);
}

#[test]
fn mixed_images_have_losses_of_their_own_for_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let mix = ["--set", "preprocess.mix={mixup: 0.5, cutmix: 1, p: 0.9}"];
    let run = |name: &str, rest: &[&str]| losses(&tiny(&dir.path().join(name), rest).expect(0).lines());
    let mixed = run("mixed", &[&mix[..], &["--threads", "1"]].concat());
    assert_eq!(mixed, run("threads", &[&mix[..], &["--threads", "3"]].concat()));
    assert_ne!(mixed, run("plain", &[]));
}

#[test]
fn the_same_seed_gives_the_same_bits_on_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, rest: &[&str]| losses(&tiny(&dir.path().join(name), rest).expect(0).lines());
    let first = run("first", &["--threads", "1"]);
    assert_eq!(first.len(), 12);
    assert_eq!(first, run("again", &["--threads", "1"]));
    assert_eq!(first, run("threads", &["--threads", "3"]));
    assert_ne!(first, run("seed", &["--set", "train.seed=1"]));
}

#[test]
fn targets_are_judged() {
    let dir = tempfile::tempdir().unwrap();
    let run =
        |name: &str, target: &str| tiny(&dir.path().join(name), &["--set", "target.metric=top5", "--set", target]);
    let missed = run("missed", "target.value=1").expect(1).lines().pop().unwrap();
    assert_eq!((&missed["met"], &missed["target"], &missed["metric"]), (&false.into(), &1.0.into(), &"top5".into()));
    let met = run("met", "target.value=0").expect(0).lines().pop().unwrap();
    assert_eq!(met["met"], true);
}

#[cfg(not(feature = "mpi"))]
#[test]
fn without_mpi_several_processes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let run = |processes: &str, out: &str| {
        let mut run = command();
        run.args(["run", "tiny", "--recipes", "tests/fixtures/recipes", "--out"]).arg(dir.path().join(out));
        said(run.env("OMPI_COMM_WORLD_SIZE", processes))
    };
    let refused = run("2", "two").expect(2);
    assert!(refused.err.contains("built without MPI") && refused.err.contains("--features mpi"), "{}", refused.err);
    run("1", "one").expect(0);
}

#[cfg(unix)]
#[test]
fn ctrl_c_leaves_a_checkpoint_from_which_the_run_goes_on_bit_for_bit() {
    let dir = tempfile::tempdir().unwrap();
    let epochs = ["--set", "train.epochs=60"];
    let whole = dir.path().join("whole");
    tiny(&whole, &epochs).expect(0);

    let cut = dir.path().join("cut");
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("zoo"))
        .current_dir(root())
        .args(["run", "tiny", "--recipes", "tests/fixtures/recipes", "--out"])
        .arg(&cut)
        .args(epochs)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while !fs::read_to_string(cut.join("events.jsonl")).is_ok_and(|log| log.contains("\"event\":\"step\"")) {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it was interrupted");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{err}");
    let (_, resume) = err.trim().rsplit_once("to resume: zoo ").unwrap_or_else(|| panic!("{err}"));
    let interrupted = events_of(&cut);
    assert_eq!(interrupted.last().unwrap()["event"], "interrupted");
    assert!(losses(&interrupted).len() < 360);

    // As printed: what the run began with is in its folder.
    assert_eq!(resume, format!("run --resume {}", cut.display()));
    zoo(resume).expect(0);
    assert_eq!(losses(&events_of(&cut)), losses(&events_of(&whole)));
    let achieved = |folder: &Path| events_of(folder).pop().unwrap()["achieved"].clone();
    assert_eq!(achieved(&cut), achieved(&whole));
}

#[test]
fn a_changed_recipe_is_not_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    tiny(&out, &[]).expect(0);
    let other = tiny(&out, &["--resume", "--set", "optimizer.sgd.momentum=0.5"]).expect(2);
    assert!(other.err.contains("optimizer.sgd.momentum"), "{}", other.err);
    let nothing = tiny(&dir.path().join("nothing"), &["--resume"]).expect(2);
    assert!(nothing.err.contains("no run to resume"), "{}", nothing.err);
}

#[test]
fn a_checkpoint_is_evaluated_as_the_run_did() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let result = tiny(&out, &[]).expect(0).lines().pop().unwrap();
    let mut eval = command();
    eval.args(["eval", "tiny", "--recipes", "tests/fixtures/recipes", "--format", "json", "--checkpoint"]).arg(&out);
    let evaluation = said(&mut eval).expect(0).json();
    assert_eq!(evaluation["achieved"], result["achieved"]);
    assert_eq!(evaluation["samples"], 40);
    let mut eval = command();
    eval.args(["eval", "tiny", "--recipes", "tests/fixtures/recipes", "--checkpoint", "no/such.safetensors"]);
    assert!(said(&mut eval).expect(3).err.contains("no/such.safetensors"));
}

#[test]
fn data_of_another_kind_bring_their_classes_and_no_target() {
    let dir = tempfile::tempdir().unwrap();
    let pictures = root().join("golden/preprocess/images");
    for (split, n) in [("train", 8), ("val", 2)] {
        for (class, picture) in [("blobs", "m2_shapes_97x61.png"), ("checks", "m5_checks_231x640.png")] {
            let folder = dir.path().join("data").join(split).join(class);
            fs::create_dir_all(&folder).unwrap();
            for i in 0..n {
                fs::copy(pictures.join(picture), folder.join(format!("{i}.png"))).unwrap();
            }
        }
    }
    let data = dir.path().join("data");
    let out = dir.path().join("run");
    let said = tiny(&out, &["--set", "target={metric: top1, value: 50%}", "--data", data.to_str().unwrap()]);
    let result = said.lines().pop().unwrap();
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.contains("model.classes is 2"), "{}", said.err);
    assert!(said.err.contains("are resized to 16x16"), "{}", said.err);
    // Of at most five classes, top 5 says nothing.
    assert!(said.out.contains(r#""metric":"top1""#) && !said.out.contains(r#""metric":"top5""#), "{}", said.out);
    // `--set` names the target, so it is this run's own.
    assert_eq!(result["target"], 0.5);
    let broken = data.join("train/blobs/3.png");
    fs::write(&broken, b"no picture").unwrap();
    let failed = tiny(&dir.path().join("broken"), &["--data", data.to_str().unwrap()]).expect(3);
    assert!(failed.err.contains("train/blobs/3.png"), "{}", failed.err);
    tiny(&dir.path().join("absent"), &["--data", "no/such/folder"]).expect(3);
}

#[test]
fn a_failing_golden_stops_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let recipes = dir.path().join("recipes");
    fs::create_dir_all(&recipes).unwrap();
    let text = fs::read_to_string(root().join("recipes/alexnet.yaml")).unwrap();
    fs::write(recipes.join("alexnet.yaml"), text.replace("momentum: 0.9,", "momentum: 0.5,")).unwrap();
    let mut run = command();
    run.args(["run", "alexnet", "--format", "json", "--recipes"])
        .arg(&recipes)
        .arg("--out")
        .arg(dir.path().join("run"));
    let result = said(&mut run).expect(1).lines().pop().unwrap();
    assert_eq!(
        (&result["event"], &result["golden"], &result["achieved"]),
        (&"result".into(), &"fail".into(), &Value::Null)
    );
    assert!(!dir.path().join("run").exists());
}

#[test]
fn a_golden_that_does_not_exist_stops_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let recipe = dir.path().join("named.yaml");
    let text = fs::read_to_string(root().join("tests/fixtures/recipes/tiny.yaml")).unwrap();
    fs::write(&recipe, text + "golden: {manifest: no/such.json}\n").unwrap();
    let run = |rest: &[&str]| said(command().arg("run").arg(&recipe).arg("--out").arg(&out).args(rest));
    let refused = run(&[]).expect(3);
    assert!(refused.err.contains("names the golden no/such.json"), "{}", refused.err);
    assert!(refused.err.contains("use --no-check"), "{}", refused.err);
    assert!(!out.exists());
    run(&["--no-check"]).expect(0);
}

#[test]
fn an_output_that_cannot_be_written_is_refused_before_anything_slow() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let inside = dir.path().join("file/run");
    let refused = tiny(&inside, &[]).expect(2);
    assert!(refused.err.contains("file/run: cannot be written: "), "{}", refused.err);
    let report = dir.path().join("file/run.xml");
    let out = dir.path().join("run");
    let junit = tiny(&out, &["--junit", report.to_str().unwrap()]).expect(2);
    assert!(junit.err.contains("file/run.xml: cannot be written: "), "{}", junit.err);
    let seeds = tiny(&inside, &["--repeat", "2"]).expect(2);
    for early in [&refused, &junit, &seeds] {
        assert!(!early.err.contains("a linear classifier") && !early.err.contains("memory: "), "{}", early.err);
    }
    assert!(!out.exists());
    let mut default = command();
    default.current_dir(&dir).args(["run", "tiny", "--recipes"]).arg(root().join("tests/fixtures/recipes"));
    fs::write(dir.path().join("runs"), "").unwrap();
    let refused = said(&mut default).expect(2);
    assert!(refused.err.contains("runs/tiny-full-1: cannot be written: "), "{}", refused.err);
}

#[test]
fn a_relu_on_the_logits_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(root().join("tests/fixtures/recipes/tiny.yaml")).unwrap();
    let text = text.replace("out: $classes}\n", "out: $classes}\n    - relu\n");
    let file = dir.path().join("quirk.yaml");
    fs::write(&file, text).unwrap();
    let mut run = command();
    run.arg("run").arg(&file).args(["--set", "train.epochs=1", "--out"]).arg(dir.path().join("run"));
    let warned = said(&mut run).expect(0);
    assert!(warned.err.contains("warning: there is a ReLU on the logits"), "{}", warned.err);
    assert!(warned.err.contains("quirk.yaml:20:"), "{}", warned.err);
}

/// Before the training, which would be in vain.
#[test]
fn classes_without_samples_and_targets_that_guessing_meets_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    // MNIST's files, without the digit four.
    for (part, n) in [("train", 32u32), ("t10k", 16)] {
        let numbers = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();
        let images = [numbers(&[0x803, n, 16, 16]), (0..n * 256).map(|i| (i * 7 % 251) as u8).collect()].concat();
        let labels =
            [numbers(&[0x801, n]), (0..n).map(|i| [0, 1, 2, 3, 5, 6, 7, 8, 9][i as usize % 9]).collect::<Vec<u8>>()]
                .concat();
        fs::write(data.join(format!("{part}-images-idx3-ubyte")), images).unwrap();
        fs::write(data.join(format!("{part}-labels-idx1-ubyte")), labels).unwrap();
    }
    let target = "target={metric: top1, value: 0%}";
    let said = tiny(&dir.path().join("run"), &["--data", data.to_str().unwrap(), "--set", target]).expect(0);
    for part in ["train", "val"] {
        assert!(said.err.contains(&format!("warning: 1 of 10 classes have no images in {part}: 4")), "{}", said.err);
    }
    assert!(said.err.contains("which meets the target of 0.0 %: meeting it shows nothing"), "{}", said.err);
}

/// As the documentation says: left out and counted, wherever it is met.
#[test]
fn what_cannot_be_decoded_is_left_out_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let picture = fs::read(root().join("golden/preprocess/images/m2_shapes_97x61.png")).unwrap();
    for (split, n) in [("train", 30), ("val", 6)] {
        for class in ["a", "b"] {
            let folder = dir.path().join("data").join(split).join(class);
            fs::create_dir_all(&folder).unwrap();
            (0..n).for_each(|i| fs::write(folder.join(format!("{i}.png")), &picture).unwrap());
        }
    }
    fs::write(dir.path().join("data/train/a/1.png"), &picture[..picture.len() / 2]).unwrap();
    fs::write(dir.path().join("data/val/b/2.png"), b"").unwrap();
    let data = dir.path().join("data");
    let run = |name: &str, rest: &[&str]| {
        tiny(&dir.path().join(name), &[&["--data", data.to_str().unwrap(), "--profile", "short"], rest].concat())
    };
    assert!(run("fail", &[]).expect(3).err.contains(".png"));
    let skipped = run("skip", &["--set", "data.on_error=skip", "--set", "train.batch=15"]).expect(0);
    assert!(skipped.err.contains("left out:") && skipped.err.contains("train/a/1.png"), "{}", skipped.err);
    assert!(skipped.err.contains("val/b/2.png"), "{}", skipped.err);
}

//! What is left of a run when something goes wrong from outside: killed, disk full, files damaged, data gone.
#![cfg(target_os = "linux")]

use crate::workbench::{Said, command, root, said};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A run of the fixture with a checkpoint after every step: half of its time it is writing one.
const RUN: [&str; 8] = [
    "run",
    "tiny",
    "--recipes",
    "tests/fixtures/recipes",
    "--set",
    "train.checkpoint_every=1 steps",
    "--set",
    "train.epochs=10",
];

/// Starts the run in `out`, in the background.
fn start(out: &Path, rest: &[&str]) -> Child {
    let mut run = Command::new(assert_cmd::cargo::cargo_bin!("zoo"));
    run.current_dir(root()).args(RUN).arg("--out").arg(out).args(rest);
    run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn train(out: &Path, rest: &[&str]) -> Said {
    said(command().args(RUN).arg("--out").arg(out).args(rest))
}

fn events(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("events.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Waits until a run has done so many steps.
fn wait_for_step(child: &mut Child, folder: &Path, step: u64) {
    while !events(folder).iter().any(|event| event["event"] == "step" && event["step"].as_u64() >= Some(step)) {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before step {step}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The checkpoints of a run, oldest first.
fn checkpoints(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("checkpoints")).map(|entries| entries.map(|entry| entry.unwrap().path()));
    let is_checkpoint = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "safetensors");
    let mut files: Vec<PathBuf> = entries.into_iter().flatten().filter(is_checkpoint).collect();
    files.sort();
    files
}

/// What must be the same to the bit: losses and scores of every step and evaluation, and all variables at the end.
fn outcome(folder: &Path) -> (Vec<String>, Vec<u8>) {
    let numbers = events(folder).into_iter().filter_map(|event| match event["event"].as_str() {
        Some("step") => Some(format!("{} {} {}", event["step"], event["loss"], event["lr"])),
        Some("evaluated") => Some(format!("{} {} {}", event["step"], event["loss"], event["scores"])),
        _ => None,
    });
    // The header holds times; names, types and shapes are in the order of the values.
    let bytes = fs::read(checkpoints(folder).pop().unwrap()).unwrap();
    let header = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    (numbers.collect(), bytes[8 + header..].to_vec())
}

/// What a campaign of kills met.
#[derive(Debug, Default)]
struct Tally {
    kills: usize,
    inside_a_write: usize,
    before_the_folder: usize,
    before_a_checkpoint: usize,
    runs: usize,
}

/// A number that follows from another (splitmix64, by Sebastiano Vigna).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Kills runs with SIGKILL at random moments and resumes them, kills them again, until so many kills are done and the
/// last run is over; each finished run has to be the undisturbed one to the bit.
fn campaign(kills: usize, seed: u64) -> Tally {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let begun = Instant::now();
    train(&whole, &[]).expect(0);
    let whole_time = begun.elapsed();
    let expected = outcome(&whole);
    let (mut tally, mut state) = (Tally::default(), seed);
    while tally.kills < kills {
        tally.runs += 1;
        let out = dir.path().join(format!("run-{}", tally.runs));
        loop {
            // Runs without a folder are started again; all others are resumed.
            let resume: &[&str] = if out.join("lock").exists() { &["--resume"] } else { &[] };
            let mut child = start(&out, resume);
            let share = (random(&mut state) >> 11) as f64 / (1u64 << 53) as f64;
            if tally.kills < kills {
                std::thread::sleep(whole_time.mul_f64(share));
            } else {
                child.wait().unwrap();
            }
            if child.try_wait().unwrap().is_none() {
                child.kill().unwrap();
            }
            let output = child.wait_with_output().unwrap();
            if let Some(code) = output.status.code() {
                assert_eq!(code, 0, "{}", String::from_utf8_lossy(&output.stderr));
                break;
            }
            tally.kills += 1;
            let left = fs::read_dir(out.join("checkpoints")).map(|entries| {
                entries
                    .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|e| e == "partial"))
                    .count()
            });
            tally.inside_a_write += left.unwrap_or(0).min(1);
            tally.before_the_folder += usize::from(!out.join("lock").exists());
            tally.before_a_checkpoint += usize::from(checkpoints(&out).is_empty());
        }
        assert!(outcome(&out) == expected, "run {} differs from the undisturbed one: {tally:?}", tally.runs);
        fs::remove_dir_all(&out).unwrap();
    }
    tally
}

#[test]
fn killed_runs_go_on_bit_for_bit() {
    let tally = campaign(8, 1);
    assert!(tally.kills >= 8, "{tally:?}");
}

/// `cargo test --release --test command -- --ignored --nocapture a_hundred_kills`
#[test]
#[ignore = "takes minutes; docs/reliability.md has its figures"]
fn a_hundred_kills_lose_nothing() {
    let tally = campaign(100, 7);
    println!("{tally:?}");
    assert!(tally.inside_a_write > 0, "{tally:?}");
}

/// A run that was killed after a few checkpoints, and the outcome that it has to come to.
fn killed(dir: &Path) -> (PathBuf, (Vec<String>, Vec<u8>)) {
    let whole = dir.join("whole");
    train(&whole, &[]).expect(0);
    let out = dir.join("killed");
    let mut child = start(&out, &[]);
    wait_for_step(&mut child, &out, 9);
    child.kill().unwrap();
    child.wait().unwrap();
    (out, outcome(&whole))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, target).unwrap();
        }
    }
}

#[test]
fn a_bad_checkpoint_is_named_and_the_one_before_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let (out, expected) = killed(dir.path());
    let last = checkpoints(&out).pop().unwrap();
    let good = fs::read(&last).unwrap();
    let header = usize::try_from(u64::from_le_bytes(good[..8].try_into().unwrap())).unwrap();
    let find = |what: &str| good.windows(what.len()).position(|window| window == what.as_bytes()).unwrap();
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    // The checksum's own digits: a letter may become no digit, a digit becomes another.
    let digest = find("crc32c") + "crc32c\\\":\\\"".len();
    // Another training of the same network, and a file of another kind.
    let other = dir.path().join("other");
    train(&other, &["--set", "optimizer.sgd.momentum=0.5"]).expect(0);
    let newest = checkpoints(&other).pop().unwrap();
    let foreign = fs::read(&newest).unwrap();
    let picture = fs::read(root().join("golden/preprocess/images/m2_shapes_97x61.png")).unwrap();
    let cases: [(&str, Vec<u8>, &str); 11] = [
        ("empty", Vec::new(), "not a readable safetensors file"),
        ("cut in the header", good[..8 + header / 2].to_vec(), "not a readable safetensors file"),
        ("cut in the values", good[..good.len() - 5].to_vec(), "not a readable safetensors file"),
        ("length of the header", flipped(1), "not a readable safetensors file"),
        ("name of a variable", flipped(find("conv1.weight")), "damaged"),
        ("where training stands", flipped(find("train_samples")), "damaged"),
        ("checksum", flipped(digest), "damaged"),
        ("first value", flipped(8 + header), "damaged"),
        ("last value", flipped(good.len() - 1), "damaged"),
        ("another recipe's", foreign, "optimizer.sgd.momentum"),
        ("a picture", picture, "not a readable safetensors file"),
    ];
    for (case, bytes, reason) in cases {
        let run = dir.path().join("run");
        copy(&out, &run);
        let replaced = if case == "another recipe's" { &newest } else { &last };
        let file = run.join("checkpoints").join(replaced.file_name().unwrap());
        fs::write(&file, bytes).unwrap();
        let said = train(&run, &["--resume"]).expect(0);
        assert!(said.err.contains(file.file_name().unwrap().to_str().unwrap()), "{case}: {}", said.err);
        assert!(said.err.contains(reason), "{case}: {}", said.err);
        assert!(outcome(&run) == expected, "{case}");
        fs::remove_dir_all(&run).unwrap();
    }
}

#[test]
fn a_full_disk_leaves_the_last_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    train(&whole, &[]).expect(0);
    let out = dir.path().join("full");
    fs::create_dir_all(out.join("checkpoints")).unwrap();
    // From the fifth on checkpoints are written to where there is no room, see full(4). A file that is not complete yet
    // has the number of its process, which `exec` keeps.
    let full = "for step in $(seq -f %08g 5 59); do ln -s /dev/full $0/checkpoints/step-$step.safetensors.$$.partial; done; \
                exec \"$@\" --out $0";
    let mut shell = assert_cmd::Command::new("sh");
    shell.current_dir(root()).args(["-c", full]).arg(&out).arg(assert_cmd::cargo::cargo_bin!("zoo")).args(RUN);
    let said = said(&mut shell).expect(74);
    assert!(said.err.contains("step-00000005.safetensors: cannot be written: No space left"), "{}", said.err);
    assert_eq!(events(&out).last().unwrap()["event"], "failed");
    let names: Vec<PathBuf> = checkpoints(&out);
    assert!(names.last().unwrap().ends_with("step-00000004.safetensors"), "{names:?}");
    // There is room again.
    train(&out, &["--resume"]).expect(0);
    assert!(outcome(&out) == outcome(&whole));
}

#[test]
fn reports_meanwhile_do_not_disturb_a_training() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let mut run = start(&out, &["--set", "train.epochs=40", "--set", "train.eval_every=1 steps"]);
    wait_for_step(&mut run, &out, 1);
    let mut reports = 0;
    while run.try_wait().unwrap().is_none() {
        let both = [0, 1].map(|_| {
            let mut report = Command::new(assert_cmd::cargo::cargo_bin!("zoo"));
            report.arg("report").arg(&out).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        });
        for report in both {
            let said = report.wait_with_output().unwrap();
            assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
            reports += 1;
        }
    }
    assert!(reports > 4, "{reports}");
    let end = run.wait_with_output().unwrap();
    assert!(end.status.success(), "{}", String::from_utf8_lossy(&end.stderr));
    assert!(fs::read_dir(&out).unwrap().all(|entry| entry.unwrap().path().extension().is_none_or(|e| e != "partial")));
}

#[test]
fn what_is_no_run_s_is_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["recipe.yaml", "report.html", "result.json", "checkpoints/step-00000900.safetensors"] {
        let out = dir.path().join(name.replace('/', "-"));
        let mine = out.join(name);
        fs::create_dir_all(mine.parent().unwrap()).unwrap();
        fs::write(&mine, b"mine").unwrap();
        let said = train(&out, &[]).expect(2);
        assert!(said.err.contains("choose another folder"), "{name}: {}", said.err);
        assert_eq!(fs::read(&mine).unwrap(), b"mine");
    }
}

#[test]
fn a_run_that_was_killed_early_has_its_baseline_when_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, out) = (dir.path().join("whole"), dir.path().join("killed"));
    train(&whole, &[]).expect(0);
    // As it is before the first checkpoint.
    fs::create_dir(&out).unwrap();
    let log = fs::read_to_string(whole.join("events.jsonl")).unwrap();
    let before: Vec<&str> = log.lines().take_while(|line| !line.contains("checkpointed")).collect();
    fs::write(out.join("events.jsonl"), before.join("\n") + "\n").unwrap();
    fs::copy(whole.join("recipe.yaml"), out.join("recipe.yaml")).unwrap();
    train(&out, &["--resume"]).expect(0);
    let baseline = |folder: &Path| {
        let text = fs::read_to_string(folder.join("result.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["linear_baseline"].as_f64()
    };
    assert!(baseline(&whole).is_some());
    assert_eq!(baseline(&out), baseline(&whole));
    assert!(outcome(&out) == outcome(&whole));
}

#[test]
fn a_line_of_the_log_that_is_none_is_told_and_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    train(&out, &[]).expect(0);
    let log = out.join("events.jsonl");
    let whole = fs::read_to_string(&log).unwrap();
    let broken = whole.replacen("\"event\":\"step\"", "\"evont\":\"step\"", 1);
    assert_ne!(broken, whole);
    fs::write(&log, &broken).unwrap();
    let said = train(&out, &["--resume"]).expect(0);
    assert!(said.err.contains("not an event of a run"), "{}", said.err);
    assert_eq!(fs::read_to_string(log.with_extension("jsonl.set-aside")).unwrap(), broken);
    assert_eq!(events(&out).iter().filter(|event| event["event"] == "step").count(), 59);
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    for out in [file.join("run"), PathBuf::from("/proc/run")] {
        let said = train(&out, &[]).expect(2);
        assert!(said.err.contains(out.to_str().unwrap()), "{}", said.err);
    }
}

#[test]
fn data_that_vanish_stop_the_run_and_it_goes_on_when_they_are_back() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let pictures = root().join("golden/preprocess/images");
    for (split, n) in [("train", 24), ("val", 2)] {
        for (class, picture) in [("blobs", "m2_shapes_97x61.png"), ("checks", "m5_checks_231x640.png")] {
            let folder = data.join(split).join(class);
            fs::create_dir_all(&folder).unwrap();
            for i in 0..n {
                fs::copy(pictures.join(picture), folder.join(format!("{i}.png"))).unwrap();
            }
        }
    }
    let rest = ["--set", "train.epochs=60", "--data", data.to_str().unwrap()];
    let whole = dir.path().join("whole");
    train(&whole, &rest).expect(0);
    let out = dir.path().join("run");
    let mut child = start(&out, &rest);
    wait_for_step(&mut child, &out, 4);
    let gone = dir.path().join("gone");
    fs::rename(&data, &gone).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(err.contains(data.to_str().unwrap()), "{err}");
    assert!(!checkpoints(&out).is_empty());
    fs::rename(&gone, &data).unwrap();
    train(&out, &[&rest[..], &["--resume"]].concat()).expect(0);
    assert!(outcome(&out) == outcome(&whole));
}

#[test]
fn too_few_file_handles_are_an_error_and_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let zoo = assert_cmd::cargo::cargo_bin!("zoo");
    let mut codes = Vec::new();
    for handles in [4, 5, 6, 7, 8, 10, 12, 16, 24, 64] {
        let out = dir.path().join(handles.to_string());
        let mut shell = assert_cmd::Command::new("sh");
        shell.current_dir(root()).args(["-c", &format!("ulimit -n {handles}; exec \"$0\" \"$@\"")]).arg(zoo).args(RUN);
        let said = said(shell.arg("--out").arg(&out));
        assert!(!said.err.contains("panicked"), "{handles}: {}", said.err);
        match said.code {
            Some(0) => {}
            Some(2 | 3 | 70 | 74) => assert!(said.err.contains("Too many open files"), "{handles}: {}", said.err),
            other => panic!("{handles}: {other:?}: {}", said.err),
        }
        codes.push(said.code);
    }
    assert!(codes.contains(&Some(0)) && codes.iter().any(|code| *code != Some(0)), "{codes:?}");
}

#[test]
fn a_folder_has_one_run_at_a_time_and_a_crash_releases_it() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let long = ["--set", "train.epochs=300"];
    let mut first = start(&out, &long);
    wait_for_step(&mut first, &out, 2);
    let second = train(&out, &[&long[..], &["--resume"]].concat()).expect(2);
    assert!(second.err.contains("another process is training in this folder"), "{}", second.err);
    let third = train(&out, &long).expect(2);
    assert!(third.err.contains("this folder already contains a run"), "{}", third.err);
    first.kill().unwrap();
    first.wait().unwrap();
    let mut fourth = start(&out, &[&long[..], &["--resume"]].concat());
    let before = events(&out).len();
    while events(&out).len() <= before {
        assert!(fourth.try_wait().unwrap().is_none(), "the lock of a dead process holds");
        std::thread::sleep(Duration::from_millis(2));
    }
    fourth.kill().unwrap();
    fourth.wait().unwrap();
}

#[test]
fn many_may_read_a_golden_and_data_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let golden = dir.path().join("step.json");
    let mut record = command();
    record.args(["golden", "record", "tiny", "--recipes", "tests/fixtures/recipes", "-o"]).arg(&golden);
    said(&mut record).expect(0);
    let check = || {
        let mut check = command();
        check.args(["check", "tiny", "--recipes", "tests/fixtures/recipes", "--format", "json", "--golden"]);
        said(check.arg(&golden)).expect(0).out
    };
    let alone = check();
    let together: Vec<String> = std::thread::scope(|scope| {
        let checks: Vec<_> = (0..6).map(|_| scope.spawn(check)).collect();
        checks.into_iter().map(|check| check.join().unwrap()).collect()
    });
    assert!(together.iter().all(|out| *out == alone));
}

//! Several processes under `mpirun`. Needs the feature `mpi`, OpenMPI and two processes' worth of any machine.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const RECIPES: [&str; 4] = ["run", "tiny", "--recipes", "tests/fixtures/recipes"];

/// The command on so many processes of this machine, however few cores it has.
fn mpirun(ranks: usize) -> Command {
    let mut command = Command::new("mpirun");
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    // In a container there may be nobody but root.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(["--oversubscribe", "--bind-to", "none", "-n", &ranks.to_string()]).arg(zoo());
    command
}

fn zoo() -> &'static Path {
    assert_cmd::cargo::cargo_bin!("zoo")
}

fn run(ranks: usize, out: &Path, rest: &[&str]) -> Output {
    let mut command = mpirun(ranks);
    command.args(RECIPES).arg("--out").arg(out).args(rest).output().unwrap()
}

fn events_of(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("events.jsonl")).unwrap_or_default();
    // The last line may be half written.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn losses(folder: &Path) -> Vec<f64> {
    events_of(folder).iter().filter(|e| e["event"] == "step").map(|e| e["loss"].as_f64().unwrap()).collect()
}

/// Twenty-four steps whose normalisations see the whole batch.
const SYNCHRONISED: [&str; 4] = ["--set", "train.sync_bn=true", "--set", "train.epochs=4"];
/// A convolution whose gradient is long enough to travel round the ring, beside short ones that travel together.
const WIDE: [&str; 2] = ["--set", "model.conv2.out=480"];

#[test]
fn processes_are_one_process_with_the_whole_batch_and_speak_with_one_voice() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two, four] = ["one", "two", "four"].map(|name| dir.path().join(name));
    for (ranks, out) in [(1, &one), (2, &two), (4, &four)] {
        let said = run(ranks, out, &[&SYNCHRONISED[..], &WIDE, &["--format", "json"]].concat());
        let err = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(0), "{err}");
        assert_eq!(err.matches("run folder").count(), 1, "{err}");
        assert_eq!(String::from_utf8_lossy(&said.stdout).matches("\"event\":\"result\"").count(), 1);
    }
    let alone = losses(&one);
    for several in [&two, &four].map(|folder| losses(folder)) {
        assert_eq!((alone.len(), several.len()), (24, 24));
        for (step, (a, b)) in alone.iter().zip(&several).enumerate() {
            assert!((a - b).abs() < 1e-4, "step {}: {a} alone, {b} together", step + 1);
        }
    }
}

/// Waits for something, a minute at most.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        sleep(Duration::from_millis(20));
    }
}

/// Processes that a process has started.
fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let parent_of = |id: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    processes.filter(|id| parent_of(*id) == Some(parent)).collect()
}

/// A training that has begun and has a checkpoint.
fn begun(out: &Path, sets: &[&str]) -> Child {
    let mut command = mpirun(2);
    command.args(RECIPES).arg("--out").arg(out).args(sets).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_for("no checkpoint", || events_of(out).iter().any(|e| e["event"] == "checkpointed").then_some(()));
    child
}

#[test]
fn a_process_that_dies_ends_the_job_which_goes_on_with_another_number_of_processes() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let long = ["--set", "train.sync_bn=true", "--set", "train.epochs=100"];
    let mut job = begun(&out, &long);
    let ranks = children(job.id());
    assert_eq!(ranks.len(), 2);
    let killed = Command::new("kill").args(["-KILL", &ranks[1].to_string()]).status().unwrap();
    assert!(killed.success());
    let dead = Instant::now();
    wait_for("the job goes on without one of its processes", || job.try_wait().unwrap());
    assert!(dead.elapsed() < Duration::from_secs(30), "{:?}", dead.elapsed());
    let said = job.wait_with_output().unwrap();
    assert!(!said.status.success());
    let err = String::from_utf8_lossy(&said.stderr);
    assert!(err.contains("exited on signal 9"), "{err}");
    assert!(losses(&out).len() < 600);
    let rest = [&long[..], &["--resume"]].concat();
    let mut alone = Command::new(zoo());
    alone.current_dir(env!("CARGO_MANIFEST_DIR")).args(RECIPES).arg("--out").arg(&out).args(rest);
    let said = alone.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert_eq!(losses(&out).len(), 600);
}

#[test]
fn a_process_that_fails_says_why_and_ends_the_job() {
    let dir = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let said = run(2, &dir.path().join("run"), &["--set", "train.batch=15"]);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    let err = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(2), "{err}");
    assert!(err.contains("of which 2 ranks cannot have equal parts"), "{err}");
}

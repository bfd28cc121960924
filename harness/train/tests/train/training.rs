//! The loop on a small network: verdicts, events, determinism, resumption.

use crate::support::{Case, events, numbers, weights};
use std::{
    fs,
    io::Write,
    sync::atomic::{AtomicBool, Ordering},
};
use zoo_train::{Event, Listener, Outcome, RunFolder, TrainError, Trainer};

#[test]
fn a_run_leaves_its_files_and_a_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let case = Case::new(&[]);
    let Outcome::Finished(result) = case.run(dir.path(), None).unwrap() else { panic!("not finished") };
    assert_eq!((result.steps, result.epochs, result.target), (15, 3, Some(0.6)));
    assert_eq!(result.met, Some(true), "{result:?}");
    assert_eq!(result.linear_baseline, Some(0.4));
    let events = events(dir.path());
    assert!(matches!(events.first(), Some(Event::Started(_))));
    assert_eq!(events.last(), Some(&Event::Result(result.clone())));
    let steps = events.iter().filter(|e| matches!(e, Event::Step(_))).count();
    // Each half epoch of five steps, rounded: 3, 5, 8, 10, 13, 15.
    let evaluated: Vec<(u64, u64)> = events
        .iter()
        .filter_map(|e| if let Event::Evaluated(e) = e { Some((e.step, e.samples)) } else { None })
        .collect();
    assert_eq!(steps, 15);
    assert_eq!(evaluated, [3, 5, 8, 10, 13, 15].map(|step| (step, 21)));
    let checkpoints: Vec<u64> = events
        .iter()
        .filter_map(|e| if let Event::Checkpointed { step, .. } = e { Some(*step) } else { None })
        .collect();
    assert_eq!(checkpoints, [4, 8, 12, 15]);
    let mut kept: Vec<_> = fs::read_dir(dir.path().join("checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    kept.sort();
    assert_eq!(kept, ["step-00000012.safetensors", "step-00000015.safetensors"]);
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(dir.path().join("result.json")).unwrap()).unwrap();
    assert_eq!(json["met"], true);
    let report = fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(report.contains("target met") && report.contains("<svg"));
    let yaml = dir.path().join("recipe.yaml");
    let again = zoo_recipe::Library::new([dir.path()]).load(yaml.to_str().unwrap(), &Default::default()).unwrap();
    assert_eq!(serde_json::to_value(&again.recipe).unwrap(), serde_json::to_value(&case.recipe).unwrap());
    // The loss has two parts that add up.
    let Some(Event::Step(first)) = events.iter().find(|e| matches!(e, Event::Step(_))) else { panic!("no step") };
    let sum: f64 = first.components.iter().map(|(_, value)| value).sum();
    assert_eq!(first.components.len(), 2);
    assert!((sum - first.loss).abs() < 1e-6);
}

#[test]
fn the_target_decides() {
    let missed = Case::new(&["target.value=1", "train.epochs=1"]);
    let dir = tempfile::tempdir().unwrap();
    let Outcome::Finished(result) = missed.run(dir.path(), None).unwrap() else { panic!("not finished") };
    assert_eq!((result.met, result.target), (Some(false), Some(1.0)));

    // Three classes: the true one is always among the first five, and equal to the target is enough.
    let met = Case::new(&["target={metric: top5, value: 1}", "train.epochs=1"]);
    let dir = tempfile::tempdir().unwrap();
    let Outcome::Finished(result) = met.run(dir.path(), None).unwrap() else { panic!("not finished") };
    assert_eq!((result.met, result.achieved), (Some(true), Some(1.0)));

    // A metric that falls: what is below the target has reached it.
    for (value, met) in [("1000", true), ("0.0001", false)] {
        let case = Case::new(&[&format!("target={{metric: cross_entropy, value: {value}}}"), "train.epochs=1"]);
        let dir = tempfile::tempdir().unwrap();
        let Outcome::Finished(result) = case.run(dir.path(), None).unwrap() else { panic!("not finished") };
        assert_eq!((result.metric.name(), result.met), ("cross_entropy", Some(met)), "{result:?}");
        let found = events(dir.path()).into_iter().rev();
        let last = found.filter_map(|e| if let Event::Evaluated(e) = e { e.loss } else { None }).next();
        assert_eq!(result.achieved, last);
    }

    let mut none = Case::new(&["train.epochs=1"]);
    none.recipe.target = None;
    let dir = tempfile::tempdir().unwrap();
    let Outcome::Finished(result) = none.run(dir.path(), None).unwrap() else { panic!("not finished") };
    assert_eq!((result.met, result.target), (None, None));
    assert_eq!(result.metric.name(), "top1");
}

#[test]
fn threads_change_no_bit() {
    let run = |threads: &str| {
        let dir = tempfile::tempdir().unwrap();
        let case = Case::new(&[&format!("engine.threads={threads}")]);
        case.run(dir.path(), None).unwrap();
        (numbers(dir.path()), weights(dir.path(), &case))
    };
    let one = run("1");
    assert_eq!(one.0.len(), 15 + 6);
    assert_eq!(one, run("2"));
    assert_eq!(one, run("3"));
}

#[test]
fn another_seed_is_another_training() {
    let run = |seed: &str| {
        let dir = tempfile::tempdir().unwrap();
        Case::new(&[&format!("train.seed={seed}"), "train.epochs=1"]).run(dir.path(), None).unwrap();
        numbers(dir.path())
    };
    assert_ne!(run("5"), run("6"));
}

#[test]
fn resumed_runs_are_bit_for_bit_the_undisturbed_one() {
    let case = Case::new(&[]);
    let whole = tempfile::tempdir().unwrap();
    case.run(whole.path(), None).unwrap();
    let expected = (numbers(whole.path()), weights(whole.path(), &case));
    for stop in 0..15 {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(case.run(dir.path(), Some(stop)).unwrap(), Outcome::Interrupted { step: stop });
        assert!(matches!(case.resume(dir.path(), None).unwrap(), Outcome::Finished(_)));
        assert_eq!((numbers(dir.path()), weights(dir.path(), &case)), expected, "stopped after {stop}");
    }
    // Interrupted after every step.
    let dir = tempfile::tempdir().unwrap();
    case.run(dir.path(), Some(1)).unwrap();
    for stop in 2..15 {
        assert_eq!(case.resume(dir.path(), Some(stop)).unwrap(), Outcome::Interrupted { step: stop });
    }
    case.resume(dir.path(), None).unwrap();
    assert_eq!((numbers(dir.path()), weights(dir.path(), &case)), expected);
}

/// The fast kernels keep variables in layouts of their own; checkpoints must not show it.
#[test]
fn fast_kernels_resume_bit_for_bit_on_other_threads() {
    let case = |threads: &str| Case::new(&["engine.kernels=fast", &format!("engine.threads={threads}")]);
    let whole = tempfile::tempdir().unwrap();
    case("1").run(whole.path(), None).unwrap();
    let expected = (numbers(whole.path()), weights(whole.path(), &case("1")));
    for (stop, threads) in [(1, "3"), (7, "2"), (14, "1")] {
        let dir = tempfile::tempdir().unwrap();
        case(threads).run(dir.path(), Some(stop)).unwrap();
        case("2").resume(dir.path(), None).unwrap();
        assert_eq!((numbers(dir.path()), weights(dir.path(), &case("1"))), expected, "stopped after {stop}");
    }
}

/// Adam's bias correction counts updates, not steps.
#[test]
fn updates_that_were_left_out_are_remembered() {
    let case =
        Case::new(&["optimizer={adam: {}}", "schedule={constant: {base_lr: 0.02}}", "gradients.skip_loss_above=1.2"]);
    let whole = tempfile::tempdir().unwrap();
    let Outcome::Finished(result) = case.run(whole.path(), None).unwrap() else { panic!("not finished") };
    assert!((1..result.steps).contains(&result.skipped_steps), "{result:?}");
    for stop in [2, 5, 9, 14] {
        let dir = tempfile::tempdir().unwrap();
        case.run(dir.path(), Some(stop)).unwrap();
        let Outcome::Finished(resumed) = case.resume(dir.path(), None).unwrap() else { panic!("not finished") };
        assert_eq!(resumed.skipped_steps, result.skipped_steps, "stopped after {stop}");
        assert_eq!(numbers(dir.path()), numbers(whole.path()), "stopped after {stop}");
        assert_eq!(weights(dir.path(), &case), weights(whole.path(), &case), "stopped after {stop}");
    }
}

/// Interrupted during the evaluation after step 3, resumed, and interrupted right after the evaluation.
#[test]
fn an_evaluation_that_is_caught_up_on_is_kept() {
    let case = Case::new(&[]);
    let dir = tempfile::tempdir().unwrap();
    case.run(dir.path(), Some(3)).unwrap();
    let evaluations = || events(dir.path()).iter().filter(|e| matches!(e, Event::Evaluated(e) if e.step == 3)).count();
    assert_eq!(evaluations(), 0);
    let resume = || {
        let folder = RunFolder::reopen(dir.path()).unwrap();
        let mut trainer = Trainer::new(case.job()).unwrap();
        let files = folder.resume(&mut trainer).unwrap().files;
        let (cancel, mut heard) = (AtomicBool::new(false), 0);
        let watch = |event: &Event| {
            heard += u32::from(matches!(event, Event::Evaluated(_)));
            cancel.store(matches!(event, Event::Evaluated(_) | Event::Step(_)), Ordering::Relaxed);
        };
        let mut listeners: Vec<Box<dyn Listener + '_>> = vec![Box::new(files), Box::new(watch)];
        let end = trainer.run(&folder.checkpoints(), &mut listeners, &cancel).unwrap();
        drop(listeners);
        (end, heard)
    };
    assert_eq!(resume(), (Outcome::Interrupted { step: 3 }, 1));
    assert_eq!(evaluations(), 1);
    assert_eq!(resume(), (Outcome::Interrupted { step: 4 }, 0));
    assert_eq!(evaluations(), 1);
}

/// As after a crash between the event and the checkpoint.
#[test]
fn an_evaluation_that_no_checkpoint_contains_is_logged_once() {
    let case = Case::new(&[]);
    let (whole, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    case.run(whole.path(), None).unwrap();
    case.run(dir.path(), Some(3)).unwrap();
    let evaluated = events(whole.path()).into_iter().find(|event| matches!(event, Event::Evaluated(_))).unwrap();
    let mut log = fs::OpenOptions::new().append(true).open(dir.path().join("events.jsonl")).unwrap();
    writeln!(log, "{}", serde_json::to_string(&evaluated).unwrap()).unwrap();
    case.resume(dir.path(), None).unwrap();
    assert_eq!(numbers(dir.path()), numbers(whole.path()));
}

#[test]
fn what_a_training_began_with_is_not_needed_to_go_on() {
    let source = tempfile::tempdir().unwrap();
    let first = Case::new(&["train.epochs=1"]);
    first.run(source.path(), None).unwrap();
    let from = format!("train.init_from={{checkpoint: \"{}\"}}", source.path().display());
    let case = Case::new(&[&from]);
    let (whole, stopped, early) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    case.run(whole.path(), None).unwrap();
    case.run(stopped.path(), Some(6)).unwrap();
    // Interrupted before the first step: a checkpoint of step 0.
    case.run(early.path(), Some(0)).unwrap();
    drop(source);
    for dir in [stopped, early] {
        case.resume(dir.path(), None).unwrap();
        assert_eq!(numbers(dir.path()), numbers(whole.path()));
        assert_eq!(weights(dir.path(), &case), weights(whole.path(), &case));
    }
    assert!(matches!(Trainer::new(case.job()).unwrap().initialise(), Err(TrainError::Checkpoint(_))));
}

/// As after `kill -9`: events and temporary files beyond the last checkpoint, no final checkpoint, a line cut short.
#[test]
fn a_crash_loses_nothing_but_time() {
    let case = Case::new(&[]);
    let whole = tempfile::tempdir().unwrap();
    case.run(whole.path(), None).unwrap();
    let dir = tempfile::tempdir().unwrap();
    case.run(dir.path(), Some(7)).unwrap();
    let checkpoints = dir.path().join("checkpoints");
    fs::remove_file(checkpoints.join("step-00000007.safetensors")).unwrap();
    fs::write(checkpoints.join("step-00000008.safetensors.4711.partial"), b"half").unwrap();
    let log = dir.path().join("events.jsonl");
    let mut text = fs::read(&log).unwrap();
    text.truncate(text.len() - 7);
    fs::write(&log, text).unwrap();
    let folder = RunFolder::reopen(dir.path()).unwrap();
    let mut trainer = Trainer::new(case.job()).unwrap();
    assert_eq!(folder.resume(&mut trainer).unwrap().step, 4);
    drop(folder);
    case.resume(dir.path(), None).unwrap();
    assert_eq!(numbers(dir.path()), numbers(whole.path()));
    assert_eq!(weights(dir.path(), &case), weights(whole.path(), &case));
    assert!(!checkpoints.join("step-00000008.safetensors.4711.partial").exists());
}

#[test]
fn a_run_that_crashed_before_its_first_checkpoint_begins_anew() {
    let case = Case::new(&[]);
    let whole = tempfile::tempdir().unwrap();
    case.run(whole.path(), None).unwrap();
    let dir = tempfile::tempdir().unwrap();
    case.run(dir.path(), Some(3)).unwrap();
    fs::remove_dir_all(dir.path().join("checkpoints")).unwrap();
    case.resume(dir.path(), None).unwrap();
    assert_eq!(numbers(dir.path()), numbers(whole.path()));
    assert_eq!(events(dir.path()).iter().filter(|e| matches!(e, Event::Started(_))).count(), 1);
}

#[test]
fn a_damaged_checkpoint_gives_way_to_the_one_before() {
    let case = Case::new(&[]);
    let whole = tempfile::tempdir().unwrap();
    case.run(whole.path(), None).unwrap();
    let dir = tempfile::tempdir().unwrap();
    case.run(dir.path(), Some(9)).unwrap();
    let last = dir.path().join("checkpoints/step-00000009.safetensors");
    let mut bytes = fs::read(&last).unwrap();
    let middle = bytes.len() - 100;
    bytes[middle] ^= 0x10;
    fs::write(&last, bytes).unwrap();
    let folder = RunFolder::reopen(dir.path()).unwrap();
    let mut trainer = Trainer::new(case.job()).unwrap();
    let resumed = folder.resume(&mut trainer).unwrap();
    assert_eq!(resumed.step, 8);
    assert_eq!(resumed.rejected.len(), 1);
    assert!(resumed.rejected[0].error.to_string().contains("step-00000009.safetensors: damaged"));
    drop((resumed, trainer, folder));
    case.resume(dir.path(), None).unwrap();
    assert_eq!(numbers(dir.path()), numbers(whole.path()));
    assert_eq!(weights(dir.path(), &case), weights(whole.path(), &case));
}

#[test]
fn a_changed_recipe_is_refused_with_every_difference() {
    let dir = tempfile::tempdir().unwrap();
    Case::new(&[]).run(dir.path(), Some(2)).unwrap();
    let changed = Case::new(&["optimizer.sgd.momentum=0.5", "train.batch=4"]);
    match changed.resume(dir.path(), None) {
        Err(TrainError::RecipeChanged { step: 2, changes }) => {
            let found: Vec<String> = changes.iter().map(ToString::to_string).collect();
            assert_eq!(found, ["optimizer.sgd.momentum: 0.9 -> 0.5", "train.batch: 8 -> 4"]);
        }
        other => panic!("{other:?}"),
    }
    // What changes no number may change.
    let free = Case::new(&["target.value=0.9", "engine.threads=1", "train.checkpoint_every=1 steps"]);
    assert!(matches!(free.resume(dir.path(), None).unwrap(), Outcome::Finished(_)));
}

#[test]
fn other_data_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut case = Case::new(&[]);
    case.run(dir.path(), Some(2)).unwrap();
    case.data = crate::support::data(43, 21);
    let error = case.resume(dir.path(), None).unwrap_err();
    assert!(matches!(error, TrainError::DataChanged { step: 2, .. }), "{error}");
}

#[test]
fn a_finished_run_resumes_to_its_result() {
    let dir = tempfile::tempdir().unwrap();
    let case = Case::new(&["train.epochs=1"]);
    let Outcome::Finished(first) = case.run(dir.path(), None).unwrap() else { panic!("not finished") };
    let before = numbers(dir.path());
    let Outcome::Finished(again) = case.resume(dir.path(), None).unwrap() else { panic!("not finished") };
    assert_eq!((first.achieved, first.steps), (again.achieved, again.steps));
    assert_eq!(numbers(dir.path()), before);
}

#[test]
fn folders_are_guarded() {
    let dir = tempfile::tempdir().unwrap();
    let case = Case::new(&["train.epochs=1"]);
    assert!(matches!(RunFolder::reopen(dir.path()), Err(TrainError::RunFolder { .. })));
    let held = RunFolder::create(dir.path(), &case.recipe).unwrap();
    let busy = RunFolder::create(dir.path(), &case.recipe).err().unwrap().to_string();
    assert!(busy.contains("another process"), "{busy}");
    drop(held);
    case.run(dir.path(), None).unwrap();
    let taken = RunFolder::create(dir.path(), &case.recipe).err().unwrap().to_string();
    assert!(taken.contains("this folder already contains a run"), "{taken}");
    for file in ["launch.json", "recipe.yaml"] {
        let foreign = tempfile::tempdir().unwrap();
        fs::write(foreign.path().join(file), "of another program").unwrap();
        let taken = RunFolder::create(foreign.path(), &case.recipe).err().unwrap().to_string();
        assert!(taken.contains(&format!("`{file}`, which a run would overwrite")), "{taken}");
        assert_eq!(fs::read(foreign.path().join(file)).unwrap(), b"of another program");
    }
}

#[test]
fn a_loss_that_explodes_stops_the_run_and_keeps_the_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let case = Case::new(&["schedule={constant: {base_lr: 1e30}}", "train.checkpoint_every=1 steps"]);
    let error = case.run(dir.path(), None).unwrap_err();
    let step = match &error {
        TrainError::LossNotFinite { step, .. } | TrainError::VariableNotFinite { step, .. } => *step,
        other => panic!("{other}"),
    };
    assert!(error.to_string().contains(&format!("step {step}")), "{error}");
    assert!(error.to_string().contains("The first non-finite value came from node "), "{error}");
    let store = zoo_train::CheckpointStore::new(dir.path().join("checkpoints"));
    let found = store.latest().unwrap();
    assert!(found.is_none_or(|found| found.checkpoint.not_finite().unwrap().is_none()));
    assert!(matches!(events(dir.path()).last(), Some(Event::Failed { .. })));
    assert!(fs::read_to_string(dir.path().join("report.html")).unwrap().contains("failed after step"));
}

#[test]
fn data_and_network_must_have_the_same_classes() {
    let case = Case::new(&["model.classes=4"]);
    let error = Trainer::new(case.job()).err().unwrap().to_string();
    assert!(error.contains("3 classes of data, but `model.classes` is 4"), "{error}");
}

//! A run folder describes itself: what is done with it needs neither data, profile, overrides nor device to be told
//! again.

use crate::workbench::{Said, command, root, said, zoo};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of two classes without a division into training and held-out images.
fn pictures(dir: &Path) -> PathBuf {
    let (data, pictures) = (dir.join("data"), root().join("golden/preprocess/images"));
    for (class, picture) in [("blobs", "m2_shapes_97x61.png"), ("checks", "m5_checks_231x640.png")] {
        fs::create_dir_all(data.join(class)).unwrap();
        for i in 0..30 {
            fs::copy(pictures.join(picture), data.join(class).join(format!("{i}.png"))).unwrap();
        }
    }
    data
}

/// Runs `tiny` on these pictures, named relative to where it is run.
fn run_on_pictures(dir: &Path) -> Said {
    pictures(dir);
    let mut run = command();
    run.current_dir(dir).args(["run", "tiny", "--data", "data", "--out", "run", "--format", "json", "--recipes"]);
    run.arg(root().join("tests/fixtures/recipes"));
    said(run.args(["--profile", "short", "--set", "model.fc.out=2"])).expect(0)
}

#[test]
fn a_run_is_evaluated_on_its_own_data_from_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    let result = run_on_pictures(dir.path()).lines().pop().unwrap();
    let run = dir.path().join("run");
    let run = run.to_str().unwrap();
    let evaluated = zoo(&format!("eval {run} --format json")).expect(0);
    let report = evaluated.json();
    assert_eq!((&report["achieved"], &report["own_data"]), (&result["achieved"], &true.into()));
    assert_eq!((&report["recipe"], &report["device"], &report["run"]), (&"tiny".into(), &"host".into(), &run.into()));
    let data = dir.path().join("data");
    assert!(report["data"].as_str().unwrap().contains(data.to_str().unwrap()), "{report}");
    // What is taken from the folder is said.
    for part in ["recipe tiny", "profile short", "model.fc.out=2", "data "] {
        assert!(evaluated.err.contains(part), "{part}: {}", evaluated.err);
    }
    assert!(zoo(&format!("eval {run}")).expect(0).out.contains("class folders in"));
    // The name of the recipe refers to the same run, even if the recipe has changed.
    let named = zoo(&format!("eval tiny --recipes tests/fixtures/recipes --checkpoint {run} --format json")).expect(0);
    assert_eq!(named.json()["achieved"], result["achieved"]);
    let other = zoo(&format!("eval {run} --profile mini")).expect(2);
    assert!(other.err.contains("trained with the profile `short`"), "{}", other.err);
}

#[test]
fn the_command_on_the_page_trains_the_same_again() {
    let dir = tempfile::tempdir().unwrap();
    let result = run_on_pictures(dir.path()).lines().pop().unwrap();
    let page = fs::read_to_string(dir.path().join("run/report.html")).unwrap();
    let (_, rest) = page.split_once("<summary>Command</summary>").unwrap();
    let (line, _) = rest.split_once("</pre>").unwrap();
    let line = line.rsplit('>').next().unwrap().replace("&#x2f;", "/").replace("&#x27;", "'");
    let mut shell = assert_cmd::Command::new("sh");
    let folder = assert_cmd::cargo::cargo_bin!("zoo").parent().unwrap();
    shell.arg("-c").arg(format!("{line} --out again --format json")).current_dir(&dir);
    shell.env("PATH", format!("{}:{}", folder.display(), std::env::var("PATH").unwrap()));
    let again = said(&mut shell).expect(0).lines().pop().unwrap();
    assert_eq!(again["achieved"], result["achieved"]);
}

#[test]
fn other_data_are_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    run_on_pictures(dir.path());
    let run = dir.path().join("run");
    // Away from its run, a checkpoint still knows that it was trained on something else.
    let stray = dir.path().join("stray.safetensors");
    let newest = fs::read_dir(run.join("checkpoints")).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
    fs::copy(newest, &stray).unwrap();
    let eval = |rest: &str| {
        zoo(&format!("eval tiny --recipes tests/fixtures/recipes --checkpoint {} {rest}", stray.display()))
    };
    let refused = eval("").expect(2);
    assert!(refused.err.contains("trained on") && refused.err.contains("--data DIR"), "{}", refused.err);
    eval(&format!("--data {}", dir.path().join("data").display())).expect(0);
    let other = zoo(&format!("eval resnet18 --checkpoint {}", stray.display())).expect(2);
    assert!(other.err.contains("the checkpoint is from the recipe `tiny`"), "{}", other.err);
    // Generated characters have another number of classes, and the weights are of another network than this recipe's.
    let misfit = zoo(&format!(
        "weights export tiny_text --recipes tests/fixtures/recipes --checkpoint {} --out x.pth",
        run.display()
    ));
    assert!(misfit.expect(2).err.contains("the checkpoint is from the recipe `tiny` with 2 classes"));
}

#[test]
fn a_run_is_exported_by_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    run_on_pictures(dir.path());
    let (run, model) = (dir.path().join("run"), dir.path().join("net.onnx"));
    let exported = zoo(&format!("export {} --out {}", run.display(), model.display())).expect(0);
    assert!(exported.err.contains("profile short") && model.is_file(), "{}", exported.err);
    let state = dir.path().join("net.pth");
    zoo(&format!("weights export {} --out {}", run.display(), state.display())).expect(0);
    assert!(state.is_file());
    let nothing = zoo("weights export tiny --recipes tests/fixtures/recipes --out x.pth").expect(2);
    assert!(nothing.err.contains("no weights given"), "{}", nothing.err);
}

#[test]
fn a_run_goes_on_as_it_began() {
    let dir = tempfile::tempdir().unwrap();
    run_on_pictures(dir.path());
    let run = dir.path().join("run");
    let resumed = zoo(&format!("run --resume {}", run.display())).expect(0);
    assert!(resumed.err.contains("resuming"), "{}", resumed.err);
    // A run is not begun in the place of another.
    let again = zoo(&format!("run {}", run.display())).expect(2);
    assert!(again.err.contains(&format!("zoo run --resume {}", run.display())), "{}", again.err);
}

/// Another recipe of the same name is nearer when the run is resumed.
#[test]
fn a_run_that_is_resumed_by_its_recipe_searches_where_it_did() {
    let dir = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(root().join("tests/fixtures/recipes/tiny.yaml")).unwrap();
    for (folder, momentum) in [("recipes", "0.5"), ("own", "0.9")] {
        fs::create_dir(dir.path().join(folder)).unwrap();
        let text = text.replace("momentum: 0.9,", &format!("momentum: {momentum},"));
        fs::write(dir.path().join(folder).join("tiny.yaml"), text).unwrap();
    }
    let tiny = |rest: &[&str]| said(command().current_dir(dir.path()).args(["run", "tiny"]).args(rest)).expect(0);
    tiny(&["--recipes", "own"]);
    let resumed = tiny(&["--resume"]);
    assert!(resumed.err.contains("resuming runs/tiny-full-1 after step 12"), "{}", resumed.err);
}

#[test]
fn what_is_not_there_is_told_before_anything_long() {
    let refused = zoo("run resnet50 --resume --out no/such/run").expect(2);
    assert!(refused.err.contains("no run to resume") && !refused.err.contains("golden"), "{}", refused.err);
}

#[test]
fn a_recipe_without_profiles_names_its_runs_without_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = command();
    run.current_dir(dir.path()).args(["run", "digits", "--set", "train.epochs=1", "--set", "target=~", "--recipes"]);
    said(run.arg(root().join("tests/fixtures/recipes"))).expect(0);
    assert!(dir.path().join("runs/digits-1/report.html").is_file());
}

#[test]
fn weights_of_another_recipe_are_refused_before_their_data() {
    let dir = tempfile::tempdir().unwrap();
    run_on_pictures(dir.path());
    let run = dir.path().join("run");
    let eval = format!("eval digits --recipes tests/fixtures/recipes --checkpoint {}", run.display());
    let refused = zoo(&eval).expect(2).err;
    assert!(refused.contains("the weights do not fit the network: 5 of 17 tensors fit"), "{refused}");
    assert!(refused.contains("the checkpoint is from the recipe `tiny`"), "{refused}");
}

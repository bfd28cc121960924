//! Where recipes are found, and what is said if there are none.

use crate::workbench::{Said, command, said, zoo};
use std::fs;
use std::path::Path;

/// Runs the command in a folder, with this temporary directory and no cache folder.
fn without_cache(folder: &Path, temporary: &Path, arguments: &str) -> Said {
    let mut zoo = command();
    zoo.current_dir(folder).env_remove("HOME").env_remove("XDG_CACHE_HOME").env("TMPDIR", temporary);
    said(zoo.args(arguments.split_whitespace()))
}

#[cfg(unix)]
#[test]
fn without_a_cache_folder_built_in_recipes_are_unpacked_to_a_private_one() {
    use std::os::unix::fs::PermissionsExt;
    let (here, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(here.path().join("recipes")).unwrap();
    let run = |arguments: &str| without_cache(here.path(), temporary.path(), arguments);
    let checked = run("check lenet --format json").expect(0);
    assert_eq!(checked.json()["verdict"], "pass");
    assert!(checked.err.is_empty(), "{}", checked.err);
    assert!(run("score --format json").expect(0).json()["rows"].as_array().unwrap().len() > 50);
    assert!(run("study").expect(0).out.contains("db-underflow"));
    let folders: Vec<_> = fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [folder] = folders.as_slice() else { panic!("{folders:?}") };
    assert_eq!(fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
    // New recipes are not written there.
    assert!(run("new mine --from lenet").expect(0).out.starts_with("recipes/mine.yaml\n"));
    // A folder that others can write to is not used.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = run("ls").expect(2);
    assert!(refused.err.contains("the built-in recipes cannot be unpacked: "), "{}", refused.err);
    assert!(refused.err.contains("set XDG_CACHE_HOME or HOME"), "{}", refused.err);
}

#[test]
fn a_cache_folder_that_cannot_be_written_is_replaced() {
    let (here, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = here.path().join("file");
    fs::write(&file, "").unwrap();
    let mut zoo = command();
    zoo.current_dir(here.path()).env("XDG_CACHE_HOME", &file).env("TMPDIR", temporary.path());
    let shown = said(zoo.args(["show", "lenet"])).expect(0);
    assert!(shown.err.is_empty(), "{}", shown.err);
    let refused = without_cache(here.path(), &file, "show lenet").expect(2);
    assert!(refused.err.contains("the built-in recipes cannot be unpacked: "), "{}", refused.err);
}

#[test]
fn what_is_not_listed_is_a_usage_error_in_every_format() {
    for format in ["text", "json"] {
        let refused = zoo(&format!("ls no-such-word --format {format}")).expect(2);
        assert!(refused.err.contains("no recipe matches"), "{}", refused.err);
    }
    let score = zoo("score no-such-name").expect(2);
    assert!(score.err.contains("there is no throughput file `no-such-name`; known: "), "{}", score.err);
    assert!(score.err.contains("published"), "{}", score.err);
}

#[test]
fn what_is_no_run_folder_is_called_so() {
    let resumed = zoo("run --resume runs/no-such-run").expect(2);
    assert!(resumed.err.contains("there is no run folder `runs/no-such-run`"), "{}", resumed.err);
    let evaluated = zoo("eval runs/no-such-run").expect(2);
    assert!(evaluated.err.contains("there is no run folder or recipe `runs/no-such-run`"), "{}", evaluated.err);
}

#[test]
fn mistakes_in_a_device_file_are_called_errors_once() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("devices")).unwrap();
    fs::write(dir.path().join("devices/foo.yaml"), "name: foo\nmatrix: many\n").unwrap();
    let refused = zoo(&format!("profile lenet --device foo --recipes {}", dir.path().display())).expect(2);
    assert!(refused.err.starts_with("error: ") && !refused.err.contains("error: error:"), "{}", refused.err);
    assert!(refused.err.contains("foo.yaml:2:"), "{}", refused.err);
}

//! Files that are not what they should be: the command names the file and the reason, within bounds of memory and time.
//!
//! `findings` replays what fuzzing found (tests/fuzz) through the fuzz targets themselves; the rest was thought up.

#[path = "../fuzz/src/files.rs"]
mod files;
#[path = "../fuzz/src/tensors.rs"]
mod tensors;

mod data;
mod findings;
mod kept;
mod recipes;

use std::path::Path;
use std::process::{Command, Stdio};

/// Memory that the command may map, in KiB: threads' stacks and the program itself take about a third of it.
const MOST_KIB: u32 = 1_500_000;
/// Seconds after which the command counts as hanging, on however busy a machine.
const HANGS: u32 = 60;

/// Runs the command in a folder with bounded memory; its exit code and what it said on stderr.
fn bounded(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let script = format!("ulimit -v {MOST_KIB}; exec timeout {HANGS} \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_zoo")])
        .args(arguments)
        .current_dir(folder)
        .env("RAYON_NUM_THREADS", "2")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = [output.stderr, output.stdout].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// Requires that the command ends with this exit code and says this of the file.
fn expect(folder: &Path, arguments: &[&str], code: i32, file: &str, reason: &str) {
    let (found, said) = bounded(folder, arguments);
    let shown: String = said.chars().take(2000).collect();
    assert_eq!(found, Some(code), "{arguments:?}: {shown}");
    assert!(
        said.contains(file) && said.contains(reason),
        "{arguments:?} should name {file} and say `{reason}`: {shown}"
    );
    assert!(said.len() < 1_000_000, "{arguments:?}: {} bytes of report", said.len());
}

//! Rebuilds if a recipe or golden is added, because all of them are embedded in the binary, and tells the command its
//! commit.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=recipes");
    println!("cargo::rerun-if-changed=golden");
    println!("cargo::rerun-if-env-changed=ZOO_COMMIT");
    // Who builds from an archive may say which commit it has.
    if let Some(commit) = std::env::var("ZOO_COMMIT").ok().or_else(checked_out) {
        println!("cargo::rustc-env=ZOO_COMMIT={commit}");
    }
}

/// The commit of this source tree, if it is a checkout and git is installed. An archive may lie inside the checkout of
/// something else.
fn checked_out() -> Option<String> {
    if !Path::new(".git").exists() {
        return None;
    }
    // Each commit and each checkout adds a line to this file.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// What git prints.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

//! What this project is built on: licences, sources, build scripts, and that nothing reaches for the network.
//!
//! cargo-deny does the first two better, with advisories, and runs in CI; this holds everywhere, without it.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use toml::Table;

/// Crates whose business is the network.
const NETWORK: [&str; 24] = [
    "async-std",
    "attohttpc",
    "curl",
    "git2",
    "gix",
    "h2",
    "hf-hub",
    "http",
    "hyper",
    "isahc",
    "libssh2-sys",
    "minreq",
    "mio",
    "native-tls",
    "openssl",
    "quinn",
    "reqwest",
    "rustls",
    "smol",
    "socket2",
    "surf",
    "tokio",
    "tungstenite",
    "ureq",
];

/// Words of a build script that fetches something.
const FETCHING: [&str; 7] = ["TcpStream", "UdpSocket", "reqwest", "ureq", "curl", "wget", "git2"];

/// What cargo knows of every package of the lock file, whatever platform it is for; where only what this platform needs
/// has been downloaded, of that.
fn packages() -> Vec<Value> {
    let metadata = |more: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["metadata", "--locked", "--offline", "--format-version", "1"]).args(more);
        cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap()
    };
    let mut output = metadata(&[]);
    if !output.status.success() {
        let rustc = Command::new("rustc").args(["--print", "host-tuple"]).output().unwrap();
        output = metadata(&["--filter-platform", String::from_utf8_lossy(&rustc.stdout).trim()]);
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().clone();
    assert!(packages.len() > 100);
    packages
}

fn text<'a>(package: &'a Value, key: &str) -> &'a str {
    package[key].as_str().unwrap_or_else(|| panic!("{} has no {key}", package["name"]))
}

/// Whether a licence expression can be met with the allowed licences: `AND` of `OR`s, as crates write it.
fn allowed(expression: &str, licences: &BTreeSet<&str>) -> bool {
    let expression = expression.replace(['(', ')'], "").replace('/', " OR ");
    let one = |licence: &str| licences.contains(licence.trim());
    expression.split(" AND ").all(|part| part.split(" OR ").any(one))
}

#[test]
fn every_licence_is_one_that_deny_toml_allows() {
    let deny: Table =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deny.toml")).unwrap().parse().unwrap();
    let licences: BTreeSet<&str> =
        deny["licenses"]["allow"].as_array().unwrap().iter().filter_map(|licence| licence.as_str()).collect();
    assert!(allowed("(MIT OR GPL-3.0) AND Unicode-3.0", &licences) && !allowed("MIT AND GPL-3.0", &licences));
    for package in packages() {
        let licence = text(&package, "license");
        assert!(allowed(licence, &licences), "{} is under {licence}", package["name"]);
    }
}

#[test]
fn everything_comes_from_here_or_from_crates_io() {
    for package in packages() {
        let source = package["source"].as_str();
        let here = text(&package, "manifest_path").starts_with(env!("CARGO_MANIFEST_DIR"));
        let known = source.map_or(here, |source| source == "registry+https://github.com/rust-lang/crates.io-index");
        assert!(known, "{} comes from {source:?}", package["name"]);
    }
}

#[test]
fn nothing_that_is_built_on_is_made_for_the_network() {
    for package in packages() {
        let name = text(&package, "name");
        assert!(!NETWORK.contains(&name), "{name} is in the lock file");
    }
}

#[test]
fn no_build_script_fetches() {
    let mut scripts = 0;
    for package in packages() {
        let targets = package["targets"].as_array().unwrap();
        let build = targets.iter().filter(|target| target["kind"][0] == "custom-build");
        for path in build.map(|target| target["src_path"].as_str().unwrap()) {
            let script = fs::read_to_string(path).unwrap();
            let fetches = FETCHING.iter().find(|word| script.contains(**word));
            assert_eq!(fetches, None, "{path}");
            scripts += 1;
        }
    }
    assert!(scripts > 10, "{scripts}");
}

/// `cargo test` after `cargo run` compiles a dependency again where the dependencies of tests ask for more of its
/// features, and with it everything above it.
#[test]
fn tests_ask_for_no_feature_that_the_command_goes_without() {
    let tree = |of: &[&str]| -> BTreeSet<String> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["tree", "--locked", "--offline", "--prefix", "none", "--no-dedupe", "--format", "{p} [{f}]"]);
        let output = cargo.args(of).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(String::from).collect()
    };
    let command = tree(&["--package", "zoo", "--edges", "normal,no-proc-macro"]);
    let tests = tree(&["--workspace", "--edges", "normal,dev,no-proc-macro"]);
    assert!(command.len() > 100, "{command:?}");
    let again: Vec<&String> = command.difference(&tests).collect();
    assert!(again.is_empty(), "compiled with other features for tests (see [dependencies] of Cargo.toml): {again:?}");
}

/// System calls of the verbs that read, compute, write and report; where there is no strace, the test says so.
#[test]
fn no_verb_opens_a_socket() {
    if !Command::new("strace").arg("-V").output().is_ok_and(|output| output.status.success()) {
        println!("skipped: strace is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (log, run) = (folder.path().join("calls"), folder.path().join("run"));
    let run = run.to_str().unwrap();
    let recipe = "tests/fixtures/recipes/tiny.yaml";
    for verb in [
        &["validate", recipe][..],
        &["check", recipe, "--golden", "tests/fuzz/seeds/tiny.json"],
        &["profile", recipe],
        &["run", recipe, "--profile", "short", "--out", run],
        &["eval", recipe, "--checkpoint", run],
        &["report", run],
        &["export", recipe, "--out", &format!("{run}/tiny.onnx")],
        &["data", "inspect", recipe],
    ] {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-e", "trace=network,execve", "-o"]).arg(&log).arg(env!("CARGO_BIN_EXE_zoo"));
        let output = strace.args(verb).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        let ended = output.status.code().is_some_and(|code| code < 2);
        assert!(ended, "{verb:?}: {}", String::from_utf8_lossy(&output.stderr));
        let calls = fs::read_to_string(&log).unwrap();
        assert!(calls.contains("execve("), "strace saw nothing");
        assert!(!calls.contains("AF_INET") && !calls.contains("connect("), "{verb:?}: {calls}");
    }
}
